"""Spot or on-demand under a deadline: what each policy does. That none is ever late: test_never_late.py."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from whistlestop.capacity.deadline import (
    Greedy,
    Job,
    Learned,
    Moment,
    Offer,
    OnDemandOnly,
    UniformProgress,
    safely,
)
from whistlestop.capacity.simulation import TICK, Outcome, simulate
from whistlestop.capacity.traces import Trace

MINUTE, HOUR = 60.0, 3600.0
DEAR = 3.0  # credits per hour; spot costs 1


def made_of(lengths: Sequence[int], *, up: bool, name: str = "spot") -> Trace:
    """Minutes that it is there, and not, in turn; then for ever the last."""
    states = itertools.cycle([up, not up])
    minutes = [state for length, state in zip(lengths, states, strict=False) for _ in range(length)]
    return Trace(name, MINUTE, minutes + [minutes[-1]] * 600)


def test_with_time_to_spare_nothing_is_paid_for() -> None:
    trace = made_of([90] * 40, up=True)
    job = Job(10 * HOUR, 40 * HOUR, 3 * MINUTE)
    for policy in (Greedy(), UniformProgress(), Learned()):
        outcome = simulate(job, [trace], policy, on_demand=DEAR)
        if not isinstance(policy, UniformProgress):
            assert outcome.cost == pytest.approx(outcome.on_spot / HOUR)
        assert outcome.cost < 0.6 * DEAR * 10


def test_without_a_minute_to_spare_it_is_on_demand_from_the_start() -> None:
    job = Job(2 * HOUR, 2 * HOUR + 4 * MINUTE, 3 * MINUTE)
    for policy in (Greedy(), UniformProgress(), Learned()):
        outcome = simulate(job, [made_of([500], up=True)], policy, on_demand=DEAR)
        assert [piece.on for piece in outcome.pieces if piece.working] == ["on-demand"]


def test_spot_that_goes_after_minutes_is_not_worth_its_changeovers() -> None:
    """The one that learns sees that, the others pay for it."""
    job = Job(20 * HOUR, 23 * HOUR, 12 * MINUTE)
    trace = made_of([13, 25] * 60, up=True)
    learned = simulate(job, [trace], Learned(), on_demand=DEAR, start=0.0)
    uniform = simulate(job, [trace], UniformProgress(), on_demand=DEAR)
    assert learned.cost < uniform.cost


def test_of_two_pools_the_one_that_stays_is_taken() -> None:
    stays, goes = made_of([3000], up=True, name="stays"), made_of([20, 5] * 120, up=True, name="goes")
    outcome = simulate(Job(10 * HOUR, 20 * HOUR, 6 * MINUTE), [goes, stays], Learned(), on_demand=DEAR)
    assert outcome.pieces[-1].on == "stays"
    assert outcome.preemptions <= 2


def moment(now: float, left: float, on: str | None, *, up: bool = True, starting: float = 0.0) -> Moment:
    offers = [Offer("spot", 1 / HOUR, True, up), Offer("firm", 3 / HOUR, False)]
    return Moment(now, left, on, offers, TICK, starting)


def test_who_is_on_spot_stays_there() -> None:
    job = Job(HOUR, 1.2 * HOUR, MINUTE)
    assert safely(OnDemandOnly(), job, moment(600, HOUR - 600, "spot")) == "spot"


def test_uniform_progress_by_the_letter() -> None:
    job, policy = Job(10 * HOUR, 20 * HOUR, 6 * MINUTE), UniformProgress()
    ahead, behind = 4.9 * HOUR, 5.1 * HOUR  # of work left, after ten hours
    assert policy.choose(job, moment(10 * HOUR, behind, None, up=False)) == "firm"
    assert policy.choose(job, moment(10 * HOUR, ahead, None, up=False)) is None
    assert policy.choose(job, moment(10 * HOUR, behind, None)) == "spot"
    assert policy.choose(job, moment(10 * HOUR, behind, "firm")) == "firm"
    assert policy.choose(job, moment(10 * HOUR, ahead, "firm", up=False)) == "firm"
    assert policy.choose(job, moment(10 * HOUR, 4.8 * HOUR, "firm")) == "spot"  # by more than two changeovers
    assert policy.choose(job, moment(10 * HOUR, 4.92 * HOUR, "firm")) == "firm"


def test_an_outcome_says_what_it_was_on() -> None:
    outcome = simulate(Job(HOUR, 3 * HOUR, 3 * MINUTE), [made_of([30, 30, 300], up=True)], Greedy(), on_demand=DEAR)
    assert isinstance(outcome, Outcome)
    assert [(piece.on, piece.working, piece.until - piece.since) for piece in outcome.pieces] == [
        ("spot", False, 3 * MINUTE),
        ("spot", True, 27 * MINUTE),
        (None, False, 30 * MINUTE),
        ("spot", False, 3 * MINUTE),
        ("spot", True, 33 * MINUTE),
    ]
    assert (outcome.preemptions, outcome.changes) == (1, 2)
    assert outcome.cost == pytest.approx(66 / 60)


def test_an_estimate_may_grow_while_a_job_runs() -> None:
    """Work, time and changeover as they are known at each look."""
    policy = Learned()
    for work, time, changeover in ((HOUR, 3 * HOUR, 60.0), (2 * HOUR, 6 * HOUR, 60.0), (2 * HOUR, 6 * HOUR, 600.0)):
        assert policy.choose(Job(work, time, changeover), moment(0, work, None)) == "spot"


def test_what_is_chosen_does_not_depend_on_the_currency() -> None:
    trace = made_of([13, 25] * 60, up=True)
    job = Job(10 * HOUR, 12 * HOUR, 3 * MINUTE)
    costs = [
        simulate(job, [replace(trace, price=1.0 * unit)], Learned(), on_demand=DEAR * unit).cost / unit
        for unit in (1e-4, 1.0, 1e6)
    ]
    assert costs == pytest.approx([costs[1]] * 3)


@pytest.mark.parametrize("price", [0.0, 1.0])
def test_on_demand_that_is_not_dearer_is_taken_at_once(price: float) -> None:
    offers = [Offer("spot", 1.0, True), Offer("firm", price, False)]
    for up in (True, False):
        here = Moment(0, HOUR, None, [replace(offers[0], up=up), offers[1]], TICK)
        assert Learned().choose(Job(HOUR, 9 * HOUR, MINUTE), here) == "firm"
