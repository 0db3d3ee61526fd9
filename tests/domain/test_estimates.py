"""An estimate says how well it is known."""

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from whistlestop.domain.estimates import MOST, WARM_UP, Left, Pace, seconds_left


def seen(paces: list[float], steps: int = 10) -> Pace:
    pace, step, at = Pace().told(0, 1000.0), 0, 1000.0
    for seconds in paces:
        step, at = step + steps, at + seconds * steps
        pace = pace.told(step, at)
    return pace


def test_nothing_is_told_before_it_is_warm() -> None:
    assert seconds_left(None, 100) is None
    assert seconds_left(Pace(), 100) is None
    assert seconds_left(seen([0.5], steps=WARM_UP - 1), 100) is None
    assert seconds_left(seen([0.5, 0.7]), 0) == Left(0.0, 0.0, 0.0)


def test_an_even_pace_goes_on_and_is_known_better_than_an_uneven_one() -> None:
    even, uneven = seconds_left(seen([0.5] * 20), 100), seconds_left(seen([0.1, 0.9] * 10), 100)
    assert even is not None
    assert uneven is not None
    assert even.likely == pytest.approx(50.0)
    assert even.low < 50.0 < even.high
    assert uneven.high - uneven.low > 1.5 * (even.high - even.low)


def test_it_is_wide_at_first_and_narrow_later() -> None:
    dice, widths = random.Random(1), []
    paces = [dice.uniform(0.5, 1.5) for _ in range(200)]
    for count in (3, 20, 200):
        left = seconds_left(seen(paces[:count]), 1000)
        assert left is not None
        assert left.low <= left.likely <= left.high
        widths.append(left.high - left.low)
    assert widths == sorted(widths, reverse=True)


def test_a_slowdown_moves_it_and_a_slow_first_step_does_not() -> None:
    before, after = seconds_left(seen([1.0] * 40), 100), seconds_left(seen([1.0] * 20 + [2.0] * 20), 100)
    assert before is not None
    assert after is not None
    assert after.likely > 1.5 * before.likely
    cold = seconds_left(seen([30.0] + [1.0] * 40), 100)
    assert cold is not None
    assert cold.likely == pytest.approx(before.likely)


def test_a_long_history_is_thinned_and_says_the_same() -> None:
    dice = random.Random(3)
    paces = [dice.uniform(0.5, 1.5) for _ in range(20_000)]
    pace = seen(paces, steps=1)
    assert len(pace.history) <= MOST + 1
    left = seconds_left(pace, 1000)
    assert left is not None
    assert left.likely == pytest.approx(1000, rel=0.05)


def test_after_a_step_back_it_is_another_history() -> None:
    pace = seen([5.0] * 20).told(50, 3000.0)
    assert pace.history == ((50, 3000.0),)
    for step in range(60, 200, 10):
        pace = pace.told(step, 3000.0 + step - 50)
    left = seconds_left(pace, 100)
    assert left is not None
    assert left.likely == pytest.approx(100)


@given(st.lists(st.tuples(st.integers(0, 2**53), st.floats(allow_nan=True)), max_size=20), st.integers(0, 10**6))
def test_whatever_is_told_the_likely_one_lies_between(reports: list[tuple[int, float]], steps: int) -> None:
    pace = Pace()
    for step, at in reports:
        pace = pace.told(step, at)
    left = seconds_left(pace, steps)
    assert left is None or 0.0 <= left.low <= left.likely <= left.high
