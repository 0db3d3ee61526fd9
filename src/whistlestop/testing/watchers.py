"""Witnesses that do not ask Whistlestop: they read /proc themselves."""

import os
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def alive_with(mark: str) -> dict[int, str]:
    """Processes that have `mark` in their environment and are not zombies: pid -> state and command."""
    found: dict[int, str] = {}
    wanted = mark.encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environ = Path(f"/proc/{entry}/environ").read_bytes()
            if wanted not in environ:
                continue
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
            command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if state not in "ZX":
            found[int(entry)] = f"{state} {command}"
    return found


def runners_of(attempt_id: str) -> list[int]:
    """Runner processes of an attempt, by what they were started for."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(b"whistlestop.runner" in word for word in words) and any(attempt_id.encode() in word for word in words):
            found.append(int(entry))
    return found
