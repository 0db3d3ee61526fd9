import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import whistlestop
from whistlestop.channel.layout import ENV_RATE
from whistlestop.domain.errors import BadRequest
from whistlestop.sdk.cadence import (
    AnyOf,
    AutoCadence,
    EveryEpochs,
    EverySeconds,
    EverySteps,
    Interval,
    read_cadence,
    shown,
)
from whistlestop.sdk.costs import Costs, Measured, must_begin_by
from whistlestop.sdk.settings import Settings


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (None, ()),
        ("", ()),
        (500, (EverySteps(500),)),
        ("500 steps", (EverySteps(500),)),
        ("1 step", (EverySteps(1),)),
        ("10 minutes, 1 epoch", (EverySeconds(600), EveryEpochs(1))),
        (["90 seconds", "2 hours"], (EverySeconds(90), EverySeconds(7200))),
        ("30s,5m", (EverySeconds(30), EverySeconds(300))),
        ("auto", (AutoCadence(),)),
    ],
)
def test_words_become_policies(every: object, expected: tuple[object, ...]) -> None:
    assert read_cadence(every) == AnyOf(expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("every", ["often", "0 steps", "5", "1.5 steps", "-3 steps", "5 parsecs", 0])
def test_a_cadence_that_makes_no_sense_says_what_to_write(every: str | int) -> None:
    with pytest.raises(BadRequest) as caught:
        read_cadence(every)
    assert "500 steps" in str(caught.value.hint)


@given(step=st.integers(0, 10**9), every=st.integers(1, 10**6))
def test_the_next_step_is_the_next_multiple(step: int, every: int) -> None:
    following = EverySteps(every).next_step(step, per_epoch=None)
    assert step < following <= step + every
    assert following % every == 0


def test_epochs_need_to_know_their_length() -> None:
    assert EveryEpochs(2).next_step(50, per_epoch=100) == 200
    assert EveryEpochs(2).next_step(50, per_epoch=None) == math.inf


def test_any_of_takes_the_first() -> None:
    both = AnyOf((EverySteps(100), EverySteps(70), EverySeconds(60)))
    assert both.next_step(0, per_epoch=None) == 70
    assert both.next_time(1000.0, costs=Costs()) == 1060.0
    assert AnyOf().next_time(1000.0, costs=Costs()) == math.inf
    assert both.interval(Costs()) is None


def seconds(costs: Costs) -> float:
    assert AutoCadence().next_time(1000.0, costs=costs) == 1000.0 + AutoCadence().interval(costs).seconds
    return AutoCadence().interval(costs).seconds


def test_auto_begins_with_a_trial_save_to_learn_its_cost() -> None:
    assert seconds(Costs()) == 30.0
    assert seconds(Costs(durable_seconds=500.0, rate=0.1)) == 30.0


def test_auto_balances_the_cost_of_a_save_against_what_a_preemption_costs() -> None:
    assert seconds(Costs(0.13, 1.5, 1 / 11520)) == pytest.approx(54.7, abs=0.1)
    assert seconds(Costs(0.13, 1.5)) == pytest.approx(43.3, abs=0.1), "every 2 h, if nobody knows"


def test_auto_saves_no_faster_than_saves_become_durable() -> None:
    assert seconds(Costs(0.1, 600.0, 1 / 7200)) == pytest.approx(660.0)


def test_auto_takes_no_more_than_its_share_of_the_time() -> None:
    assert seconds(Costs(10.0, 1.0, 1 / 60)) == pytest.approx(10 / 0.035)


def test_auto_saves_less_often_on_a_machine_that_has_lasted() -> None:
    young, old = Costs(1.0, 5.0, 1 / 7200), Costs(1.0, 5.0, 1 / 7200, age=6 * 7200.0)
    assert seconds(old) == pytest.approx(2 * seconds(young))
    assert seconds(Costs(1.0, 5.0, 1 / 7200, age=-50.0)) == seconds(young), "a clock was set back"


def test_auto_never_saves_without_a_pause_in_between() -> None:
    assert seconds(Costs(0.0, 0.0, 10.0)) == 10.0


@given(
    cost=st.floats(0, 1e4),
    durable=st.floats(0, 1e5),
    rate=st.none() | st.floats(1e-9, 10),
    more=st.floats(1, 100),
)
def test_auto_saves_less_often_when_saving_is_dearer_or_machines_stay_longer(
    cost: float, durable: float, rate: float | None, more: float
) -> None:
    interval = seconds(Costs(cost, durable, rate))
    assert math.isfinite(interval)
    assert interval >= 1.1 * durable
    assert cost / interval <= 0.0351
    assert seconds(Costs(cost * more, durable, rate)) >= interval
    assert rate is None or seconds(Costs(cost, durable, rate / more)) >= interval


@pytest.mark.parametrize(
    ("costs", "why"),
    [
        (
            Costs(0.13, 1.5, 1 / 11520),
            "every 55 s: a save costs 0.13 s, this pool takes machines back every 3.2 h; limited by the "
            "balance of the two",
        ),
        (
            Costs(0.0095, 60.0),
            "every 66 s: a save costs 9.5 ms, machines are assumed to be taken back every 2 h; limited by the 60 "
            "s until a save is durable",
        ),
        (
            Costs(1.0, 5.0, 1 / 7200, age=43200.0),
            "every 4 min: a save costs 1 s, this pool takes machines back every 2 h and this one has lasted 12 h; "
            "limited by the balance of the two",
        ),
        (
            Costs(10.0, 1.0, 1 / 120),
            "every 4.8 min: a save costs 10 s, this pool takes machines back every 2 min; limited by the 3.5% of the "
            "time that saving may take",
        ),
    ],
)
def test_auto_says_why_in_a_sentence(costs: Costs, why: str) -> None:
    assert AnyOf((EverySteps(5), AutoCadence())).interval(costs) == Interval(seconds(costs), why)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 ms"),
        (0.1, "0.1 s"),
        (9.96, "10 s"),
        (99.0, "99 s"),
        (100.0, "1.7 min"),
        (6000.0, "1.7 h"),
        (1e6, "278 h"),
    ],
)
def test_times_are_said_as_people_say_them(value: float, text: str) -> None:
    assert shown(value) == text


