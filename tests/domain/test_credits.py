"""The ledger adds up."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from whistlestop.domain import credits
from whistlestop.domain.credits import Charge


def test_killed_at_12_of_60_minutes_of_a_10_credit_run_is_2_used_and_8_saved() -> None:
    spent = credits.used([Charge(1, 10.0, since=0, until=None)], now=12 * 60)
    whole = credits.estimated(spent, [(10.0, 48 * 60.0)])
    assert spent == pytest.approx(2.0)
    assert whole == pytest.approx(10.0)
    assert credits.saved(whole, spent) == pytest.approx(8.0)


def test_what_is_not_known_is_not_made_up() -> None:
    assert credits.estimated(1.0, [(2.0, 10.0), (2.0, None)]) is None
    assert credits.saved(None, 1.0) is None


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0, 100), st.floats(0, 1e6), st.floats(0, 1e6)), max_size=20))
def test_splitting_an_attempt_in_two_costs_the_same(parts: list[tuple[int, float, float, float]]) -> None:
    whole = [Charge(slots, price, since, since + length) for slots, price, since, length in parts]
    halves = [
        half
        for charge in whole
        if charge.until is not None
        for half in (
            Charge(charge.slots, charge.price, charge.since, (charge.since + charge.until) / 2),
            Charge(charge.slots, charge.price, (charge.since + charge.until) / 2, charge.until),
        )
    ]
    assert credits.used(halves, 0) == pytest.approx(credits.used(whole, 0), rel=1e-6, abs=1e-6)


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_an_ended_attempt_costs_the_same_whenever_one_looks(early: float, late: float) -> None:
    charge = Charge(2, 3.0, since=100.0, until=200.0)
    assert charge.credits(early) == charge.credits(late)
