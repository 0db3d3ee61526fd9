"""Whatever a policy says and whatever the pools do: never late, and never cheaper than the optimum in hindsight."""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from whistlestop.capacity.deadline import (
    Greedy,
    Job,
    Learned,
    Moment,
    Offer,
    OnDemandOnly,
    Policy,
    UniformProgress,
    safely,
)
from whistlestop.capacity.hindsight import optimum
from whistlestop.capacity.simulation import simulate
from whistlestop.capacity.traces import Trace

MINUTE = 60.0
DEAR = 3.0  # credits per hour; spot costs 0.5 to 2


@dataclass
class Whimsical:
    """Says anything at any time: what is not up, too."""

    seed: int

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def choose(self, job: Job, moment: Moment) -> str | None:
        return self._chance.choice([None, "nowhere", moment.on, *(each.name for each in moment.offers)])


class Stubborn:
    """Takes spot whenever there is some, and else waits; also off what it pays for."""

    def choose(self, job: Job, moment: Moment) -> str | None:
        return next((each.name for each in moment.offers if each.spot and each.up), None)


policies = some.one_of(
    some.sampled_from([Greedy(), UniformProgress(), UniformProgress(0), OnDemandOnly(), Stubborn(), Learned()]),
    some.builds(Whimsical, some.integers(0, 10**6)),
)
seconds_of_changeover = some.one_of(some.sampled_from([0.0, 30, 60, 90, 180, 720]), some.floats(0, 900))
lives = some.lists(some.integers(1, 60), min_size=2, max_size=20)


@some.composite
def pools(draw: some.DrawFn) -> list[Trace]:
    found = []
    for index in range(draw(some.integers(1, 3))):
        states = itertools.cycle([True, False] if draw(some.booleans()) else [False, True])
        looks = [state for length, state in zip(draw(lives), states, strict=False) for _ in range(length)]
        gap = draw(some.sampled_from([60.0, 195.0]))
        found.append(Trace(f"spot-{index}", gap, looks, draw(some.sampled_from([0.5, 1.0, 2.0]))))
    return found


@some.composite
def jobs(draw: some.DrawFn) -> Job:
    """That on-demand can do in time, be it to the second."""
    work, changeover = draw(some.floats(30, 12_000)), draw(seconds_of_changeover)
    spare = draw(some.one_of(some.just(0.0), some.floats(0, 12_000)))
    return Job(work, work + changeover + spare, changeover)


def check(traces: Sequence[Trace], job: Job, policy: Policy) -> None:
    outcome = simulate(job, traces, policy, on_demand=DEAR)
    assert outcome.finished is not None
    assert outcome.finished <= job.time + 1e-3
    least = optimum(job, traces, on_demand=DEAR)
    assert least <= outcome.cost + 1e-9
    assert least <= DEAR * (job.work + job.changeover) / 3600 + 1e-9


@settings(max_examples=150, deadline=None)
@given(pools(), jobs(), policies)
def test_no_policy_misses_a_deadline_that_on_demand_can_keep_nor_beats_hindsight(
    traces: list[Trace], job: Job, policy: Policy
) -> None:
    check(traces, job, policy)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, deadline=None)
@given(pools(), jobs(), policies)
def test_nor_does_one_in_ten_thousand(traces: list[Trace], job: Job, policy: Policy) -> None:
    check(traces, job, policy)


@settings(max_examples=60, deadline=None)
@given(some.lists(some.booleans(), min_size=7, max_size=7), some.integers(1, 4), some.sampled_from([0, 1, 2]))
def test_the_optimum_is_what_trying_everything_finds(minutes: list[bool], work: int, changeover: int) -> None:
    job = Job(work * MINUTE, 7 * MINUTE, changeover * MINUTE)
    found = optimum(job, [Trace("spot", MINUTE, minutes)], on_demand=DEAR)
    assert found == pytest.approx(_tried(minutes, work, changeover) / 60, abs=1e-9)


def _tried(minutes: Sequence[bool], work: int, changeover: int) -> float:
    """All sequences of waiting, spot and on-demand, minute by minute; the first minutes anywhere bring nothing."""
    best = math.inf
    for plan in itertools.product("-so", repeat=len(minutes)):
        if any(on == "s" and not up for on, up in zip(plan, minutes, strict=True)):
            continue
        left, cost, before, starting = work, 0.0, "-", 0
        for on in plan:
            if left == 0:
                break
            starting = changeover if on != before else starting
            cost += {"-": 0.0, "s": 1.0, "o": DEAR}[on]
            left -= on != "-" and starting == 0
            starting, before = max(0, starting - 1), on
        if left == 0:
            best = min(best, cost)
    return best


def test_what_nothing_can_do_in_time_has_no_price() -> None:
    assert optimum(Job(3600, 3000, 60), [], on_demand=DEAR) == math.inf


def test_a_part_of_a_minute_costs_a_part_of_its_price() -> None:
    """Half a minute of changeover, 100 seconds of work: 130 seconds are paid for, by hindsight and in truth."""
    job, trace = Job(100, 400, 30), Trace("spot", MINUTE, [True] * 10)
    assert optimum(job, [trace], on_demand=DEAR) == pytest.approx(130 / 3600)
    outcome = simulate(job, [trace], Greedy(), on_demand=DEAR)
    assert (outcome.cost, outcome.finished) == (pytest.approx(130 / 3600), 130)


def test_without_on_demand_a_deadline_can_be_missed_by_a_second() -> None:
    trace = Trace("spot", MINUTE, [True] * 10)
    assert simulate(Job(100, 130, 30), [trace], Greedy(), on_demand=None).finished == 130
    assert simulate(Job(100, 129, 30), [trace], Greedy(), on_demand=None).late


def test_work_that_turns_out_to_be_more_leaves_spot_while_on_demand_can_still_do_it() -> None:
    job, offers = Job(3600, 7200, 300), [Offer("spot", 1.0, True), Offer("firm", 3.0, False)]

    def at(left: float) -> str | None:
        return safely(Greedy(), job, Moment(3600, left, "spot", offers, look=60))

    assert at(3600 - 360) == "spot"  # 300 s and a look to spare
    assert at(3600 - 330) == "firm"
    assert at(3600 - 300) == "firm"
    assert at(3600 - 299) == "spot"  # too late for that: it may still make it here


def test_spot_is_entered_only_with_time_for_two_changeovers() -> None:
    job, offers = Job(3600, 7200, 300), [Offer("spot", 1.0, True), Offer("firm", 3.0, False)]

    def at(left: float, on: str | None) -> str | None:
        return safely(Stubborn(), job, Moment(3600, left, on, offers, look=60))

    for on in (None, "firm"):
        assert at(3600 - 660, on) == "spot"
        assert at(3600 - 659, on) == "firm"


def test_the_work_that_a_loss_takes_back_needs_its_time_too() -> None:
    job, offers = Job(3600, 7200, 300), [Offer("spot", 1.0, True), Offer("firm", 3.0, False)]

    def at(left: float, on: str | None) -> str | None:
        return safely(Stubborn(), job, Moment(3600, left, on, offers, look=60, risk=120))

    assert at(3600 - 780, None) == "spot"
    assert at(3600 - 779, None) == "firm"
    assert at(3600 - 480, "spot") == "spot"
    assert at(3600 - 479, "spot") == "firm"
    assert at(3600 - 300, "spot") == "firm"
    assert at(3600 - 299, "spot") == "spot"  # too late for that: it may still make it here
