"""A rank that logs every step later than the others: who is slow, where the SDK has not told it by itself."""

from collections import defaultdict

import numpy as np

from whistlestop.diagnosis.evidence import Evidence, Series
from whistlestop.diagnosis.findings import Cause, Finding
from whistlestop.diagnosis.trends import Values

_FEWEST, _MOST = 50, 200  # steps
_OFTEN = 0.8  # of them it comes last
_PART, _LEAST = 0.2, 0.005  # of a step, and seconds: clocks of two hosts are nearer to each other than that


def late_rank(evidence: Evidence) -> Finding | None:
    if any(each.kind == "straggler" and each.at >= evidence.place.started_at for each in evidence.told):
        return None  # the SDK measures it where it happens, and has the last word
    metrics: dict[str, list[Series]] = defaultdict(list)
    for each in evidence.series:
        if each.kind != "system":
            metrics[each.name].append(each)
    shared = max(
        (each for each in metrics.values() if len(each) > 1),
        key=lambda each: (min(len(one.steps) for one in each), each[0].name),
        default=None,
    )
    return _late(shared, evidence.place.started_at) if shared else None


def _late(ranks: list[Series], since: float) -> Finding | None:
    times = {each.rank: dict(zip(each.steps, each.times, strict=False)) for each in ranks}
    steps = sorted(set.intersection(*(set(each) for each in times.values())))[-_MOST:]
    steps = [step for step in steps if all(each[step] >= since for each in times.values())]
    if len(steps) < _FEWEST or len(times) < 2:
        return None
    numbers = sorted(times)
    table: Values = np.array([[times[rank][step] for step in steps] for rank in numbers])
    last = np.argmax(table, axis=0)
    who = int(np.bincount(last).argmax())
    share = float(np.mean(last == who))
    others = np.median(np.delete(table, who, axis=0), axis=0)
    lag = float(np.median(table[who] - others))
    pace = float(np.median(np.diff(others) / np.maximum(np.diff(np.asarray(steps, dtype=np.float64)), 1.0)))
    if share < _OFTEN or lag < max(_LEAST, _PART * pace) or lag > 2 * pace:
        return None
    return Finding(
        Cause.SLOW_RANK,
        0.8,
        f"rank {numbers[who]} is behind the others by {lag * 1000:.3g} ms of {pace * 1000:.3g} ms in every step",
        evidence=(f"it logged {ranks[0].name} last in {share:.0%} of {len(steps)} steps",),
        rank=numbers[who],
        step=int(steps[0]),
    )
