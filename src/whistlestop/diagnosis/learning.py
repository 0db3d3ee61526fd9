"""Whether it learns: a loss that has not come down from the start, and one that did and does no more."""

from collections.abc import Sequence

import numpy as np

from whistlestop.diagnosis import names
from whistlestop.diagnosis.curve import Curve, part_done
from whistlestop.diagnosis.evidence import Evidence, Series
from whistlestop.diagnosis.findings import Cause, Finding
from whistlestop.diagnosis.trends import blocks, noise, smooth, trend

_FEWEST = 30  # points before anything is said
_BEGINNING = 0.1  # of the points: where an output layer finds the mean of what it is taught, learning or not
_BY_THEN = 0.3  # of the run, if its length is known: the rate has warmed up
_HALF, _MANY = 0.5, 200  # of the run, or points where its length is not known
_NOTHING = 0.02  # of where it began: a fall that nobody would call learning, however sure
_LITTLE = 0.07  # the same, for the beginning
_HIDDEN = 0.12  # the same, that could be hidden in the noise
_LEARNED = 0.25  # a loss below this is not that of a model that has to learn everything: ln 2 is 0.69, a variance 1
_KNOWS = 0.8  # nor is an accuracy above this
_FAR_BELOW = 0.5  # of where the training loss began
_FLAT = 0.4  # of the points: the last part that shows no trend


def not_decreasing(evidence: Evidence, losses: Sequence[Curve], own: Sequence[Series]) -> Finding | None:
    """All of them: where one part of the loss falls, something is learned."""
    found = [_does_not_fall(evidence, each, own) for each in losses]
    if not found or None in found or _gets_better(evidence, own) or any(_knows_more(each, own) for each in losses):
        return None
    return found[0]


