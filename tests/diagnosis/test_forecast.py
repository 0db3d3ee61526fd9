"""How long it will still take: inside the band in eight of ten recorded runs, and by the same estimate everywhere."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from whistlestop.diagnosis.evidence import Evidence, Place, Series
from whistlestop.diagnosis.forecast import forecast, pace, time_left
from whistlestop.domain.estimates import WARM_UP, Left, Pace, seconds_left
from whistlestop.testing import case_library

CASES = Path(__file__).parents[1] / "cases" / "recorded"  # on a server
BENCH = Path(__file__).parent / "paces"  # bench/paces.py
CUTS = (0.2, 0.5, 0.8)


class Recorded(NamedTuple):
    kind: str
    total: int
    steps: list[int]
    times: list[float]


def recorded(half: str) -> Iterator[Recorded]:
    lines = zstandard.decompress((BENCH / f"{half}.jsonl.zst").read_bytes()).splitlines()
    for each in itertools.chain(map(json.loads, lines), case_library.paces(CASES, half)):
        yield Recorded(each["kind"], each["total"], each["steps"], each["times"])


def cut(run: Recorded, share: float) -> tuple[Left, float] | None:
    """What was foretold there, and how long it really took; None: nothing is told before the tenth step."""
    known = Pace().told(0, 1000.0)
    for step, at in zip(run.steps, run.times, strict=True):
        if step <= share * run.total:
            known = known.told(step, 1000.0 + at)
    assert known.last is not None
    step, at = known.last
    left = seconds_left(known, run.total - step)
    assert (left is None) == (step < WARM_UP), run
    return (left, 1000.0 + run.times[-1] - at) if left is not None else None


def all_cuts(half: str, share: float) -> list[tuple[Left, float]]:
    runs = list(recorded(half))
    assert len(runs) >= 250
    told = [found for run in runs if (found := cut(run, share)) is not None]
    assert len(told) >= 0.98 * len(runs)
    return told


@pytest.mark.parametrize("half", ["tuning", "held_out"])
def test_the_true_end_is_inside_the_band_in_75_to_85_percent_of_cut_runs(half: str) -> None:
    inside = {share: [left.low <= truth <= left.high for left, truth in all_cuts(half, share)] for share in CUTS}
    whole = [each for found in inside.values() for each in found]
    covered = sum(whole) / len(whole)
    parts = ", ".join(f"{sum(found) / len(found):.1%} at {share:.0%}" for share, found in inside.items())
    print(f"{half}: {covered:.1%} of {len(whole)} cuts inside the 80 % band ({parts})")
    assert 0.75 <= covered <= 0.85, parts
    assert all(0.70 <= sum(found) / len(found) <= 0.90 for found in inside.values()), parts


def test_the_band_is_narrow_enough_to_be_of_use() -> None:
    """A band from nothing to forever would hold, too."""
    for share, most in ((0.2, 0.9), (0.5, 0.7), (0.8, 0.6)):
        widths = sorted((left.high - left.low) / left.likely for left, _ in all_cuts("tuning", share))
        print(f"{share:.0%}: half of the bands are narrower than {widths[len(widths) // 2]:.0%} of the estimate")
        assert widths[len(widths) // 2] < most


def seen(**more: object) -> Evidence:
    steps = tuple(range(0, 500, 5))
    given = {
        "now": 2000.0,
        "place": Place(step=500, total=1000, loop_started_at=1000.0, progress_at=2000.0),
        "series": (Series("loss", steps, (1.0,) * len(steps), tuple(1000.0 + 2.0 * step for step in steps)),),
        "price": 0.5,
    }
    return Evidence(**{**given, **more})  # type: ignore[arg-type]


def test_without_reports_the_times_of_its_points_tell_the_pace() -> None:
    left = time_left(seen())
    assert left is not None
    assert left.likely == pytest.approx(1000, rel=0.02)
    cost = forecast(seen()).cost
    assert cost is not None
    assert cost.likely == pytest.approx(500, rel=0.02)
    assert cost == left.times(0.5)


def test_reports_of_progress_count_before_points_and_an_unknown_end_is_unknown() -> None:
    marks = tuple((step, 1000.0 + 4 * step) for step in range(0, 501, 10))
    assert pace(seen(marks=marks)).history == marks
    left = time_left(seen(marks=marks))
    assert left is not None
    assert left.likely == pytest.approx(2000, rel=0.02)
    assert time_left(seen(place=Place(step=500))) is None
    assert time_left(Evidence(now=1.0)) is None


def test_points_of_an_earlier_attempt_do_not_count() -> None:
    resumed = Place(step=500, total=1000, resumed_step=250, loop_started_at=1500.0, progress_at=2000.0)
    known = pace(seen(place=resumed))
    assert known.history[0] == (250, 1500.0)
    assert known.last == (500, 2000.0)
