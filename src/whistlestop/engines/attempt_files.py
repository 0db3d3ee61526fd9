"""The files by which an engine and a runner on one host know of each other. What runs is told by the lock alone."""

import json
import os
from pathlib import Path
from typing import NamedTuple

LAUNCH = "launch.json"
LOCK = "lock"  # flocked from before the runner's start until its death, whatever it dies of
BEGAN = "began"  # the runner's pid, start time and cgroup: its first act
PROGRAM = "program"  # the program's pid and start time, and the boot in which they mean something
DONE = "done"  # its last act: the server has everything
RUNNER_LOG = "runner.log"
_MEMORY = Path("/dev/shm")


def seat_of(attempt_id: str, node: int, nodes: int) -> str:
    """What one runner of an attempt is called on its host: its directory, its cgroup, the mark of its processes. Two
    nodes of an attempt may be on one host."""
    return attempt_id if nodes == 1 else f"{attempt_id}.{node}"


def memory_of(seat: str) -> Path:
    """Where the program may put what it saves until its runner has brought it to safety."""
    return _MEMORY / f"whistle-{seat}"


class Began(NamedTuple):
    pid: int
    start: int
    group: str | None


def read_began(directory: Path) -> Began | None:
    try:
        return Began(**json.loads((directory / BEGAN).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


class Started(NamedTuple):
    """The program: the leader of its own session."""

    pid: int
    start: int


def mark_program(directory: Path, started: Started) -> None:
    write(directory / PROGRAM, json.dumps({**started._asdict(), "boot": _boot()}).encode())


def read_program(directory: Path) -> Started | None:
    """None also for one from before a reboot: its numbers belong to others by now."""
    try:
        known = json.loads((directory / PROGRAM).read_bytes())
        return Started(int(known["pid"]), int(known["start"])) if known["boot"] == _boot() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def write(path: Path, data: bytes) -> None:
    """Whole or not at all, for its owner alone."""
    making = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
    os.replace(making, path)
