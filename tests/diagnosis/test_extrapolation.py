"""Where a curve goes: near the truth, inside of an honest band, and silent where nothing can be told."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from whistlestop.diagnosis.evidence import Evidence, Place, Series
from whistlestop.diagnosis.extrapolation import extrapolate, smooth
from whistlestop.diagnosis.forecast import forecast, main_metric
from whistlestop.testing import case_library

CASES = Path(__file__).parents[1] / "cases" / "recorded"
TOTAL = 2000


def exponential(step: float) -> float:
    return 0.3 + 2 * math.exp(-step / 500)


def power(step: float) -> float:
    return 0.3 + 3 * (step + 1) ** -0.3


@pytest.mark.parametrize("truth", [exponential, power])
def test_the_end_lies_in_the_band_and_the_band_narrows(truth: Callable[[float], float]) -> None:
    inside, widths = 0, {0.3: 0.0, 0.6: 0.0, 0.9: 0.0}
    for seed in range(20):
        dice = np.random.default_rng(seed)
        values = [truth(step) + dice.normal(0, 0.1) for step in range(TOTAL)]
        for share in widths:
            seen = int(TOTAL * share)
            course = extrapolate(range(seen), values[:seen], TOTAL)
            assert course is not None
            end = course.ahead[-1]
            inside += end.low <= truth(TOTAL) <= end.high
            widths[share] += end.high - end.low
    assert inside >= 45, f"{inside} of 60"
    assert widths[0.3] > widths[0.6] > widths[0.9]


@pytest.mark.parametrize("half", ["tuning", "held_out"])
def test_recorded_healthy_runs_end_inside_the_band(half: str) -> None:
    """Of all shapes, also those whose end nothing before it announces; the end is the mean of the last sixteenth."""
    inside = []
    for case in case_library.load(CASES, half):
        found = main_metric(case.evidence) if (case.label, case.evidence.status) == ("healthy", "completed") else None
        if found is None or len(found[0].steps) < 40:
            continue
        series = found[0]
        levels = smooth(np.asarray(series.steps, dtype=float), np.asarray(series.values))[1]
        truth = float(levels[-max(1, len(levels) // 16) :].mean())
        for share in (0.2, 0.5, 0.8):
            seen = int(len(series.steps) * share)
            course = extrapolate(series.steps[:seen], series.values[:seen], series.steps[-1])
            if course is not None:
                inside.append(course.ahead[-1].low <= truth <= course.ahead[-1].high)
    assert len(inside) >= 100
    covered = sum(inside) / len(inside)
    print(f"{half}: {covered:.1%} of {len(inside)} ends inside the 80 % band")
    assert 0.7 <= covered <= 0.9


def test_a_spike_does_not_move_it_and_the_same_curve_gives_the_same_band() -> None:
    values = [exponential(step) for step in range(1000)]
    plain = extrapolate(range(1000), values, TOTAL)
    values[700] = 1e6
    spiked = extrapolate(range(1000), values, TOTAL)
    assert plain is not None
    assert spiked is not None
    assert spiked.ahead[-1].likely == pytest.approx(plain.ahead[-1].likely, abs=0.02)
    assert spiked == extrapolate(range(1000), values, TOTAL)


def test_a_loss_stays_above_0_and_a_share_below_1() -> None:
    falls = extrapolate(range(100), [1 - step / 120 for step in range(100)], 10_000)
    rises = extrapolate(range(100), [step / 120 for step in range(100)], 10_000)
    assert falls is not None
    assert rises is not None
    assert min(each.low for each in falls.ahead) >= 0
    assert max(each.high for each in rises.ahead) <= 1


@pytest.mark.parametrize("values", [[], [1.0] * 3, [1.0] * 50, [1e300, -1e300] * 30])
def test_whatever_the_values_are_it_is_finite_or_nothing(values: list[float]) -> None:
    course = extrapolate(range(len(values)), values, 1000)
    assert course is None or all(math.isfinite(each.low) and math.isfinite(each.high) for each in course.ahead)


def seen(*series: Series, aims: dict[str, str] | None = None, step: int = 500, total: int = 1000) -> Evidence:
    return Evidence(now=1.0, place=Place(step=step, total=total), series=series, aims=aims or {})


def curve(name: str, count: int = 50, kind: str = "program") -> Series:
    steps = tuple(range(0, 500, 500 // count))
    return Series(name, steps, tuple(exponential(step) for step in steps), tuple(map(float, steps)), kind=kind)


def test_the_main_metric_is_the_specs_then_a_validation_then_the_loss() -> None:
    both = (curve("loss"), curve("val/loss"), curve("accuracy"), curve("gpu", kind="system"))
    named = main_metric(seen(*both, aims={"accuracy": "max"}))
    assert named is not None
    assert (named[0].name, named[1]) == ("accuracy", "max")
    for given, name in ((both, "val/loss"), (both[:1], "loss")):
        found = main_metric(seen(*given))
        assert found is not None
        assert (found[0].name, found[1]) == (name, "min")
    assert main_metric(seen(curve("loss", count=5))) is None, "too few points"
    assert main_metric(seen(curve("loss_g"), curve("loss_d"))) is None, "adversaries"
    assert main_metric(seen(curve("temperature"))) is None


def test_an_end_that_nobody_knows_or_that_is_far_off_is_not_foretold() -> None:
    assert forecast(seen(curve("loss"))).gain is not None
    assert forecast(seen(curve("loss"), total=0)).gain is None
    assert forecast(seen(curve("loss"), step=500, total=10_000)).gain is None
