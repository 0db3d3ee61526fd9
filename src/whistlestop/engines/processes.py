"""Reading /proc, and signalling by pidfd so that a recycled pid is never hit. Who belongs where: containment.py."""

import os
import select
import signal
import time
from collections.abc import Iterable
from typing import NamedTuple

_BEFORE_COMM, _AFTER_COMM = b"(", b")"


class Process(NamedTuple):
    """One line of /proc/PID/stat. `start` (clock ticks since boot) and pid together name a process for good."""

    pid: int
    state: str
    parent: int
    session: int
    ticks: int  # CPU used, user and system
    start: int

    @property
    def alive(self) -> bool:
        """A zombie holds nothing but its exit status."""
        return self.state not in "ZX"


def read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            data = file.read()
    except OSError:
        return None
    # The name is in parentheses and may hold anything, also parentheses and spaces.
    fields = data[data.rindex(_AFTER_COMM) + 2 :].split()
    return Process(
        pid,
        fields[0].decode(),
        int(fields[1]),
        int(fields[3]),
        int(fields[11]) + int(fields[12]),
        int(fields[19]),
    )


def every() -> dict[int, Process]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := read(int(name))) is not None:
            found[process.pid] = process
    return found


def marked(pid: int, mark: bytes) -> bool:
    """Whether NAME=VALUE stood in the environment with which the process was started."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def user(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def below(roots: Iterable[int], table: dict[int, Process]) -> set[int]:
    """Every descendant of `roots`, without them."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


class Handle:
    """A process held by its pidfd: signals reach this one or nobody."""

    def __init__(self, process: Process, fd: int) -> None:
        self.process = process
        self.fd = fd

    @classmethod
    def open(cls, process: Process) -> "Handle | None":
        """None if it is gone, or if its pid belongs to another process by now."""
        try:
            fd = os.pidfd_open(process.pid)
        except OSError:
            return None
        # Looked at after the pidfd was opened: from here on the pid can't change hands unseen.
        now = read(process.pid)
        if now is None or now.start != process.start:
            os.close(fd)
            return None
        return cls(process, fd)

    def send(self, number: int) -> bool:
        try:
            signal.pidfd_send_signal(self.fd, number)
        except (ProcessLookupError, PermissionError):  # of another user: whoever counts sees it live on
            return False
        return True

    def ended(self) -> bool:
        """True also for a zombie."""
        return bool(select.select([self.fd], [], [], 0)[0])

    def wait(self, timeout: float) -> bool:
        poller = select.poll()
        poller.register(self.fd, select.POLLIN)
        return bool(poller.poll(max(0.0, timeout) * 1000))

    def close(self) -> None:
        os.close(self.fd)


def wait_all(handles: Iterable[Handle], deadline: float) -> list[Handle]:
    """Those that have not ended by `deadline` (monotonic)."""
    return [handle for handle in handles if not handle.wait(deadline - time.monotonic())]


def stuck_in(pid: int) -> str:
    """Where in the kernel a process hangs, as far as we may look."""
    words = []
    for name in ("wchan", "stack"):
        try:
            with open(f"/proc/{pid}/{name}") as file:
                words.append(" < ".join(file.read().split("\n")).strip(" <") or "?")
        except OSError:
            continue
    return "; ".join(words) or "unknown"
