"""What the curves say: values that are none, a loss that runs away, does not fall, falls no more, or falls alone.

Every rule measures a change against the run's own noise and against what it has already survived.
"""

from collections.abc import Sequence

from whistlestop.diagnosis import names
from whistlestop.diagnosis.curve import Curve
from whistlestop.diagnosis.evidence import CAME_BACK, Evidence, Odd, Series
from whistlestop.diagnosis.findings import Cause, Finding
from whistlestop.diagnosis.learning import not_decreasing, plateaued
from whistlestop.diagnosis.overfitting import overfitting
from whistlestop.diagnosis.runaway import diverging

_LONG = 20  # points of a loss that goes on beside it
_LOOKED_AT = 8  # losses; more of them say the same


def findings(evidence: Evidence) -> list[Finding]:
    """The first kind that is found: what follows from it is not told as well."""
    odd = _non_finite(evidence)
    if odd or evidence.kind != "train":
        return odd
    own = _of_one_rank(evidence.series)
    game = names.is_game(own)
    losses = [Curve(each) for each in names.losses(own, evidence.aims)[:_LOOKED_AT] if len(each.steps) > 2]
    away = [each for each in (diverging(curve, evidence, own, game=game) for curve in losses) if each is not None]
    if away:
        return away[:1]
    calm = [] if game else [each for each in losses if not names.read(each.series.name).game]
    flat = not_decreasing(evidence, calm, own)
    found = [*([flat] if flat else []), *overfitting(evidence, own, game=game)]
    if found:
        return found
    level = plateaued(evidence, calm, own)
    return [level] if level else []


def _non_finite(evidence: Evidence) -> list[Finding]:
    """Of all metrics the one that went first: the others follow from it. While a loss goes on, what is only watched is
    less of a sign, and none for a while: a norm overflows as long as mixed precision seeks its scale."""
    odd = [(series.odd, series) for series in evidence.series if series.odd is not None and not _came_back(series)]
    sure = [each for each in odd if _matters(each[1], evidence) or not _goes_on(each[0], evidence)]
    odd = sure or [each for each in odd if _is_lost(each[1], evidence)]
    if not odd:
        return []
    first, series = min(odd, key=lambda each: (each[0].step, each[0].at, each[1].rank, each[1].name))
    where = f" on rank {series.rank}" if series.rank else ""
    before = [value for step, value in zip(series.steps, series.values, strict=False) if step < first.step][-5:]
    others = sorted({other.name for point, other in odd if other.name != series.name})
    return [
        Finding(
            Cause.NON_FINITE,
            0.99 if sure else 0.7,
            f"{series.name} is {first.value} since step {first.step:,}{where}",
            evidence=(
                *((f"before it: {', '.join(f'{value:.4g}' for value in before)}",) if before else ()),
                *((f"then also {', '.join(others[:5])}",) if others else ()),
            ),
            do=f"Go back to a checkpoint from before step {first.step:,}, with a lower learning rate or with gradient "
            "clipping; if it comes at the same step again, look at the data of that step.",
            metric=series.name,
            step=first.step,
            rank=series.rank,
            at=first.at,
        )
    ]


def _came_back(series: Series) -> bool:
    until = series.odd_until
    if series.kind == "system":
        return True
    return until is not None and sum(step > until for step in series.steps[-CAME_BACK:]) >= CAME_BACK


def _matters(series: Series, evidence: Evidence) -> bool:
    """A run is judged by it, and it had a value before."""
    assert series.odd is not None
    had = any(step < series.odd.step for step in series.steps)
    return bool(names.sign(series, evidence.aims)) and (had or series.odd.value == "nan")


def _goes_on(odd: Odd, evidence: Evidence, points: int = 1) -> bool:
    """A loss has been finite since, for so many points."""
    return any(
        each.odd is None and sum(step > odd.step for step in each.steps) >= points
        for each in evidence.series
        if each.kind != "system" and names.sign(each, evidence.aims) == 1
    )


def _is_lost(series: Series, evidence: Evidence) -> bool:
    """It had a value, or is none, and has had no other for long. A best that begins as infinite only waits for one."""
    assert series.odd is not None
    since = any(step > series.odd.step for step in series.steps)
    waits = series.odd.value != "nan" and not series.steps
    return not since and not waits and _goes_on(series.odd, evidence, _LONG)


def _of_one_rank(series: Sequence[Series]) -> list[Series]:
    """Of every metric the lowest rank's, in an order that does not depend on how they came."""
    found: dict[str, Series] = {}
    for each in sorted(series, key=lambda each: (each.name, each.rank, len(each.steps))):
        if each.kind != "system":
            found.setdefault(each.name, each)
    return list(found.values())
