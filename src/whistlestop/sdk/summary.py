"""The program's summary as the server can take it: whatever people put in, something comes out."""

import math
from collections.abc import Mapping
from typing import Any


def plain_summary(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON can carry them; what is neither number, truth value nor text is told as text."""
    plain: dict[str, Any] = {}
    for name, value in summary.items():
        if value is None or isinstance(value, str | bool):
            plain[str(name)] = value
            continue
        try:
            if isinstance(value, int) and abs(value) < 1 << 63:
                plain[str(name)] = value
                continue
            number = float(value)
            plain[str(name)] = number if math.isfinite(number) else str(number)
        except OverflowError:
            plain[str(name)] = "inf" if value > 0 else "-inf"
        except Exception:
            plain[str(name)] = _text_of(value)
    return plain


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"{type(value).__name__} that can't be shown: {error!r}"
