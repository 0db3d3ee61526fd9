"""The runner's first moments: its orders, its secrets, and its mark that it has begun.

Reads launch.json with the standard library: the msgspec shape would cost 50 ms before the program starts.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from whistlestop.engines import attempt_files, processes
from whistlestop.engines.attempt_files import BEGAN, LAUNCH, write

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch


SIGNALS = (signal.SIGTERM, signal.SIGUSR2)  # the capacity goes; blocked until somebody can make sense of them

# What launches of earlier versions have not.
_LATER = {
    "steering": [],
    "storage_worked": False,
    "restore_options": None,
    "fetch_beside": False,
    "host": "",
    "devices": None,
    "notices": {},
    "notice_seconds": None,
    "launched_at": 0.0,
    "node": 0,
    "nodes": 1,
    "ranks": 0,
    "address": "",
    "lease": None,
    "witness": [],
    "avoid": [],
    "skip": [],
    "passed_over": [],
    "stop": 0,
    "stop_by": "",
    "stop_reason": "manually_stopped",
}


def read_launch(directory: Path) -> "Launch":
    fields = json.loads((directory / LAUNCH).read_bytes())
    fields["inputs"] = [SimpleNamespace(**({"options": None, "passed_over": []} | entry)) for entry in fields["inputs"]]
    return cast("Launch", SimpleNamespace(**(_LATER | fields)))


def read_secrets() -> dict[str, str]:
    """Everything on standard input, which is then closed for good."""
    data = sys.stdin.buffer.read() if sys.stdin is not None else b""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return dict(json.loads(data)) if data else {}


def mark_program(directory: Path, pid: int) -> None:
    """Who the program is: where there is no cgroup, all that is left to find it by when we are dead."""
    process = processes.read(pid)
    if process is not None:
        attempt_files.mark_program(directory, attempt_files.Started(pid, process.start))


def mark_began(directory: Path, *, group: Path | None) -> None:
    """Who runs this attempt, and in which cgroup: for whoever has to end it when we can't."""
    own = processes.read(os.getpid())
    assert own is not None
    began = {"pid": own.pid, "start": own.start, "group": str(group) if group else None}
    write(directory / BEGAN, json.dumps(began).encode())
