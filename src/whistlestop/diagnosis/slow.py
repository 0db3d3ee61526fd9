"""What holds it up: steps that take longer than they did, and data that comes late."""

import numpy as np

from whistlestop.diagnosis import names
from whistlestop.diagnosis.evidence import Evidence, Series
from whistlestop.diagnosis.findings import Cause, Finding
from whistlestop.diagnosis.ranks import late_rank
from whistlestop.diagnosis.step_times import Pace, pace_of
from whistlestop.diagnosis.trends import clean

_SLOWER = 1.6  # times its own earlier pace
_SLOWER_AT_ONCE, _SHORT, _LONG = 2.2, 1.0, 60.0  # the same, for less than a minute: neighbours come and go
_SLOWLY = 1.8  # the same, where it creeps
_LEAST = 0.004  # seconds a step more than before: below that, timers and neighbours make it
_WAITS = 0.4  # of a step, for data
_IDLE = 35.0  # per cent of one processor, or of a GPU
_WAIT_WORDS = frozenset({"data", "loader", "dataloader", "input", "fetch", "loading"})
_TIME_WORDS = frozenset({"time", "wait", "seconds", "s", "ms", "waiting", "latency", "duration", "sec"})
_STEP_WORDS = frozenset({"step", "iter", "iteration", "batch", "total"})


def findings(evidence: Evidence) -> list[Finding]:
    if evidence.kind != "train":
        return []
    pace = pace_of(evidence)
    found = late_rank(evidence) or _data_starved(evidence, pace) or _throttled(pace)
    return [found] if found else []


def _data_starved(evidence: Evidence, pace: Pace | None) -> Finding | None:
    """By the program's own clock of its data; else by processors that idle while its steps have become slow."""
    for each in evidence.series:
        if each.kind == "system" or each.rank or not _is_wait(each.name) or len(each.values) < 10:
            continue
        waits = clean(each.values)[-max(10, len(each.values) // 3) :]
        wait = float(np.median(waits)) * (0.001 if "ms" in names.read(each.name).words else 1.0)
        whole = _step_time(evidence) or (pace.now if pace else None)
        if whole and whole > 0 and wait >= _WAITS * whole and wait > _LEAST:
            return _late(
                f"{wait * 1000:.3g} ms of the {whole * 1000:.3g} ms of a step are spent waiting for data",
                (f"{each.name}, the median of its last {len(waits)} points",),
                0.95,
            )
    if pace is None or pace.now < 5 * _LEAST:
        return None
    used = _used(evidence, pace.began, pace.ended)
    if used is None:
        return None
    what, before, after = used
    if after < _IDLE and (pace.slower >= _SLOWER and after < 0.6 * before) and pace.lasts:
        return _late(
            f"a step takes {pace.now * 1000:.3g} ms, {pace.slower:.1f} times as long as before, while {what} went down "
            f"from {before:.0f} % to {after:.0f} %: it waits, and not for a processor",
            (f"since step {pace.step:,}",),
            0.7,
            step=pace.step,
        )
    if what != "the processor's use" and after < _IDLE and before < _IDLE:
        return _late(f"{what} is at {after:.0f} %: the accelerator waits for its data", (), 0.7)
    return None


def _late(says: str, evidence: tuple[str, ...], sure: float, step: int | None = None) -> Finding:
    return Finding(Cause.DATA_STARVED, sure, says, evidence=evidence, step=step)


def _throttled(pace: Pace | None) -> Finding | None:
    if pace is None or pace.now - pace.before < _LEAST or not pace.lasts:
        return None
    lasted = pace.ended - pace.began
    least = _SLOWLY if pace.creeps else _SLOWER_AT_ONCE if lasted < _LONG else _SLOWER
    if pace.slower < least or lasted < _SHORT:
        return None
    words = "and takes longer and longer" if pace.creeps else f"since step {pace.step:,}"
    return Finding(
        Cause.THROTTLED,
        0.85,
        f"a step takes {pace.now * 1000:.3g} ms, {pace.slower:.1f} times as long as before "
        f"({pace.before * 1000:.3g} ms), {words}",
        evidence=(f"the median of {pace.count:,} timed intervals; evaluations and restarts are left out",),
        do="Look for what grows with every step (a list, a graph that is kept, a log)."
        if pace.creeps
        else "Look at what else runs on the host, and at its temperature and clocks.",
        step=pace.step,
        at=pace.at,
    )


def _is_wait(name: str) -> bool:
    words = names.read(name).words
    return bool(words & _WAIT_WORDS and words & _TIME_WORDS)


def _step_time(evidence: Evidence) -> float | None:
    for each in evidence.series:
        words = names.read(each.name).words
        if words & _STEP_WORDS and words & _TIME_WORDS and not _is_wait(each.name) and len(each.values) >= 10:
            unit = 0.001 if "ms" in words else 1.0
            return float(np.median(clean(each.values)[-max(10, len(each.values) // 3) :])) * unit
    return None


def _used(evidence: Evidence, began: float, ended: float) -> tuple[str, float, float] | None:
    """Of the GPUs, or of the processors where there are none: before the steps became slow, and since."""
    busy = [each for each in evidence.series if each.kind == "system" and each.name.endswith("_util")]
    busy = busy or [each for each in evidence.series if each.kind == "system" and each.name.endswith("cpu_percent")]
    parts = [_around(each, began, ended) for each in busy]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    what = "the processor's use" if busy[0].name.endswith("cpu_percent") else "the GPU's use"
    return what, float(np.mean([part[0] for part in known])), float(np.mean([part[1] for part in known]))


def _around(series: Series, began: float, ended: float) -> tuple[float, float] | None:
    times, values = np.asarray(series.times, dtype=np.float64), clean(series.values)
    count = min(len(times), len(values))
    times, values = times[:count], values[:count]
    before, after = values[times < began], values[(times >= began) & (times <= ended)]
    if len(after) < 3 or len(before) < 2:
        return None
    return float(np.median(before)), float(np.median(after))
