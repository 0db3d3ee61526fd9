"""Lengths of time as people write them."""

import math
from datetime import timedelta

import pytest

from whistlestop.wire.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1d12h", 129600),
        ("1d 12h", 129600),
        ("1.5h", 5400),
        ("2 min", 120),
        ("12 hours", 43200),
        ("1 hour 30 minutes", 5400),
        ("1 week", 604800),
        ("45", 45),
        (45, 45),
        (0.5, 0.5),
        (0, 0),
    ],
)
def test_a_length_of_time_is_read_in_every_form(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "10 parsecs",
        "1h1h",
        "1h1 hour",
        "5 mins",
        "3 ho",
        "-5s",
        -1,
        math.nan,
        math.inf,
        1e30,
        "9" * 13,
        "1m" * 100,
        "99999d",
    ],
)
def test_anything_else_is_refused_with_words(text: str | float) -> None:
    with pytest.raises(ValueError, match=r"length of time|negative|ten years|twice"):
        parse_duration(text)
