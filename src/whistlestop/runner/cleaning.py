"""What the program wrote, made fit for a frame: nothing that it can say may keep the runner from reporting."""

import math
from typing import Any

TEXT_LIMIT = 4096  # characters of one text
DEPTH_LIMIT = 6
COUNT_LIMIT = 10_000  # values in one field of an event
SIZE_LIMIT = 256 << 10  # characters in one field of an event
_LARGEST = 1 << 63
_CUT = "…"


def clean_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """Without halves of characters (UTF-8 has no room for them) and NULs (databases have none), and not too long."""
    if len(text) > limit:
        text = text[: limit - 1] + _CUT
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\ufffd")


def clean_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """An event's data. Each field has a budget of its own: one that overflows costs no other."""
    return {clean_text(name): _Cleaner().value(value, DEPTH_LIMIT) for name, value in fields.items()}


class _Cleaner:
    def __init__(self) -> None:
        self._count = COUNT_LIMIT
        self._size = SIZE_LIMIT

    def value(self, value: Any, depth: int) -> Any:
        self._count -= 1
        if value is None or isinstance(value, bool) or depth == 0 or self._count < 0:
            return value if isinstance(value, bool) else None
        if isinstance(value, int):
            return int(value) if -_LARGEST <= value < _LARGEST else _as_float(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, dict):
            return {self._text(key): self.value(each, depth - 1) for key, each in value.items() if self._count > 0}
        if isinstance(value, (list, tuple)):
            return [self.value(each, depth - 1) for each in value if self._count > 0]
        return self._text(value)

    def _text(self, value: object) -> str:
        text = clean_text(str(value), max(1, min(TEXT_LIMIT, self._size)))
        self._size -= len(text)
        return text


def _as_float(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