# What saves cost.


def test_the_first_save_counts_only_until_there_is_another() -> None:
    measured = Measured()
    assert measured.costs() == Costs()
    measured.saved(10, 5.0)
    assert measured.costs().save_seconds == 5.0
    measured.saved(20, 1.0)
    measured.saved(20, 100.0)  # the same one, looked at again
    assert measured.costs().save_seconds == 1.0
    measured.saved(30, 2.0)
    assert measured.costs().save_seconds == pytest.approx(1.3)


def test_the_next_attempt_knows_what_saves_have_cost() -> None:
    before, after = Measured(), Measured(rate=0.01)
    for step, cost in enumerate([5.0, 1.0, 1.0], 1):
        before.saved(step, cost)
        before.durable(step, 4.0)
    after.load(json.loads(json.dumps(before.state())))
    assert after.costs() == Costs(1.0, 4.0, 0.01)
    after.saved(4, 9.0)  # cold again
    assert after.costs().save_seconds == 1.0
    after.saved(5, 2.0)
    assert after.costs().save_seconds == pytest.approx(1.3)


@pytest.mark.parametrize("state", [None, [], {}, {"save_seconds": "1"}, {"save_seconds": -1, "durable_seconds": True}])
def test_what_is_no_record_of_costs_is_left_alone(state: object) -> None:
    measured = Measured()
    measured.load(state)
    assert measured.costs() == Costs()


def test_the_time_to_durable_is_averaged_once_per_save() -> None:
    measured = Measured()
    measured.durable(0, 0.0)  # nothing is durable yet
    assert measured.costs().durable_seconds == 0.0
    for _ in range(3):
        measured.durable(5, 10.0)
    measured.durable(6, 20.0)
    assert measured.costs().durable_seconds == pytest.approx(13.0)
    measured.durable(7, math.nan)
    assert measured.costs().durable_seconds == pytest.approx(13.0)


def test_people_are_told_when_the_interval_changes_by_more_than_a_quarter() -> None:
    measured = Measured()
    told = [measured.is_news(each) for each in (30.0, 55.0, 60.0, 65.0, 70.0, 60.0, 50.0)]
    assert told == [True, True, False, False, True, False, True]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("0.001", 0.001),
        ("1e-4", 1e-4),
        (None, None),
        ("", None),
        ("often", None),
        ("0", None),
        ("-1", None),
        ("inf", None),
    ],
)
def test_the_rate_of_the_pool_comes_from_the_environment(text: str | None, rate: float | None) -> None:
    env = {} if text is None else {ENV_RATE: text}
    assert Settings.read("x", env).rate == rate


def test_a_save_begins_early_enough_to_be_durable_at_the_deadline() -> None:
    assert must_begin_by(1000.0, Costs(2.0, 8.0)) == pytest.approx(989.0)
    assert must_begin_by(1000.0, Costs()) == 1000.0


@given(deadline=st.floats(0, 1e9), cost=st.floats(0, 1e4), durable=st.floats(0, 1e4))
def test_what_begins_by_then_is_durable_before_the_deadline(deadline: float, cost: float, durable: float) -> None:
    assert must_begin_by(deadline, Costs(cost, durable)) + cost + durable <= deadline + 1e-6


def test_a_run_says_how_often_it_saves_and_the_next_one_knows_what_it_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(fails_at: int) -> None:
        with whistlestop.run("digits", checkpoints=tmp_path, every="auto, 2 steps") as run:
            for step in run.steps(10):
                assert step != fails_at

    with pytest.raises(AssertionError):
        train(5)
    first = capsys.readouterr().err
    assert "digits saves the first time after 30 s" in first
    assert ": a save costs " in first
    train(99)
    second = capsys.readouterr().err
    assert "digits: going on at step 4" in second
    assert "the first time" not in second
    assert ": a save costs " in second
