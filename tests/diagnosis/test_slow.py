"""The pace: what holds a run up is named, and pauses that belong to it are not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from whistlestop.diagnosis import slow, told
from whistlestop.diagnosis.evidence import Evidence, Place, Series, Told
from whistlestop.diagnosis.findings import Cause, Finding
from whistlestop.diagnosis.judge import judge


def timed(paces: "np.ndarray[Any, Any] | list[float]", name: str = "loss", **more: Any) -> Series:
    times = 100.0 + np.cumsum(paces)
    steps = tuple(range(1, len(times) + 1))
    return Series(name, steps, (1.0,) * len(times), tuple(map(float, times)), **more)


def running(*series: Series, events: tuple[Told, ...] = (), **more: Any) -> Evidence:
    last = max((max(each.times) for each in series), default=200.0)
    place = Place("training", 100, 1000, started_at=90.0, loop_started_at=99.0, progress_at=last)
    return Evidence(**{"now": last + 1, "place": place, "series": series, "told": events, **more})


def noisy(pace: float, count: int, seed: int = 0) -> "np.ndarray[Any, Any]":
    return pace * np.exp(0.2 * np.random.default_rng(seed).standard_normal(count))


def cause(found: list[Finding]) -> Cause | None:
    assert len(found) < 2
    return found[0].cause if found else None


def test_steps_that_take_three_times_as_long_from_a_step_on_are_told_with_it() -> None:
    (found,) = slow.findings(running(timed(np.concatenate([noisy(0.1, 200), noisy(0.3, 100, 1)]))))
    assert found.cause is Cause.THROTTLED
    assert found.step is not None
    assert 190 <= found.step <= 215
    assert "3." in found.says or "2.9" in found.says


def test_steps_that_take_longer_and_longer_are_told_as_such() -> None:
    (found,) = slow.findings(running(timed(noisy(0.05, 300) * np.linspace(1, 5, 300))))
    assert found.cause is Cause.THROTTLED
    assert "longer and longer" in found.says
    assert "grows" in found.what_to_do


def test_pauses_for_evaluation_are_no_throttling() -> None:
    paces = noisy(0.1, 400)
    paces[200::20] += 8.0
    assert not slow.findings(running(timed(paces)))


def test_a_slow_stretch_that_is_over_is_none() -> None:
    assert not slow.findings(running(timed(np.concatenate([noisy(0.1, 150), noisy(0.4, 60), noisy(0.1, 150)]))))


def test_what_is_compiled_at_first_makes_the_rest_no_slower() -> None:
    assert not slow.findings(running(timed(np.concatenate([[30.0, 9.0], noisy(0.1, 200)]))))


def test_another_attempt_has_another_pace() -> None:
    """It was quick before it was started again, here at 400."""
    moved = running(timed(np.concatenate([noisy(0.1, 200), [300.0], noisy(0.4, 200)])))
    assert not slow.findings(replace(moved, place=replace(moved.place, started_at=400.0)))


@pytest.mark.parametrize(
    ("wait", "step"), [("data_time", "batch_time"), ("time/data", "time/step"), ("data_wait_ms", "")]
)
def test_a_clock_of_the_data_tells_that_it_is_waited_for(wait: str, step: str) -> None:
    unit = 1000.0 if "ms" in wait else 1.0
    waits = replace(timed([0.2] * 60, wait), values=(0.15 * unit,) * 60)
    series = [timed([0.2] * 60), waits, *([replace(timed([0.2] * 60, step), values=(0.2,) * 60)] if step else [])]
    (found,) = slow.findings(running(*series))
    assert found.cause is Cause.DATA_STARVED
    assert "150 ms of the 200 ms" in found.says


def test_data_that_comes_in_time_is_no_matter() -> None:
    waits = replace(timed([0.2] * 60, "data_time"), values=(0.01,) * 60)
    assert not slow.findings(running(timed([0.2] * 60), waits))


def test_processors_that_idle_while_steps_are_slow_wait_for_data() -> None:
    curve = timed(np.concatenate([noisy(0.1, 200), noisy(0.5, 100)]))
    at = np.arange(100.0, max(curve.times), 2.0)
    used = tuple(np.where(at < 120.0, 98.0, 12.0).tolist())
    busy = Series("system/cpu_percent", tuple(range(len(at))), used, tuple(at.tolist()), kind="system")
    assert cause(slow.findings(running(curve, busy))) is Cause.DATA_STARVED
    hot = replace(busy, values=(98.0,) * len(at))
    assert cause(slow.findings(running(curve, hot))) is Cause.THROTTLED


def test_a_rank_that_logs_late_in_every_step_is_named() -> None:
    base = 100 + 0.1 * np.arange(1, 121)
    random = np.random.default_rng(1)
    ranks = [
        replace(timed([0.1] * 120), rank=rank, times=tuple((base + lag + 0.002 * random.random(120)).tolist()))
        for rank, lag in ((0, 0.0), (1, 0.0), (2, 0.06))
    ]
    (found,) = slow.findings(running(*ranks))
    assert (found.cause, found.rank) == (Cause.SLOW_RANK, 2)
    even = [replace(each, times=tuple((base + 0.01 * random.random(120)).tolist())) for each in ranks]
    assert not slow.findings(running(*even))


def test_the_sdk_names_a_slow_rank_until_it_says_that_it_is_so_no_more() -> None:
    data = {"rank": 3, "share": 0.93, "steps": 200, "wait": 0.04, "host": "node-7"}
    event = Told(150.0, "straggler", "rank 3 on host node-7 is slow", data)
    (found,) = told.findings(running(events=(event,)))
    assert (found.cause, found.rank, found.host) == (Cause.SLOW_RANK, 3, "node-7")
    assert "40 ms a step" in found.says
    assert "node-7" in found.what_to_do
    over = Told(160.0, "straggler", "rank 3 is not slow any more", {})
    assert not told.findings(running(events=(event, over)))


STACK = {"rank": 1, "pid": 77, "thread": "MainThread", "frames": ["acquire (threading.py:3)", "step (train.py:9)"]}
HUNG = {"rank": 1, "stage": "training", "silent_s": 130, "expected_s": 40, "step": 59, "stacks": [STACK]}


def test_a_hang_is_told_with_the_stack_that_shows_where() -> None:
    (found,) = told.findings(running(events=(Told(150.0, "stuck", "no step", HUNG),)))
    assert (found.cause, found.rank, found.step) == (Cause.STUCK, 1, 59)
    assert "130 s" in found.says
    assert "40 s" in found.says
    assert "train.py:9" in found.evidence[0]


@pytest.mark.parametrize("after", [Told(151.0, "going_again", "a step"), None])
def test_a_hang_is_over_with_its_next_step_or_with_another_attempt(after: Told | None) -> None:
    hung = running(events=(Told(150.0, "stuck", "no step", HUNG), *([after] if after else [])))
    if after is None:
        hung = replace(hung, place=replace(hung.place, started_at=160.0))
    assert not told.findings(hung)


def test_a_silence_that_the_runner_does_not_call_a_hang_is_none() -> None:
    """It may be cut off, or evaluate: it is beside the program and knows; the server has only old progress."""
    quiet = running(timed([0.1] * 60))
    assert not judge(replace(quiet, now=quiet.now + 3600.0))


def test_saves_that_fail_are_told_until_one_comes_through() -> None:
    error = "[Errno 28] No space left on device: '/mnt/checkpoints/x'"
    failed = Told(150.0, "save_failed", "step 40 could not be saved", {"step": 40, "error": error, "final": True})
    (found,) = told.findings(running(events=(failed,)))
    assert (found.cause, found.step) == (Cause.SAVES_FAIL, 40)
    assert "/mnt/checkpoints/x" in found.what_to_do
    assert not told.findings(running(events=(failed, Told(151.0, "checkpoint", "safe"))))


def test_a_save_that_is_tried_again_has_its_time() -> None:
    failing = Told(199.0, "save_failed", "tried again", {"step": 40, "error": "timed out", "tries": 1, "final": False})
    early = running(events=(failing,))
    assert not told.findings(early)
    assert cause(told.findings(replace(early, now=400.0))) is Cause.SAVES_FAIL


def test_what_the_sdk_could_not_save_counts() -> None:
    said = Told(150.0, "program", "step 10 could not be saved (on its cadence): TypeError()", {"kind": "message"})
    assert cause(told.findings(running(events=(said,)))) is Cause.SAVES_FAIL
