"""A training loss that runs away: blown up, thrown back and not coming down again, or rising slowly for long.

A bump that comes back is none of them: a warm-up, a restart of the schedule, a spike, the two sides of a game. Whoever
has come back from such a rise before is taken to come back again.
"""

from collections.abc import Sequence

import numpy as np

from whistlestop.diagnosis import names
from whistlestop.diagnosis.curve import Curve, part_done
from whistlestop.diagnosis.evidence import Evidence, Series
from whistlestop.diagnosis.findings import Cause, Finding
from whistlestop.diagnosis.trends import Values, blocks, noise, recovered, trend

_EARLY = 0.1  # of the run: a rise may be the warm-up's
_BLOWN = ((100.0, 3, 0.0), (10.0, 6, 0.03), (1.0, 15, 0.1))  # times where it began; points and part of the run it lasts
_THROWN = 0.6  # of what it had learned, gone
_CREEPS = 0.6  # the same, where it has risen steadily
_AGAIN = 1.3  # a rise is new if it is this much above those it came back from
_LEVELS = 60
_LOOKS, _FOLLOWS, _STANDS = 3, 0.2, 3.0  # of validation since then; of the training loss's rise; times its own best


def diverging(curve: Curve, evidence: Evidence, own: Sequence[Series], *, game: bool) -> Finding | None:
    """`game`: its losses go up and down as they like, and only a blow-up counts."""
    if len(curve) < 4:
        return None
    levels = curve.levels(_LEVELS, least=1 if len(curve) < 40 else 3)
    best = int(np.argmin(levels))
    size = len(curve) // len(levels)
    low, last = float(levels[best]), float(np.median(curve.values[-size:]))
    before = curve.values[: max(8, (best + 1) * size)]
    unit = max(noise(before), 1e-12)
    learned = max(curve.start - low, 0.0)
    if last - low <= 6 * unit / np.sqrt(size):
        return None
    early = (part_done(evidence, curve) or 1.0) < _EARLY
    where = _blown(curve, learned, unit, least=100.0 if game else 10.0 if early else 0.0)
    how = "is at"
    if where is None and not game:
        where, how = _thrown_back(curve, levels, best, learned, unit), "was thrown back to"
    if where is None and not game and not early:
        where, how = _creeping(curve, levels, best, learned, unit), "has crept up to"
    if where is None or _validation_holds(curve, own, last - low, since=curve.step_at(where), blown=how == "is at"):
        return None
    step = curve.step_at(where)
    return Finding(
        Cause.DIVERGING,
        0.97 if how == "is at" else 0.9,
        f"{curve.series.name} {how} {curve.shown(last)}, from {curve.shown(low)} around step "
        f"{curve.step_at(best * size):,}, and does not come down; it rises since step {step:,}",
        evidence=(
            f"{curve.series.name}: {curve.shown(curve.start)} at the start, {curve.shown(low)} at best, "
            f"{curve.shown(last)} now; its noise is {unit:.2g}",
        ),
        do=f"Go back to a checkpoint from before step {step:,}, with a lower learning rate or gradient clipping.",
        metric=curve.series.name,
        step=step,
    )


def _blown(curve: Curve, learned: float, unit: float, *, least: float) -> int | None:
    """Far above where it began, for a number of points that is the smaller the farther it is."""
    values = curve.values
    scale = max(abs(curve.start), learned, 3 * unit)
    for times, points, part in _BLOWN:
        if times < least:
            continue
        high = values > curve.start + times * scale
        tail = _tail(high)
        if tail < max(points, int(part * len(values))):
            continue
        after = values[-tail:]
        if not _comes_down(after) or (times >= 10 and tail >= 0.3 * len(values)):
            return len(values) - _tail(values > curve.start + min(times, 1.0) * scale)
    return None


def _thrown_back(curve: Curve, levels: Values, best: int, learned: float, unit: float) -> int | None:
    """Most of what it had learned is lost, and does not come again."""
    if learned < 6 * unit or best >= len(levels) - 3:
        return None
    excess = float(levels[-1] - levels[best])
    if excess < _THROWN * learned or excess < _AGAIN * recovered(levels[: _onset(levels, best, excess) + 1]):
        return None
    tail = _tail(curve.values > float(levels[best]) + 0.5 * excess, slack=0.1)
    if tail < max(20, int(0.15 * len(curve))) or _comes_down(curve.values[-tail:]):
        return None
    return len(curve) - tail


def _creeping(curve: Curve, levels: Values, best: int, learned: float, unit: float) -> int | None:
    since = levels[best:]
    size = len(curve) // len(levels)
    if len(since) < 10 or len(since) < 0.25 * len(levels) or len(since) * size < 30:
        return None
    rises = trend(blocks(since, 30))
    low = float(levels[best])
    excess = float(np.median(since[-3:])) - low
    scale = max(_CREEPS * learned, 0.15 * abs(low), 0.3 * abs(curve.start) if learned < 6 * unit else 0.0)
    if rises.z < 4 or rises.tau < 0.6 or excess < scale or excess < 3 * unit:
        return None
    if excess < _AGAIN * recovered(levels[: best + 1]) or trend(since[-max(8, len(since) // 4) :]).z < -1.5:
        return None
    return best * size


def _validation_holds(curve: Curve, own: Sequence[Series], excess: float, *, since: int, blown: bool) -> bool:
    """The data became harder, not the model worse: validation has kept most of what it had learned, or has risen by a
    small part of what the training loss has, since that rises. What has blown up needs the second."""
    stem = names.read(curve.series.name).stem
    for each in own:
        name = names.read(each.name)
        if name.validation and name.stem == stem and len(each.steps) >= 2:
            values = Curve(each).values
            low, last = float(values.min()), float(np.median(values[-3:]))
            stands = max(last, float(values[-1])) < _STANDS * abs(low) and last - low < _FOLLOWS * excess
            if stands and sum(step > since for step in each.steps) >= _LOOKS:
                return True
            return not blown and last - low < 0.5 * (float(values[0]) - low)
    return False


def _onset(levels: Values, best: int, excess: float) -> int:
    above = np.nonzero(levels[best:] > levels[best] + 0.25 * excess)[0]
    return best + (int(above[0]) if len(above) else 0)


def _tail(high: "np.ndarray[tuple[int], np.dtype[np.bool_]]", slack: float = 0.0) -> int:
    """How many of the last points are high, but for a part of them that may not be."""
    low = np.cumsum(~high[::-1])
    fits = np.nonzero(low <= slack * np.arange(1, len(low) + 1))[0]
    return int(fits[-1]) + 1 if len(fits) else 0


def _comes_down(after: Values) -> bool:
    """It has turned: what came after the peak falls by more than chance."""
    if len(after) < 6:
        return bool(after[-1] < 0.5 * after.max() and after[-1] < after[0])
    falls = trend(blocks(after, 30))
    return falls.z < -2.0
