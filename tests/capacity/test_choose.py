"""Which pool next, and when one is left for another."""

from typing import Any

import pytest

from whistlestop.capacity.choose import Wants, candidates, for_phase
from whistlestop.capacity.pools import Market, Pool
from whistlestop.capacity.queue import Waiting, plan
from whistlestop.capacity.records import How, Record, Tenure, summed

NOW = 1e6
CHEAP = Pool("cheap", 2, 1.0, market=Market.SPOT, region="here", kind="a100")
DEAR = Pool("dear", 2, 3.0, region="there", kind="a100")
OTHER = Pool("other", 2, 2.0, region="there", kind="h100", rank=1)
POOLS = [DEAR, CHEAP, OTHER]


def names(wants: Wants, records: dict[str, Record] | None = None) -> list[str]:
    return [each.pool.name for each in candidates(wants, POOLS, records or {})]


def reclaiming(every: float, times: int) -> Record:
    tenures = [Tenure("cheap", NOW - (n + 1) * every, NOW - n * every, How.RECLAIMED) for n in range(times)]
    return summed(tenures, Market.SPOT, NOW)


def placed(waiting: Waiting, pools: list[Pool], **given: Any) -> Any:
    [placement] = plan([waiting], pools, now=NOW, **given).placements
    return placement


def test_the_specs_own_order_comes_before_the_price() -> None:
    assert names(Wants(pools=("dear", "cheap"))) == ["dear", "cheap"]
    assert names(Wants()) == ["cheap", "other", "dear"]


@pytest.mark.parametrize(
    ("wants", "found"),
    [
        (Wants(kind="a100"), ["cheap", "dear"]),
        (Wants(region="there"), ["other", "dear"]),
        (Wants(market="on_demand"), ["other", "dear"]),
        (Wants(market="spot", region="there"), []),
    ],
)
def test_class_region_and_market_are_asked_for(wants: Wants, found: list[str]) -> None:
    assert names(wants) == found


def test_rank_then_name_decide_between_equal_prices() -> None:
    alike = [Pool("b", 1, 1.0), Pool("a", 1, 1.0), Pool("z", 1, 1.0, rank=-1)]
    assert [each.pool.name for each in candidates(Wants(), alike, {})] == ["z", "a", "b"]


def test_a_cheap_pool_in_which_little_gets_done_is_dear() -> None:
    found = candidates(Wants(changeover=600), POOLS, {"cheap": reclaiming(600, 8)})
    assert next(each for each in found if each.pool.name == "cheap").effective > 1.5
    assert found[-1].pool.name != "cheap" or found[-1].effective > 3


def test_a_pool_that_reclaims_every_minute_is_left_for_the_next() -> None:
    record = {"cheap": reclaiming(60, 3)}
    found = placed(Waiting("r", "p"), POOLS, records=record)
    assert found.pool == "other"
    assert "not cheap: it took slots back 3 times in the last hour, after 60 s each" in found.why


def test_what_was_more_than_an_hour_ago_is_not_told_as_the_last_hour_s() -> None:
    tenures = [Tenure("cheap", NOW - 4000 - 300 * n, NOW - 3900 - 300 * n, How.RECLAIMED) for n in range(4)]
    found = candidates(Wants(), POOLS, {"cheap": summed(tenures, Market.SPOT, NOW)})
    assert "it took slots back again and again lately, after" in found[0].trouble


def test_many_reclaims_over_long_lives_are_no_trouble() -> None:
    tenures = [Tenure("cheap", NOW - 7200, NOW - 100 * n, How.RECLAIMED) for n in range(10)]
    assert candidates(Wants(), POOLS, {"cheap": summed(tenures, Market.SPOT, NOW)})[0].trouble == ""


def test_the_only_pool_is_used_all_the_same_and_that_is_said() -> None:
    found = placed(Waiting("r", "p"), [CHEAP], records={"cheap": reclaiming(60, 3)})
    assert found.pool == "cheap"
    assert found.why.startswith("the only one that it may use, although it took slots back 3 times")


def test_if_the_others_are_full_the_one_in_trouble_is_used() -> None:
    full = [CHEAP, Pool("dear", 2, 3.0, frozenset({0, 1}))]
    found = placed(Waiting("r", "p"), full, records={"cheap": reclaiming(60, 3)})
    assert found.pool == "cheap"
    assert "no other one can take it now" in found.why
    assert "not dear: 0 of 2 slots free" in found.why


def test_where_next_to_nothing_gets_done_waiting_for_another_is_better() -> None:
    full = [CHEAP, Pool("dear", 2, 3.0, frozenset({0, 1}))]
    waiting = Waiting("r", "p", Wants(changeover=1800))
    made = plan(
        [waiting, Waiting("q", "o", Wants(pools=("cheap",)))], full, now=NOW, records={"cheap": reclaiming(60, 30)}
    )
    assert [each.waiting.run_id for each in made.placements] == ["q"], "and what it does not use is not kept for it"
    assert "cheap" in made.waits["p"]


def test_a_pool_that_took_this_phase_back_is_passed_over_ten_minutes_for_each_time() -> None:
    once, twice = (("cheap", NOW - 60),), (("cheap", NOW - 900), ("cheap", NOW - 60))
    found = candidates(Wants(), POOLS, {})
    assert [bool(each.trouble) for each in for_phase(found, once, NOW)] == [True, False, False]
    assert for_phase(found, once, NOW + 541)[0].trouble == ""
    assert "2 times" in for_phase(found, twice, NOW + 1000)[0].trouble
    assert for_phase(found, twice, NOW + 1141)[0].trouble == ""


def test_leaving_a_pool_is_said_as_such() -> None:
    found = placed(Waiting("r", "p", reclaims=(("cheap", NOW - 60),)), POOLS)
    assert found.pool == "other"
    assert found.left.startswith("pool cheap is left for other: this phase's slots were taken back there once")


def test_the_pool_that_was_left_is_that_of_the_last_attempt_whatever_the_clock_says() -> None:
    found = placed(Waiting("r", "p", reclaims=(("cheap", NOW - 60), ("other", NOW - 62))), POOLS)
    assert found.left.startswith("pool other is left for dear: ")
