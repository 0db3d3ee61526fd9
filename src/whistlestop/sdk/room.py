"""How much memory may be used for staging: what the machine has, what its tmpfs has, and what our control group may."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
_TIMES: Final = 3  # two slots, and as much again for the program itself
_NO_LIMIT: Final = 1 << 60  # version 1 has no word for it, but the largest number of whole pages


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
        return min([least, *left_in_groups()])
    except (OSError, ValueError, IndexError):
        return 0


def left_in_groups(own: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """What our control group and those above it may still take; what is in tmpfs counts as theirs. Empty where nothing
    limits us, 0 where nobody can tell."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return []
    found: list[int] = []
    for _, controllers, path in lines:
        if not controllers:
            found += _left(mounted, path, _UNIFIED) or []
        elif "memory" in controllers.split(","):  # version 1, each kind of limit in a tree of its own
            left = _left(mounted / "memory", path, _SINGLE)
            found += [0] if left is None else left
    return found


@dataclass(frozen=True)
class _Names:
    limit: str
    usage: str
    reclaimable: str  # the page cache: the kernel gives it up when somebody needs memory


_UNIFIED: Final = _Names("memory.max", "memory.current", "inactive_file")
_SINGLE: Final = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _left(root: Path, own: str, names: _Names) -> list[int] | None:
    """Upwards from our own group. In a container the path may be the host's: then only the root is found, and that is
    the container's. None: not even that."""
    found: list[int] = []
    seen = False
    path = root / own.strip("/")
    while path.is_relative_to(root):
        try:
            limit = (path / names.limit).read_text().strip()
            seen = True
            if limit != "max" and int(limit) < _NO_LIMIT:
                found.append(int(limit) - int((path / names.usage).read_text()) + _reclaimable(path, names))
        except (OSError, ValueError):
            pass
        path = path.parent
    return found if seen else None


def _reclaimable(path: Path, names: _Names) -> int:
    for line in (path / "memory.stat").read_text().splitlines():
        if line.startswith(f"{names.reclaimable} "):
            return int(line.split()[1])
    return 0
