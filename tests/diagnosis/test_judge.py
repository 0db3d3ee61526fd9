"""All together: the decisive one first, no contradictions, never an error, and cheap."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whistlestop.diagnosis.evidence import End, Evidence, HostRecord, Line, Odd, Place, Series, Told
from whistlestop.diagnosis.findings import Cause, Finding, Weight
from whistlestop.diagnosis.judge import judge
from whistlestop.domain.reasons import EndReason
from whistlestop.testing.curve_shapes import HEALTHY, blown_up, evidence, overfits, series

TRACE = ("Traceback (most recent call last):", '  File "/srv/train.py", line 7, in main', "    step()")


def failed(error: str, *, reason: str = "code_raised", signal: str | None = None, **more: Any) -> dict[str, Any]:
    end = End(1, reason, "exit code 1", "node-3", None if signal else 1, signal, 50, 2000.0)
    said = tuple(Line(1999.0, "err", 0, text) for text in (*TRACE, error)) if error else ()
    return {"status": "failed", "ends": (end,), "lines": said, **more}


def causes(found: tuple[Finding, ...]) -> list[Cause]:
    return [each.cause for each in found]


def falling() -> Series:
    return series("loss", 0.2 + 2 * np.exp(-np.arange(300) / 60) + 0.02 * np.random.default_rng(1).standard_normal(300))


def test_a_healthy_run_has_no_finding_of_weight() -> None:
    for make in HEALTHY:
        found = judge(evidence(*make(np.random.default_rng(11))))
        assert all(each.weight is Weight.HINT for each in found), (make.__name__, found)


def test_the_end_comes_before_what_the_curve_says() -> None:
    blown = blown_up(np.random.default_rng(0))
    found = judge(evidence(*blown, **failed("OSError: [Errno 28] No space left on device")))
    assert causes(found) == [Cause.DISK_FULL, Cause.DIVERGING]


def test_an_error_about_a_value_that_is_none_is_that_value_s_doing() -> None:
    curve = replace(falling(), odd=Odd(301, "nan", 1031.0))
    (found,) = judge(evidence(curve, **failed("ValueError: cannot convert float NaN to integer")))
    assert (found.cause, found.step, found.host) == (Cause.NON_FINITE, 301, "node-3")
    assert "float NaN" in found.evidence[0]


def test_a_nan_beside_another_failure_is_told_after_it() -> None:
    curve = replace(falling(), odd=Odd(301, "nan", 1031.0))
    found = judge(evidence(curve, **failed("RuntimeError: CUDA out of memory.")))
    assert causes(found) == [Cause.DEVICE_MEMORY, Cause.NON_FINITE]


HUNG = Told(1990.0, "stuck", "no step", {"silent_s": 90, "expected_s": 10, "step": 50})


def test_an_end_with_a_cause_of_its_own_needs_no_hang() -> None:
    found = judge(evidence(falling(), **failed("ModuleNotFoundError: No module named 'x'"), told=(HUNG,)))
    assert Cause.STUCK not in causes(found)


def test_who_is_killed_while_it_hangs_was_stuck() -> None:
    found = judge(evidence(falling(), **failed("", reason="signalled", signal="SIGKILL"), told=(HUNG,)))
    assert causes(found)[0] is Cause.STUCK
    assert Cause.KILLED_OUTSIDE not in causes(found)


def test_a_full_disk_is_not_told_twice() -> None:
    said = Told(
        1990.0, "save_failed", "step 40 could not be saved", {"final": True, "error": "No space left on device"}
    )
    found = judge(evidence(falling(), **failed("OSError: [Errno 28] No space left on device"), told=(said,)))
    assert causes(found) == [Cause.DISK_FULL]


def test_a_host_that_is_surely_bad_comes_first() -> None:
    record = HostRecord("node-3", good=0, failed=2, elsewhere=3)
    found = judge(evidence(falling(), **failed("RuntimeError: CUDA error: unknown error"), hosts=(record,)))
    assert causes(found) == [Cause.BAD_HOST, Cause.DEVICE_FAULT]


def test_the_order_of_the_series_does_not_matter() -> None:
    curves = [*overfits(np.random.default_rng(3)), series("accuracy", np.linspace(0, 1, 50)), series("lr", [0.1] * 50)]
    found = {judge(evidence(*[curves[at] for at in order])) for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1])}
    assert len(found) == 1


def test_what_was_gathered_late_or_not_at_all_is_no_error() -> None:
    assert judge(Evidence(now=0.0)) == ()
    assert judge(evidence(Series("loss", (), (), ()), Series("loss", (1,), (2.0,), (3.0,)))) == ()


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 1e308, -1e308, 1e-300, 2.0])
words = st.sampled_from(
    ["loss", "val_loss", "g_loss", "reward", "lr", "data_time", "system/cpu_percent", "", "é/ß loss"]
)
texts = st.text(max_size=40) | st.sampled_from(
    [*TRACE, "KeyError: 'x'", "  | ValueError", "[rank2]: MemoryError", "Killed"]
)


@st.composite
def curves(draw: st.DrawFn) -> Series:
    """Drawn by a seed: lists of numbers that are drawn one by one take a hundred times as long."""
    count, random = draw(st.integers(0, 90)), np.random.default_rng(draw(st.integers(0, 10**6)))
    level, spread = draw(numbers), draw(st.sampled_from([0.0, 1e-9, 1.0, 1e200]))
    values = np.clip(level + spread * random.standard_normal(count), -1.7e308, 1.7e308)
    steps = draw(st.sampled_from([np.arange(count), random.integers(0, 10**12, count), np.zeros(count, int)]))
    times = draw(st.sampled_from([1000.0 + np.arange(count), 1e6 * random.random(count), np.zeros(count)]))
    odd = draw(st.none() | st.builds(Odd, st.integers(0, 99), st.sampled_from(["nan", "inf"]), numbers))
    kind = draw(st.sampled_from(["program", "system", "rank"]))
    rank = draw(st.integers(0, 3))
    return Series(draw(words), tuple(steps.tolist()), tuple(values.tolist()), tuple(times.tolist()), rank, kind, odd)


data = st.dictionaries(
    st.sampled_from(
        ["rank", "share", "steps", "wait", "host", "stacks", "silent_s", "expected_s", "final", "error", "step"]
    ),
    st.none()
    | st.booleans()
    | st.integers()
    | numbers
    | st.text(max_size=5)
    | st.lists(st.none() | st.text(max_size=3)),
    max_size=5,
)
kinds = st.sampled_from(["stuck", "going_again", "straggler", "save_failed", "checkpoint", "program", "leftovers"])
any_evidence = st.builds(
    Evidence,
    now=numbers,
    kind=st.sampled_from(["train", "task"]),
    status=st.sampled_from(["running", "failed", "completed", "queued"]),
    place=st.builds(
        Place,
        stage=st.sampled_from(["", "training", "evaluating", "ending"]),
        step=st.integers(0, 10**9),
        total=st.integers(0, 10**9),
        started_at=numbers,
        loop_started_at=numbers,
        progress_at=numbers,
        ended_at=st.none() | numbers,
    ),
    series=st.lists(curves(), max_size=5).map(tuple),
    ends=st.lists(
        st.builds(
            End,
            attempt=st.integers(1, 3),
            reason=st.sampled_from([*EndReason, ""]),
            text=texts,
            host=st.sampled_from(["", "a"]),
            exit_code=st.none() | st.integers(-10, 300),
            signal=st.none() | st.sampled_from(["SIGKILL", "SIGBUS", "11", "", "nonsense"]),
            last_step=st.none() | st.integers(0, 99),
            at=numbers,
        ),
        max_size=3,
    ).map(tuple),
    lines=st.lists(
        st.builds(Line, numbers, st.sampled_from(["out", "err", "sys"]), st.integers(0, 3), texts), max_size=12
    ).map(tuple),
    told=st.lists(st.builds(Told, numbers, kinds, texts, data), max_size=5).map(tuple),
    hosts=st.lists(
        st.builds(HostRecord, st.sampled_from(["", "a"]), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
        max_size=2,
    ).map(tuple),
    aims=st.dictionaries(words, st.sampled_from(["min", "max", ""]), max_size=2),
    attempts=st.integers(0, 3),
)


@settings(deadline=None, max_examples=100)
@given(any_evidence)
def test_it_never_raises_and_every_finding_is_whole(seen: Evidence) -> None:
    for found in judge(seen):
        assert 0.5 <= found.confidence <= 1.0
        assert found.says
        assert found.what_to_do


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from(HEALTHY), st.floats(0, 0.2))
def test_noise_on_a_healthy_curve_never_makes_it_fatal(seed: int, make: Any, noise: float) -> None:
    random = np.random.default_rng(seed)
    rough = [
        replace(
            each,
            values=tuple((np.asarray(each.values) * np.exp(noise * random.standard_normal(len(each.values)))).tolist()),
        )
        for each in make(random)
    ]
    assert all(each.weight is not Weight.FATAL for each in judge(evidence(*rough)))


@pytest.mark.parametrize("end", ["", "KeyError: 'x'"])
def test_twenty_series_of_two_thousand_points_cost_some_milliseconds(end: str) -> None:
    """Measured: 3 ms of processor time, and 13 with 800 lines of an end. Ten times that passes on any machine."""
    names = [
        "loss",
        "val_loss",
        "train/aux_loss",
        "val/aux_loss",
        "acc",
        "val_acc",
        "lr",
        *(f"m{at}" for at in range(10)),
    ]
    random = np.random.default_rng(0)
    many = [series(name, np.exp(-np.arange(2000) / 700) + 0.1 * random.random(2000)) for name in names]
    many += [series(f"system/{name}", random.random(2000), kind="system") for name in ("cpu_percent", "gpu0_util", "x")]
    seen = evidence(*many, **(failed(end) if end else {}))
    flood = tuple(
        Line(1.0, "err", 0, f"step {at} loss=0.123 lr=1e-4 it/s 34 and more, as lines are") for at in range(800)
    )
    seen = replace(seen, lines=(*flood, *seen.lines))
    costs = []
    for _ in range(3):
        began = time.process_time()
        judge(seen)
        costs.append(time.process_time() - began)
    assert min(costs) < 0.15
