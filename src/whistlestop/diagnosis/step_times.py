"""How long a step takes, by the times of what was logged: before, and now. Pauses for evaluation do not count."""

from dataclasses import dataclass

import numpy as np

from whistlestop.diagnosis.evidence import Evidence, Series
from whistlestop.diagnosis.trends import Values, blocks, clean, smooth, trend

_FEWEST = 40  # intervals
_BLOCKS = 30


@dataclass(frozen=True)
class Pace:
    before: float  # seconds a step
    now: float
    step: int  # since when
    at: float
    began: float  # the same as time
    ended: float
    lasts: bool  # all of the last part is slow
    creeps: bool  # it became slower and slower, not at once
    count: int

    @property
    def slower(self) -> float:
        return self.now / self.before if self.before > 0 else 1.0


def pace_of(evidence: Evidence) -> Pace | None:
    """Of the newest attempt: another host has another pace. None: too little was timed."""
    longest = max(
        (each for each in evidence.series if each.kind != "system" and not each.rank),
        key=lambda each: (len(each.steps), each.name),
        default=None,
    )
    if longest is None:
        return None
    steps, times = _in_order(longest, evidence.place.started_at)
    gone, passed = np.diff(steps), np.diff(times)
    whole = (gone > 0) & (passed >= 0)
    each, at, step = passed[whole] / gone[whole], times[1:][whole], steps[1:][whole]
    if len(each) < _FEWEST:
        return None
    each, at, step = each[2:], at[2:], step[2:]  # what is compiled or cached at first
    paces = blocks(each, _BLOCKS, 3)
    size = len(each) // len(paces)
    early = paces[: max(3, int(0.4 * len(paces)))]
    before = float(np.median(early))
    late = max(3, int(0.15 * len(paces)))
    now = float(np.median(paces[-late:]))
    middle = (before + now) / 2
    slow = paces > middle
    lasted = len(slow) if slow.all() else int(np.argmin(slow[::-1]))  # blocks
    index = max(0, len(each) - max(lasted, 1) * size)
    return Pace(
        before,
        now,
        int(step[index]),
        float(at[index]),
        float(at[index]),
        float(at[-1]),
        lasts=bool(lasted >= late and np.quantile(early, 0.9) < middle),
        creeps=trend(paces).tau > 0.6 and _is_gradual(paces),
        count=len(each),
    )


def _is_gradual(paces: Values) -> bool:
    """No single rise makes most of it."""
    levels = smooth(paces)
    whole = levels[-1] - levels[0]
    return bool(whole > 0 and np.diff(levels).max() < 0.4 * whole)


def _in_order(series: Series, since: float) -> tuple[Values, Values]:
    count = min(len(series.steps), len(series.times))
    steps, times = clean(series.steps[:count]), clean(series.times[:count])
    keep = times >= since
    steps, times = steps[keep], times[keep]
    order = np.argsort(steps, kind="stable")
    return steps[order], times[order]
