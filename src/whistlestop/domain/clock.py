"""Time as a parameter. Times are aware UTC; on the wire and in the store they are Unix seconds."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], float]  # Unix seconds

now: Clock = time.time


def utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def iso(seconds: float) -> str:
    """2026-11-15T22:01:07.123Z"""
    return utc(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")
