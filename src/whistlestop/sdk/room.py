"""How much memory may be used for staging: what the machine has, what its tmpfs has, and what our control group may."""

import os
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
_TIMES: Final = 3  # two slots, and as much again for the program itself
_GROUPS: Final = Path("/sys/fs/cgroup")


def fits_in_memory(size: int, *, held: int = 0, memory: Path = MEMORY) -> bool:
    """Slots for states of `size` bytes; `held` bytes of it are there already."""
    needed = _TIMES * size - held
    try:
        space = os.statvfs(memory)
    except OSError:  # there is none
        return False
    return os.access(memory, os.W_OK) and space.f_bavail * space.f_frsize >= needed and _available() >= needed


def _available() -> int:
    least = 0
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                least = int(line.split()[1]) * 1024
                break
        return min([least, *_of_groups()])
    except (OSError, ValueError, IndexError):
        return 0


def _of_groups() -> list[int]:
    """What our control group and those above it may still take; what is in tmpfs counts as theirs."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None:
        return []
    found = []
    path = _GROUPS / own.strip("/")
    while path.is_relative_to(_GROUPS):
        try:
            most = (path / "memory.max").read_text().strip()
            if most != "max":
                found.append(int(most) - int((path / "memory.current").read_text()) + _reclaimable(path))
        except (OSError, ValueError):
            pass
        path = path.parent
    return found


def _reclaimable(path: Path) -> int:
    """The page cache: the kernel gives it up when somebody needs memory."""
    for line in (path / "memory.stat").read_text().splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0
