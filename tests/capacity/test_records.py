"""How pools have treated those who were on them."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from whistlestop.capacity.pools import Market
from whistlestop.capacity.records import How, Tenure, summed, unnoticed_rate

HOUR = 3600.0
NOW = 1e6


def stays(seconds: float, how: How = How.OTHERWISE, *, ago: float = 0.0, saved: bool = False) -> Tenure:
    return Tenure("a", NOW - ago - seconds, NOW - ago, how, saved_at_end=saved)


tenures = st.lists(st.builds(stays, st.floats(0, 1e5), st.sampled_from(How), ago=st.floats(0, 1e5)), max_size=30)


def test_a_pool_without_a_record_is_taken_for_one_that_reclaims_every_two_hours() -> None:
    assert unnoticed_rate([], NOW) == pytest.approx(1 / (2 * HOUR))


def test_the_record_outweighs_the_assumption_after_some_hours() -> None:
    calm = unnoticed_rate([stays(98 * HOUR)], NOW)
    harsh = unnoticed_rate([stays(0.5 * HOUR, How.LOST)] * 20, NOW)
    assert calm == pytest.approx(1 / (100 * HOUR))
    assert harsh == pytest.approx(21 / (12 * HOUR))


def test_a_loss_that_was_announced_in_time_for_a_save_is_not_counted() -> None:
    noticed = [stays(HOUR, How.RECLAIMED, saved=True)] * 5
    assert unnoticed_rate(noticed, NOW) == pytest.approx(1 / (7 * HOUR))


def test_what_a_pool_takes_back_at_once_is_one_reclaim() -> None:
    at_once = summed([stays(HOUR, How.RECLAIMED, ago=10.0)] * 8, Market.SPOT, NOW)
    assert at_once.reclaims == pytest.approx(1.0, abs=0.01)
    assert at_once.last_hour == 1


def test_what_is_long_ago_counts_less() -> None:
    now = summed([stays(60, How.RECLAIMED)], Market.SPOT, NOW)
    then = summed([stays(60, How.RECLAIMED, ago=2 * HOUR)], Market.SPOT, NOW)
    assert then.reclaims == pytest.approx(now.reclaims / 4)
    assert then.rate < now.rate
    assert (now.last_hour, then.last_hour) == (1, 0)
    assert then.life == pytest.approx(now.life, rel=0.01), "the life itself is as short as it was"


def test_spot_is_expected_to_go_and_on_demand_to_stay() -> None:
    assert summed([], Market.SPOT, NOW).rate == pytest.approx(1 / (12 * HOUR))
    assert summed([], Market.ON_DEMAND, NOW).rate < 1 / (500 * HOUR)
    assert summed([], Market.SPOT, NOW).life == math.inf


@given(tenures)
def test_it_is_a_rate_whatever_the_record_says_and_every_further_loss_raises_it(record: list[Tenure]) -> None:
    rate = unnoticed_rate(record, NOW)
    assert 0 < rate < float("inf")
    more = [*record, Tenure("a", NOW, NOW, How.LOST)]
    assert unnoticed_rate(more, NOW) > rate
    assert summed(more, Market.SPOT, NOW).rate > summed(record, Market.SPOT, NOW).rate > 0
