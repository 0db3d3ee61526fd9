"""The files by which an engine and a runner on one host know of each other. What runs is told by the lock alone."""

import json
import os
from pathlib import Path
from typing import NamedTuple

LAUNCH = "launch.json"
LOCK = "lock"  # flocked from before the runner's start until its death, whatever it dies of
BEGAN = "began"  # the runner's pid, start time and cgroup: its first act
DONE = "done"  # its last act: the server has everything
RUNNER_LOG = "runner.log"


class Began(NamedTuple):
    pid: int
    start: int
    group: str | None


def read_began(directory: Path) -> Began | None:
    try:
        return Began(**json.loads((directory / BEGAN).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def write(path: Path, data: bytes) -> None:
    """Whole or not at all, for its owner alone."""
    making = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
    os.replace(making, path)
