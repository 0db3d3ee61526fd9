"""Curves: each fault is found, and none in healthy curves of many shapes, whole or as they look live."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whistlestop.diagnosis.advice import SURE
from whistlestop.diagnosis.curves import findings
from whistlestop.diagnosis.evidence import Evidence, Odd, Series
from whistlestop.diagnosis.findings import Cause, Finding, Weight
from whistlestop.testing.curve_shapes import (
    DIVERGING,
    HEALTHY,
    NOT_LEARNING,
    Values,
    evidence,
    overfits,
    plain,
    series,
    warm_up_bump_cut,
)

Make = Callable[[np.random.Generator], tuple[Series, ...]]
SEEDS = range(15)


def _found(*curves: Series, total: int | None = None) -> list[Finding]:
    return findings(evidence(*curves, total=total))


def _alarms(found: list[Finding]) -> list[Finding]:
    return [each for each in found if each.weight is not Weight.HINT]


def _falling(count: int = 400, noise: float = 0.05) -> Values:
    random = np.random.default_rng(3)
    values: Values = (0.2 + 2 * np.exp(-5 * np.arange(count) / count)) * np.exp(noise * random.standard_normal(count))
    return values


@pytest.mark.parametrize("make", HEALTHY, ids=lambda make: make.__name__)
def test_a_healthy_curve_raises_no_alarm(make: Make) -> None:
    for seed in SEEDS:
        assert not _alarms(_found(*make(np.random.default_rng(seed)))), seed


@pytest.mark.parametrize("make", HEALTHY, ids=lambda make: make.__name__)
def test_nor_does_it_while_it_is_still_being_drawn(make: Make) -> None:
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        whole = make(random)
        until = random.uniform(0.05, 1.0) * whole[0].steps[-1]
        drawn = [_until(each, until) for each in whole]
        assert not _alarms(_found(*drawn, total=whole[0].steps[-1])), seed


def test_a_bump_of_the_warm_up_raises_no_alarm_while_it_rises() -> None:
    for seed in SEEDS:
        assert not _alarms(_found(*warm_up_bump_cut(np.random.default_rng(seed)), total=100_000)), seed


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        *((make, Cause.DIVERGING) for make in DIVERGING),
        *((make, Cause.NOT_DECREASING) for make in NOT_LEARNING),
        (overfits, Cause.OVERFITTING),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_fault_is_found_nine_times_out_of_ten(make: Make, cause: Cause) -> None:
    found = [_found(*make(np.random.default_rng(seed))) for seed in SEEDS]
    right = sum(1 for each in found if each and each[0].cause is cause)
    assert right >= 0.9 * len(SEEDS), [[each.cause for each in one] for one in found]


def test_the_metric_that_went_first_is_named_with_its_step_and_its_rank() -> None:
    later = series("loss", [1.0] * 30, odd=Odd(40, "nan", 1040.0))
    first = series("grad_norm", [3.0, 9.0, 80.0], rank=2, odd=Odd(38, "inf", 1038.0))
    (found,) = _found(later, first)
    assert (found.cause, found.metric, found.step, found.rank) == (Cause.NON_FINITE, "grad_norm", 38, 2)
    assert "grad_norm is inf since step 38 on rank 2" in found.says
    assert "3, 9, 80" in found.evidence[0]
    assert "before step 38" in found.what_to_do


@pytest.mark.parametrize(
    "odd",
    [
        series("grad_norm", [1.0] * 390, odd=Odd(391, "inf", 1039.1), odd_until=396),  # mixed precision seeks its scale
        series("best_val_loss", [], odd=Odd(0, "inf", 1000.0), odd_until=399),  # nothing was validated yet
        series("val_loss", _falling(), odd=Odd(3, "nan", 1003.0), odd_until=4),  # it has come back
    ],
    ids=lambda each: each.name,
)
def test_a_loss_that_goes_on_speaks_for_a_run_with_an_odd_point_elsewhere(odd: Series) -> None:
    assert not _alarms(_found(series("loss", _falling()), odd))


def test_a_metric_that_is_lost_beside_a_loss_that_goes_on_is_told_and_no_reason_to_throw_work_away() -> None:
    (found,) = _found(series("loss", _falling()), series("ratio", [0.5] * 100, odd=Odd(101, "nan", 1010.0)))
    assert (found.cause, found.metric) == (Cause.NON_FINITE, "ratio")
    assert found.confidence < SURE


def test_without_a_loss_that_goes_on_an_odd_point_is_told() -> None:
    (found,) = _found(series("loss", [1.0] * 12, odd=Odd(13, "nan", 1013.0), odd_until=20))
    assert (found.cause, found.step) == (Cause.NON_FINITE, 13)


def test_a_loss_that_is_no_number_is_not_also_told_to_run_away() -> None:
    values = np.concatenate([_falling(), np.exp(np.arange(40.0))])
    found = _found(series("loss", values, odd=Odd(441, "nan", 2000.0)))
    assert [each.cause for each in found] == [Cause.NON_FINITE]


def test_a_blow_up_tells_from_where_to_where_and_since_when() -> None:
    (found,) = _found(series("loss", np.concatenate([_falling(400), 50 * np.exp(np.arange(30) / 5)])))
    assert found.cause is Cause.DIVERGING
    assert found.step is not None
    assert 395 <= found.step <= 412
    assert "0.2" in found.says
    assert "checkpoint from before step" in found.what_to_do


def test_a_spike_that_comes_back_is_no_divergence() -> None:
    values = _falling()
    values[300:306] = [40.0, 30.0, 12.0, 5.0, 2.0, 0.8]
    assert not _alarms(_found(series("loss", values)))


def test_losses_of_a_game_may_rise_but_not_without_end() -> None:
    rising = 1 + np.arange(400) / 100
    assert not _alarms(_found(series("g_loss", rising), series("d_loss", rising[::-1])))
    blown = np.concatenate([rising, np.full(60, 1e6)])
    assert _found(series("g_loss", blown), series("d_loss", blown[::-1]))[0].cause is Cause.DIVERGING


def test_a_loss_is_not_called_flat_before_its_run_has_got_going() -> None:
    values = 2.3 + 0.01 * np.random.default_rng(1).standard_normal(200)
    assert not _found(series("loss", values), total=2000)
    assert _found(series("loss", values), total=400)[0].cause is Cause.NOT_DECREASING


def test_a_flat_loss_beside_a_score_that_rises_is_no_fault() -> None:
    values = 2.3 + 0.01 * np.random.default_rng(1).standard_normal(200)
    assert not _alarms(_found(series("loss", values), series("val_accuracy", np.linspace(0.1, 0.9, 20), every=10)))


def test_a_noise_that_could_hide_learning_says_nothing() -> None:
    random = np.random.default_rng(2)
    assert not _found(series("loss", np.exp(1.5 * random.standard_normal(60))))


def test_what_is_no_loss_by_name_is_none_unless_the_spec_says_so() -> None:
    values = 5 + 0.01 * np.random.default_rng(1).standard_normal(200)
    assert not _found(series("temperature", values))
    aimed = replace(evidence(series("temperature", values)), aims={"temperature": "min"})
    assert findings(aimed)[0].cause is Cause.NOT_DECREASING


@pytest.mark.parametrize("name", ["loss_scale", "kl_coef", "loss_weight", "lr", "grad_norm", "epoch"])
def test_knobs_are_not_judged(name: str) -> None:
    assert not _found(series(name, np.full(200, 3.0)))


@pytest.mark.parametrize(
    ("train", "validation"),
    [
        ("loss", "val_loss"),
        ("train/loss", "val/loss"),
        ("train_loss", "valid_loss"),
        ("loss", "eval_loss"),
        ("trainLoss", "testLoss"),
        ("train/ce_loss_step", "validation/ce_loss_epoch"),
        ("perplexity", "dev_perplexity"),
    ],
)
def test_validation_and_training_are_paired_by_name(train: str, validation: str) -> None:
    rising = np.concatenate([np.linspace(1.5, 0.6, 8), np.linspace(0.62, 1.4, 12)])
    found = _found(series(train, _falling()), series(validation, rising, every=20))
    assert [each.cause for each in found] == [Cause.OVERFITTING]
    assert found[0].metric == validation
    assert found[0].step == 160


def test_validation_that_rises_with_its_training_is_no_overfitting() -> None:
    rising = np.concatenate([np.linspace(1.5, 0.6, 8), np.linspace(0.62, 1.4, 12)])
    other = _found(series("loss", np.repeat(rising, 20)), series("val_loss", rising, every=20))
    assert Cause.OVERFITTING not in {each.cause for each in other}


def test_the_metric_that_is_aimed_at_decides_what_overfitting_is() -> None:
    rising = np.concatenate([np.linspace(1.5, 0.6, 8), np.linspace(0.62, 1.4, 12)])
    curves = series("loss", _falling()), series("val_loss", rising, every=20)
    better = series("val_accuracy", np.linspace(0.3, 0.9, 20), every=20)
    aimed = replace(evidence(*curves, better), aims={"val_accuracy": "max"})
    assert not _alarms(findings(aimed))


def test_a_plateau_is_a_hint() -> None:
    values = 0.3 + 2 * np.exp(-np.arange(600) / 30) + 0.02 * np.random.default_rng(1).standard_normal(600)
    (found,) = _found(series("loss", values))
    assert (found.cause, found.weight) == (Cause.PLATEAUED, Weight.HINT)


@pytest.mark.parametrize("rate", [[0.1] * 300 + [0.01] * 300, list(0.1 * (1 + np.cos(np.arange(600) / 50)))])
def test_no_plateau_is_called_while_a_schedule_has_more_to_come(rate: list[float]) -> None:
    values = 0.3 + 2 * np.exp(-np.arange(600) / 30) + 0.02 * np.random.default_rng(1).standard_normal(600)
    assert not _found(series("loss", values), series("lr", rate))


def test_no_plateau_is_called_of_a_loss_that_still_comes_down_slowly() -> None:
    values = 0.3 + 2 * np.exp(-np.arange(600) / 30) + 0.3 * np.linspace(1, 0, 600)
    assert not _found(series("loss", values + 0.02 * np.random.default_rng(1).standard_normal(600)))


def test_the_order_of_the_series_and_of_their_points_does_not_matter() -> None:
    random = np.random.default_rng(5)
    curves = list(overfits(random)) + list(plain(random))[:0]
    mixed = [_shuffled(each, random) for each in reversed(curves)]
    assert _found(*curves) == _found(*mixed)


def test_a_task_is_judged_by_its_numbers_alone() -> None:
    values = 2.3 + 0.01 * np.random.default_rng(1).standard_normal(200)
    assert not findings(replace(evidence(series("loss", values)), kind="task"))


@given(level=st.floats(-1e6, 1e6), noise=st.floats(0, 1e3), count=st.integers(0, 300), seed=st.integers(0, 2**32 - 1))
def test_noise_alone_is_never_fatal(level: float, noise: float, count: int, seed: int) -> None:
    values = level + noise * np.random.default_rng(seed).standard_normal(count)
    found = _found(series("loss", values)) if count else findings(Evidence(now=1.0))
    assert all(each.weight is not Weight.FATAL for each in found), found


def _until(curve: Series, step: float) -> Series:
    count = sum(1 for each in curve.steps if each <= step)
    return replace(curve, steps=curve.steps[:count], values=curve.values[:count], times=curve.times[:count])


def _shuffled(curve: Series, random: np.random.Generator) -> Series:
    order = random.permutation(len(curve.steps))
    parts = ([list(part)[at] for at in order] for part in (curve.steps, curve.values, curve.times))
    steps, values, times = map(tuple, parts)
    return replace(curve, steps=steps, values=values, times=times)
