"""One cgroup v2 per attempt: membership that no process can shed by forking, and a kill that misses none."""

import contextlib
import errno
import os
import select
import time
from pathlib import Path

PARENT = "whistlestop"

_BUSY_TRIES, _BUSY_WAIT = 20, 0.005


def mount() -> Path | None:
    """Where cgroup v2 is mounted: the root mount, or beside the v1 hierarchies on a hybrid host."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        left, _, right = line.partition(" - ")
        if right.split(" ", 1)[0] == "cgroup2":
            return Path(left.split()[4])
    return None


def own() -> str:
    """The cgroup of this process, inside the mount."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line[3:].strip("/")
    return ""


def create(attempt_id: str) -> Path | None:
    """The attempt's own empty group, or None where groups may not be created or not be entered.

    Below our own group first: whoever ends us from outside, by our group, ends what we started as well.
    """
    top = mount()
    if top is None:
        return None
    for base in dict.fromkeys((top / own(), top)):
        group = base / PARENT / attempt_id
        if not _make(group):
            continue
        # Without cgroup.kill (Linux before 5.14) the walk is as good.
        if os.access(group / "cgroup.kill", os.W_OK) and os.access(base / "cgroup.procs", os.W_OK):
            return group
        remove(group)
    return None


def _make(group: Path) -> bool:
    for _ in range(5):
        try:
            group.mkdir(parents=True, exist_ok=True)
            return True
        except FileNotFoundError:  # somebody removed the empty parent in between
            continue
        except OSError:
            return False
    return False


def enter(group: Path) -> None:
    """Put the calling process into the group."""
    fd = os.open(group / "cgroup.procs", os.O_WRONLY)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


def members(group: Path) -> list[int]:
    """Every living process in the group and below it; zombies are not listed."""
    found: list[int] = []
    for directory, _, _ in os.walk(group):
        try:
            with open(os.path.join(directory, "cgroup.procs")) as file:
                found += [int(line) for line in file]
        except OSError:
            continue
    return found


def populated(group: Path) -> bool:
    try:
        return "populated 1" in (group / "cgroup.events").read_text()
    except OSError:
        return False  # the group is gone, and only an empty one can be removed


def kill(group: Path) -> None:
    with contextlib.suppress(FileNotFoundError, OSError):
        (group / "cgroup.kill").write_text("1")


def wait_empty(group: Path, deadline: float) -> bool:
    """Sleep until the kernel says that nobody is left, or until `deadline` (monotonic)."""
    try:
        file = (group / "cgroup.events").open("rb", buffering=0)
    except OSError:
        return True
    with file:
        poller = select.poll()
        poller.register(file, select.POLLPRI)
        while True:
            file.seek(0)
            try:
                if b"populated 0" in file.read():
                    return True
            except OSError:
                return True  # removed under our hands
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            poller.poll(left * 1000)


def remove(group: Path) -> None:
    """Remove the group and those that the program made below it. A group with members stays.

    The group above stays in any case: somebody may be about to make the next one in it.
    """
    for directory, _, _ in os.walk(group, topdown=False):
        for _ in range(_BUSY_TRIES):
            try:
                os.rmdir(directory)
                break
            except OSError as error:
                if error.errno != errno.EBUSY:
                    break
                time.sleep(_BUSY_WAIT)  # its last member is dead and not yet gone from the kernel's books


def oom_kills(group: Path) -> int | None:
    """How often the kernel killed for memory in this group; None where the memory controller is not ours."""
    try:
        for line in (group / "memory.events").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    except OSError:
        pass
    return None