def _does_not_fall(evidence: Evidence, curve: Curve, own: Sequence[Series]) -> Finding | None:
    done = part_done(evidence, curve)
    if len(curve) < _FEWEST or (done is not None and done < _BY_THEN) or _goes_on(curve):
        return None
    rest = curve.values[int(_BEGINNING * len(curve)) :]
    rises = trend(blocks(rest, 30, 3))
    first, now = curve.start, float(np.median(rest[-max(5, len(rest) // 5) :]))
    size = max(abs(first), 1e-12)
    if 0 <= min(first, now) < _LEARNED:
        return None
    fell, could = -rises.change, -rises.change + 1.64 * rises.unsure
    nothing = first - now < _NOTHING * size and fell < _NOTHING * size
    # Before half of it is done a little may still become much: then it is said only where there is hardly any noise.
    late = done >= _HALF if done is not None else len(curve) >= _MANY
    hidden = late and rises.z > -1.64 and first - now < _LITTLE * size + curve.noise / np.sqrt(curve.first)
    sure = nothing or _validation_stands(curve, own)
    if _fell_before(curve) or not (nothing or hidden) or could > (2 * _HIDDEN if sure else _HIDDEN) * size:
        return None
    if not late and could > 2 * _NOTHING * size:
        return None
    words = "has risen" if rises.z > 3 and now > first else "has not come down"
    return Finding(
        Cause.NOT_DECREASING,
        0.95 if sure else 0.85,
        f"{curve.series.name} {words} in {len(curve):,} points up to step {curve.step_at(len(curve)):,}: "
        f"{curve.shown(first)} at the start, {curve.shown(now)} now",
        evidence=(
            f"its trend is {rises.change:+.2g} ± {rises.unsure:.1g} (z = {rises.z:+.1f}) with a noise of "
            f"{curve.noise:.2g} a point: a fall of {max(could, 0.0) / size:.0%} would have shown",
        ),
        metric=curve.series.name,
        step=curve.step_at(0),
    )


def _fell_before(curve: Curve) -> bool:
    """It did come down, and went up again: that is another thing, or harder data."""
    levels = curve.levels(12)
    unsure = curve.noise * (1.25 * 3 / np.sqrt(len(curve) // len(levels)) + 1 / np.sqrt(curve.first))
    return bool(curve.start - float(np.min(levels)) > 2 * _LITTLE * abs(curve.start) + unsure)


def _goes_on(curve: Curve) -> bool:
    """From what another run has learned."""
    return bool(curve.steps[0] > 0.2 * curve.steps[-1] and curve.steps[0] > 10)


def _validation_stands(curve: Curve, own: Sequence[Series]) -> bool:
    """Without the noise of batches: it has not moved by more than nothing."""
    stem = names.read(curve.series.name).stem
    for each in own:
        name = names.read(each.name)
        if name.validation and name.stem == stem and len(each.steps) >= 5:
            values = Curve(each).values
            return bool(np.ptp(values) < 0.5 * _NOTHING * max(abs(float(values[0])), 1e-12))
    return False


def _gets_better(evidence: Evidence, own: Sequence[Series]) -> bool:
    """A score that rises, or a validation loss that falls: it learns, whatever its training loss says. Or it has done
    so before: a score that is high."""
    for each in own:
        way = names.sign(each, evidence.aims)
        if way and len(each.steps) >= 3 and (way == -1 or names.read(each.name).validation):
            curve = Curve(each, way)
            if _has_gained(curve) or (way == -1 and _KNOWS < -float(np.median(curve.values)) <= 1.0):
                return True
    return False


def _knows_more(curve: Curve, own: Sequence[Series]) -> bool:
    """Validation is far below where training began, however hard that was made: what it knows it has learned, perhaps
    before the first look."""
    stem = names.read(curve.series.name).stem
    for each in own:
        name = names.read(each.name)
        if name.validation and name.stem == stem and len(each.steps) >= 3:
            now = float(np.median(Curve(each).values[-3:]))
            return bool(0 <= now < _FAR_BELOW * curve.start)
    return False


def _has_gained(curve: Curve) -> bool:
    """Much of what it was, and kept; or a little, with every look."""
    levels = curve.levels(30)
    size, change = max(abs(curve.start), 1e-12), trend(levels)
    gained = curve.start - float(np.median(levels[-3:]))
    if change.tau < -0.85 and gained > (0.25 if change.z < -2.4 else 1.0) * _NOTHING * size:
        return True
    least = 0.05 if len(levels) >= 5 else 0.2
    return bool(gained > max(least * size, 0.5 * (curve.start - float(np.min(smooth(levels)))), 2 * noise(levels)))


def plateaued(evidence: Evidence, losses: Sequence[Curve], own: Sequence[Series]) -> Finding | None:
    """A hint. Not where a schedule shows that its next drop is still to come, nor where validation still improves."""
    if not losses or _has_schedule(own):
        return None
    curve = losses[0]
    count = int(_FLAT * len(curve))
    if count < _FEWEST:
        return None
    flat, learned = blocks(curve.values[-count:], 20, 3), curve.start - float(np.min(curve.levels(30)))
    last = trend(flat)
    could = -last.change + 1.64 * last.unsure
    if learned < 5 * curve.noise or last.z < -1.64 or could > 0.05 * learned or _dropped_before(curve):
        return None
    if any(_still_improves(Curve(each, way), curve.steps[-count]) for each, way in _validations(evidence, own)):
        return None
    step = curve.step_at(len(curve) - count)
    return Finding(
        Cause.PLATEAUED,
        0.8,
        f"{curve.series.name} is at {curve.shown(float(np.median(flat)))} since step {step:,} and shows no trend",
        evidence=(f"over its last {count:,} points it changed by {last.change:+.2g} ± {last.unsure:.1g}",),
        metric=curve.series.name,
        step=step,
    )


def _validations(evidence: Evidence, own: Sequence[Series]) -> list[tuple[Series, int]]:
    pairs = [(each, names.sign(each, evidence.aims)) for each in own if names.read(each.name).validation]
    return [(each, way) for each, way in pairs if way and len(each.steps) >= 3]


def _still_improves(curve: Curve, since: float) -> bool:
    values = curve.values[curve.steps >= since]
    if len(values) < 4:
        return True
    change = trend(blocks(values, 20))
    learned = float(curve.values[0]) - float(np.min(curve.values))
    return change.z < -1.5 and -change.change > 0.02 * learned


def _has_schedule(own: Sequence[Series]) -> bool:
    """A rate that has changed in steps, or has risen again: what comes next may bring the next drop."""
    for each in own:
        if names.read(each.name).rate and len(each.steps) > 3:
            rate = Curve(each).values
            moved = np.diff(rate[len(rate) // 10 :])
            if np.any(moved > 0) or (np.any(moved < 0) and np.mean(moved != 0) < 0.5):
                return bool(rate[-1] > 0.02 * rate.max())
    return False


def _dropped_before(curve: Curve) -> bool:
    """It was flat and fell at once, before: as steps of a schedule look."""
    levels = curve.levels(40, 3)
    falls = -np.diff(levels)
    if len(falls) < 12:
        return False
    inner = falls[len(falls) // 6 :]
    at = int(np.argmax(inner)) + len(falls) // 6
    before = trend(levels[max(0, at - 5) : at + 1])
    return bool(inner.max() > 6 * np.median(np.abs(falls)) and abs(before.change) < 0.3 * inner.max())
