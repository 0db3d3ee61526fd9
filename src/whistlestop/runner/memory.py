"""Whether the kernel killed for lack of memory: counters that only ever rise, read before and after."""

from pathlib import Path

from whistlestop.engines import cgroups


def oom_kills(group: Path | None) -> int:
    """Kills counted by everybody who counts them here: the attempt's cgroup, our v1 memory cgroup, the host."""
    return (cgroups.oom_kills(group) if group is not None else 0) + _own_v1() + _host()


def _own_v1() -> int:
    try:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                control = Path("/sys/fs/cgroup/memory") / path.lstrip("/") / "memory.oom_control"
                return _field(control, "oom_kill")
    except OSError:
        pass
    return 0


def _host() -> int:
    try:
        return _field(Path("/proc/vmstat"), "oom_kill")
    except OSError:
        return 0


def _field(path: Path, wanted: str) -> int:
    for line in path.read_text().splitlines():
        name, _, count = line.partition(" ")
        if name == wanted:
            return int(count)
    return 0
