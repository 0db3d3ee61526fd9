"""What the rest of a job will cost, for each choice."""

import itertools

import pytest

from whistlestop.capacity.lifetimes import SPANS, USUAL_DOWN, USUAL_UP
from whistlestop.capacity.outlook import Outlook, Rates, too_late

HOUR = 3600.0
USUAL = Rates(USUAL_UP, USUAL_DOWN, 1.0, 3.0)
ALWAYS = Rates([1e-9] * SPANS, [1.0] * SPANS, 1.0, 3.0)


def test_what_is_kept_for_two_hours_is_the_same_as_what_is_kept_for_all_of_them() -> None:
    whole = Outlook(USUAL, 10 * HOUR, 16 * HOUR, 600.0, horizon=16 * HOUR)
    part = Outlook(USUAL, 10 * HOUR, 16 * HOUR, 600.0, horizon=2 * HOUR)
    for passed, left, up, on in itertools.product((0.0, 0.7, 1.99), (10, 8.5), (True, False), ("idle", "on_demand")):
        asked = (left * HOUR, (16 - passed) * HOUR)
        assert part.covers(*asked, 600.0)
        assert part.costs(*asked, up=up, age=900.0, on=on) == whole.costs(*asked, up=up, age=900.0, on=on)
    assert not part.covers(HOUR, 13.9 * HOUR, 600.0)


def test_spot_that_stays_costs_its_price() -> None:
    """As parts of 20 hours on-demand: ten hours and ten minutes at a third of it."""
    costs = Outlook(ALWAYS, 10 * HOUR, 20 * HOUR, 600.0, horizon=HOUR).costs(
        10 * HOUR, 20 * HOUR, up=True, age=0.0, on="idle"
    )
    assert costs.spot == pytest.approx((10 + 1 / 6) / 3 / 20, rel=0.01)
    # Who pays begins anew on spot as soon as it has begun.
    assert costs.on_demand > costs.spot


def test_what_can_not_be_done_in_time_is_too_late() -> None:
    outlook = Outlook(USUAL, 10 * HOUR, 10.5 * HOUR, 600.0, horizon=HOUR)
    costs = outlook.costs(10 * HOUR, 10.05 * HOUR, up=False, age=0.0, on="idle")
    assert too_late(costs.wait)
    assert too_late(costs.on_demand)
    assert not too_late(outlook.costs(10 * HOUR, 10.05 * HOUR, up=False, age=0.0, on="on_demand").on_demand)


def test_the_older_spot_is_the_less_it_costs_to_take_it() -> None:
    outlook = Outlook(USUAL, 10 * HOUR, 13 * HOUR, 1440.0, horizon=HOUR)
    costs = [outlook.costs(10 * HOUR, 13 * HOUR, up=True, age=age, on="idle").spot for age in (0, 2 * HOUR, 40 * HOUR)]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > 1.05 * costs[-1]


def test_near_the_end_ticks_become_finer() -> None:
    outlook = Outlook(USUAL, 10 * HOUR, 16 * HOUR, 600.0, horizon=16 * HOUR)
    assert outlook.covers(HOUR, 5 * HOUR, 600.0)
    assert not outlook.covers(0.5 * HOUR, 5 * HOUR, 600.0)
    assert outlook.covers(0.5 * HOUR, 9 * HOUR, 600.0)
