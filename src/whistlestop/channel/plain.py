"""What people and programs hand us, as JSON can carry it to every reader: no half characters, no NaN, no huge numbers.

Python's own JSON would let all of these through, and the database at the other end would refuse the whole batch.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

NAME_LENGTH: Final = 500  # of a metric
_INTEGER: Final = 1 << 63  # what a database's integers end at


def plain_text(text: str) -> str:
    """File names that are not UTF-8 come as lone surrogates: those, and NUL, are replaced."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def plain_name(name: str) -> str:
    """The name of a metric."""
    return plain_text(name)[:NAME_LENGTH]


def plain_value(value: Any) -> Any:
    """All the way down. What JSON does not know is left as it is: whoever encodes it says so."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_INTEGER <= value < _INTEGER else _as_float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {plain_text(key) if isinstance(key, str) else key: plain_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in value]
    return value


def _as_float(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
