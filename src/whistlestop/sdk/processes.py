"""Whether a process still lives. Its number alone does not tell: numbers are given away again."""

import os
import time
from pathlib import Path

_PROC = Path("/proc/self/stat").exists()
_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def uptime() -> float:
    """Seconds, on a clock that all processes of this machine share and nobody sets."""
    return time.clock_gettime(_BOOT) if _BOOT is not None and _PROC else time.time()


_IMPORTED = uptime()


def process_began() -> float:
    """When this process was started, by `uptime`."""
    if not _PROC:
        return _IMPORTED
    return started(os.getpid()) / os.sysconf("SC_CLK_TCK")


def started(process: int) -> int:
    """The tick in which it was started; 0: it does not live, or this system does not say."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


def lives(process: int, since: int = 0) -> bool:
    """`since`: what `started` said of it, if it did."""
    if _PROC:
        now = started(process)
        return now > 0 and since in (0, now)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
