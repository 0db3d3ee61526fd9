"""Whether the kernel killed for lack of memory: counters that only ever rise, read before and after."""

from pathlib import Path

from whistlestop.engines import cgroups


class Witness:
    """The closest counter that there is: of the attempt's cgroup, of our v1 memory cgroup, or of the whole host.

    Chosen once. The host counts the kills of all others too: it is heard only where nobody closer counts.
    """

    def __init__(self, group: Path | None) -> None:
        self._group = group
        self._own = group is not None and cgroups.oom_kills(group) is not None
        self._before = self._count()

    def saw_kill(self) -> bool:
        """Since this witness was made. Ask before the cgroup is removed."""
        return self._count() > self._before

    def _count(self) -> int:
        if self._own and self._group is not None:
            return cgroups.oom_kills(self._group) or 0
        v1 = _own_v1()
        return v1 if v1 is not None else _host()


def _own_v1() -> int | None:
    try:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return _field(Path("/sys/fs/cgroup/memory") / path.lstrip("/") / "memory.oom_control", "oom_kill")
    except OSError:
        pass
    return None


def _host() -> int:
    try:
        return _field(Path("/proc/vmstat"), "oom_kill") or 0
    except OSError:
        return 0


def _field(path: Path, wanted: str) -> int | None:
    for line in path.read_text().splitlines():
        name, _, count = line.partition(" ")
        if name == wanted:
            return int(count)
    return None
