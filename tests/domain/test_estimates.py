"""An estimate says how well it is known."""

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from whistlestop.domain.estimates import Pace, seconds_between


def seen(paces: list[float], steps: int = 10) -> Pace:
    pace, step, at = Pace(), 0, 1000.0
    for seconds in [0.0, *paces]:
        step, at = step + (steps if seconds else 0), at + seconds * steps
        pace = pace.told(step, at)
    return pace


def test_two_reports_are_needed_and_an_even_pace_leaves_no_doubt() -> None:
    assert seconds_between(None, 100, 50.0) is None
    assert seconds_between(seen([0.5]), 100, 50.0) is None
    assert seconds_between(seen([0.5, 0.5, 0.5]), 100, 50.0) == (pytest.approx(50.0), pytest.approx(50.0))
    assert seconds_between(seen([0.5, 0.7]), 0, 0.0) == (0.0, 0.0)


def test_it_is_wide_at_first_and_narrow_later() -> None:
    dice, widths = random.Random(1), []
    paces = [dice.uniform(0.5, 1.5) for _ in range(200)]
    for count in (2, 5, 20, 200):
        between = seconds_between(seen(paces[:count]), 1000, 1000.0)
        assert between is not None
        low, high = between
        assert low <= 1000.0 <= high
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 1000
    assert widths[-1] < 150


def test_nine_of_ten_runs_end_inside_of_it() -> None:
    dice, inside = random.Random(2), 0
    for _ in range(400):
        paces = [dice.gauss(1.0, 0.2) for _ in range(30)]
        early, left = seen(paces[:6]), 240
        between = seconds_between(early, left, early.mean * left)
        assert between is not None
        inside += between[0] <= 10 * sum(paces[6:]) <= between[1]
    assert 340 <= inside <= 390


@given(st.lists(st.tuples(st.integers(0, 2**53), st.floats(allow_nan=True)), max_size=20), st.integers(0, 10**6))
def test_whatever_is_told_the_likely_one_lies_between(reports: list[tuple[int, float]], left: int) -> None:
    pace = Pace()
    for step, at in reports:
        pace = pace.told(step, at)
    between = seconds_between(pace, left, 10.0)
    assert between is None or 0.0 <= between[0] <= 10.0 <= between[1]
