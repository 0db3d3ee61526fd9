"""What a phase with a deadline is told, and why; and a pool's record from what a server has written down."""

import pytest

from whistlestop.capacity.advising import Case, advise, spoken
from whistlestop.capacity.deadline import Greedy, Job, Learned, Offer, Policy
from whistlestop.capacity.observing import observed

HOUR, MINUTE = 3600.0, 60.0


def case(left: float, time: float, *, on: str | None = None, spot: bool = True, firm: bool = True) -> Case:
    """`time` to the deadline, after ten hours."""
    offers = [Offer("cheap", 1 / HOUR, True, spot), Offer("sure", 3 / HOUR, False, firm)]
    return Case(Job(10 * HOUR, 10 * HOUR + time, 4 * MINUTE), 10 * HOUR, left, offers, on)


@pytest.mark.parametrize("policy", [Greedy(), Learned()])
def test_with_time_enough_it_is_spot(policy: Policy) -> None:
    advice = advise(policy, case(3 * HOUR, 9 * HOUR))
    assert (advice.pool, advice.escalates) == ("cheap", False)
    assert advice.why == "spot is the cheapest way to its deadline: 3 h of work in 9 h"


@pytest.mark.parametrize("policy", [Greedy(), Learned()])
def test_with_time_enough_and_no_spot_it_waits(policy: Policy) -> None:
    advice = advise(policy, case(HOUR, 19 * HOUR, spot=False))
    assert advice.pool is None
    assert advice.why == "waits for spot, which costs less: 1 h of work in 19 h"


@pytest.mark.parametrize("spot", [True, False])
def test_without_time_for_two_moves_it_is_on_demand(spot: bool) -> None:
    advice = advise(Greedy(), case(3 * HOUR + 10 * MINUTE, 3 * HOUR + 17 * MINUTE, spot=spot))
    assert (advice.pool, advice.escalates) == ("sure", True)
    assert advice.why == (
        "spot can't make the deadline: 3 h 10 min of work in 3 h 17 min, a move costs 4 min: "
        "on-demand pool sure from here on"
    )


def test_who_pays_stays_where_it_is_without_a_word() -> None:
    advice = advise(Greedy(), case(3 * HOUR, 3 * HOUR + 5 * MINUTE, on="sure"))
    assert (advice.pool, advice.why) == ("sure", "")


def test_when_on_demand_is_full_spot_is_all_there_is() -> None:
    assert advise(Learned(), case(3 * HOUR, 3 * HOUR, firm=False)).pool == "cheap"
    assert advise(Learned(), case(3 * HOUR, 3 * HOUR, firm=False, spot=False)).pool is None


def test_spot_that_hardly_comes_is_not_waited_for() -> None:
    """What is paid for now leaves time to take spot when it comes; who has waited for it must pay for all."""
    record = observed([(hour * HOUR, int(hour % 60 == 59)) for hour in range(540)], [], needs=1)
    offers = [Offer("cheap", 1 / HOUR, True, False), Offer("sure", 3 / HOUR, False)]
    job = Job(10 * HOUR, 10 * HOUR + 20 * MINUTE, 4 * MINUTE, began=570 * HOUR)
    advice = advise(Learned({"cheap": record}), Case(job, HOUR, 9 * HOUR, offers, None))
    assert (advice.pool, advice.escalates) == ("sure", True)
    assert advice.why.startswith("spot will hardly be back in time: 9 h of work in 9 h 20 min, a move costs 4 min")


def test_a_pool_is_there_while_it_has_the_slots() -> None:
    record = observed([(0, 8), (1000, 3), (1600, 4), (4000, 0)], [], needs=4)
    assert sum(record.up.at_risk) == 1000 + 2400
    assert sum(record.up.ends) == 2
    assert (sum(record.down.ends), sum(record.down.at_risk)) == (1, 600)
    assert record.age(4500) == 500


@pytest.mark.parametrize(
    ("work", "time"),
    [(5, 300), (0.5, 300), (60, 300), (1, 86_400), (14_400, 144_000), (300, 200_000), (3000, 200_000), (10, 300_000)],
)
def test_short_ones_take_the_spot_there_is(work: float, time: float) -> None:
    """Whatever the grid of the outlook is."""
    offers = [Offer("cheap", 1 / HOUR, True), Offer("sure", 9 / HOUR, False)]
    assert advise(Learned(), Case(Job(work, time, 2.0), 0.0, work, offers, None)).pool == "cheap"


def test_slots_that_are_taken_back_end_its_life_though_its_size_stays() -> None:
    record = observed([(0, 4)], [300, 500], needs=4)
    assert (sum(record.up.ends), sum(record.up.at_risk)) == (2, 500)
    assert record.age(800) == 300


def test_a_loss_that_comes_with_a_change_of_size_counts_once() -> None:
    record = observed([(0, 4), (1000, 0)], [990, 1060], needs=4)
    assert sum(record.up.ends) == 1


def test_of_nothing_nothing_is_known() -> None:
    record = observed([], [], needs=1)
    assert sum(record.up.at_risk) == 0
    assert record.age(10.0) == 3600


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0 s"), (30, "30 s"), (99, "99 s"), (100, "2 min"), (3599, "1 h"), (11400, "3 h 10 min"), (360000, "100 h")],
)
def test_lengths_as_they_are_said(seconds: float, words: str) -> None:
    assert spoken(seconds) == words
