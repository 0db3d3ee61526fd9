"""Text and data from programs, made storable: whatever they wrote, it must not stop their run from being told of."""

import math
from collections.abc import Sequence
from typing import Any

MOST_TEXT = 4000
MOST_NAME = 500  # a metric's name is part of a key, and PostgreSQL's keys have a limit
DEPTH = 8
SHORTEST_SECRET = 4  # shorter ones would blank out ordinary words
_BIG = 2**63


def text(value: object, most: int = MOST_TEXT) -> str:
    """Valid UTF-8 without NUL (PostgreSQL takes none), and not endless."""
    plain = str(value)[:most].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return plain.encode("utf-8", "replace").decode("utf-8")


def name(value: str) -> str:
    return text(value, MOST_NAME)


def data(value: Any, depth: int = DEPTH) -> Any:
    """JSON that every database takes: no NaN, no number that a column can't hold, no bottomless nesting."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_BIG <= value < _BIG else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return text(value)
    if depth <= 0:
        return "…"
    if isinstance(value, dict):
        return {text(key, MOST_NAME): data(item, depth - 1) for key, item in list(value.items())[:1000]}
    if isinstance(value, list | tuple):
        return [data(item, depth - 1) for item in value[:1000]]
    return text(value)


def masked(value: Any, secrets: Sequence[str]) -> Any:
    """Cleaned data without these words in it."""
    if isinstance(value, str):
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                value = value.replace(secret, "***")
        return value
    if isinstance(value, dict):
        return {masked(key, secrets): masked(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item, secrets) for item in value]
    return value
