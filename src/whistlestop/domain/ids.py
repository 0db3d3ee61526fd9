"""Ids: short, sortable by time, safe in file names and URLs."""

import os
import time
from typing import NewType

RunId = NewType("RunId", str)
PhaseId = NewType("PhaseId", str)
AttemptId = NewType("AttemptId", str)

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford: no i, l, o, u


def _encode(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 32)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def new_id(prefix: str) -> str:
    """`r-` + 9 digits of milliseconds + 7 random digits (35 bits)."""
    millis = int(time.time() * 1000)
    return f"{prefix}-{_encode(millis, 9)}{_encode(int.from_bytes(os.urandom(5), 'big') >> 5, 7)}"
