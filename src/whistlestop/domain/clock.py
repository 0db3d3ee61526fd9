"""Time as a parameter. Times are aware UTC; on the wire and in the store they are Unix seconds."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], float]  # Unix seconds

now: Clock = time.time
LATEST = 1e11  # Unix seconds, in the year 5138: a later time was made up, and 0 stands for all before it


def utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def clipped(seconds: float) -> float:
    """A time that can be told, whatever a program has said; also of NaN."""
    return min(max(0.0, seconds), LATEST)


def measured(value: object) -> float | None:
    """Seconds that something took, as a runner has said it. None: that is no length of time."""
    return float(value) if isinstance(value, int | float) and value >= 0 else None


def iso(seconds: float) -> str:
    """2026-11-15T22:01:07.123Z"""
    return utc(clipped(seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
