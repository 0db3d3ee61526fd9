"""Lengths of time as people write them: "90s", "10m", "2 hours", "1d12h", or a number of seconds."""

import math
import re
from datetime import timedelta

LONGEST = timedelta(days=3650)

_UNITS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_WORDS = r"w(?:eeks?)?|d(?:ays?)?|h(?:ours?)?|m(?:in(?:utes?)?)?|s(?:ec(?:onds?)?)?"
_PART = re.compile(rf"([0-9]{{1,12}}(?:\.[0-9]{{1,9}})?)\s*({_WORDS})(?![a-z])")
_SHAPE = re.compile(rf"(?:{_PART.pattern}\s*)+")
FORMS = '"90s", "10m", "2 hours", "1d12h" or a number of seconds'


def parse_duration(value: str | int | float) -> timedelta:
    """Raise ValueError with words for a person."""
    seconds = _seconds(value)
    if seconds < 0:
        raise ValueError("a length of time can't be negative")
    if not seconds <= LONGEST.total_seconds():  # also catches what is not a number
        raise ValueError("longer than ten years")
    return timedelta(seconds=seconds)


def _seconds(value: str | int | float) -> float:
    if isinstance(value, int | float):
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(f"not a length of time; write {FORMS}")
        return float(value)
    text = value.strip().lower()
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text):
        return float(text)
    if len(text) > 60 or not _SHAPE.fullmatch(text):
        raise ValueError(f"not a length of time; write {FORMS}")
    parts = _PART.findall(text)
    units = [unit[0] for _, unit in parts]
    if len(set(units)) != len(units):
        raise ValueError("the same unit is given twice")
    return sum(float(number) * _UNITS[unit[0]] for number, unit in parts)
