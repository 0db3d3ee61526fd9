"""A validation metric that gets worse while its training twin still gets better."""

from collections.abc import Sequence

import numpy as np

from whistlestop.diagnosis import names
from whistlestop.diagnosis.curve import Curve
from whistlestop.diagnosis.evidence import Evidence, Series
from whistlestop.diagnosis.findings import Cause, Finding
from whistlestop.diagnosis.trends import blocks, noise, smooth, trend

_FEWEST = 6  # evaluations
_MOST = 60  # levels; of more evaluations those beside each other are taken together
_SURE = 2.7  # standard errors: its best is the best of many
_WORSE = 0.1  # of its best value, or of what it had learned


def overfitting(evidence: Evidence, own: Sequence[Series], *, game: bool = False) -> list[Finding]:
    """Of several validation metrics the one that got worse by most. One that is aimed at decides alone, and in a game
    only such a one."""
    pairs = [(each, names.sign(each, evidence.aims)) for each in own if names.read(each.name).validation]
    aimed = [pair for pair in pairs if pair[0].name in evidence.aims]
    if game and not aimed:
        return []
    pairs = aimed or [pair for pair in pairs if pair[1] == 1] or [pair for pair in pairs if pair[1]]
    found = [_overfits(Curve(each, sign), own) for each, sign in pairs if sign and len(each.steps) >= _FEWEST]
    worst = max((each for each in found if each is not None), key=lambda each: (each[0], each[1].metric), default=None)
    return [worst[1]] if worst else []


def _overfits(curve: Curve, own: Sequence[Series]) -> tuple[float, Finding] | None:
    values, steps = curve.levels(_MOST), blocks(curve.steps, _MOST)
    levels = smooth(values)
    best = int(np.argmin(levels))
    since = values[best:]
    if len(since) < 4:
        return None
    later = since[len(since) // 2 :]
    low, last = float(levels[best]), float(np.median(later))
    worse = (last - low) / max(abs(low), 1e-12)
    learned = max(float(np.median(values[: max(1, min(2, best))])) - low, 0.0)
    unsure = 1.25 * max(noise(values), 1e-12) * np.sqrt(1 / len(later) + 1 / 3)  # of these, and of three
    stays = float(np.mean(np.append(later, values[-3:]) > low + 0.5 * (last - low)))
    if last - low < max(_WORSE * abs(low), 0.05 * learned, _SURE * unsure) or stays < 0.7:
        return None
    twin = names.twin(curve.series, own)
    if twin is None or len(twin.steps) < _FEWEST:
        return None
    training = Curve(twin, curve.sign)
    here = float(steps[best])
    after = training.values[training.steps >= here]
    if len(after) < 4 or trend(blocks(after, 30)).z > -2:
        return None
    begun, now = (
        float(np.median(part)) for part in (after[: max(1, len(after) // 8)], after[-max(1, len(after) // 8) :])
    )
    step = int(here)
    found = Finding(
        Cause.OVERFITTING,
        0.95 if worse > 0.25 else 0.85,
        f"{curve.series.name} was best at step {step:,} ({curve.shown(low)}) and is {curve.shown(last)} now, while "
        f"{twin.name} went on from {training.shown(begun)} to {training.shown(now)}",
        evidence=(f"{curve.series.name} after its best: " + ", ".join(curve.shown(value) for value in since[-8:]),),
        do=f"Stop now and keep the checkpoint nearest to step {step:,}; more data or regularization helps the next.",
        metric=curve.series.name,
        step=step,
    )
    return worse, found
