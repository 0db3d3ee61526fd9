"""Shapes of /api/v1 about logs as a whole; lines and pages of them are in `wire.api`."""

from whistlestop.wire.api import Shape


class LogSize(Shape):
    """How much one attempt has written."""

    attempt: int
    phase: str
    lines: int
    dropped: int = 0  # lines that the log limit cut
