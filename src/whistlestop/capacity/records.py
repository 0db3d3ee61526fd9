"""How a pool has treated those who were on it: how often it takes its capacity back, and how often without a word.

Pure: the server hands in the pool's own record. What is long ago counts less for the choice of a pool; how often to
save goes by all of it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from whistlestop.capacity.pools import Market

# Before a pool has a record it is taken for one that reclaims once in two hours: saving a little too often costs
# seconds, saving too rarely costs hours. The record outweighs this after a few hours.
PRIOR_LOSSES = 1.0
PRIOR_SECONDS = 2 * 3600.0

HALF_LIFE = 3600.0  # after which a loss counts half for the choice of a pool
TOGETHER = 20.0  # seconds: what a pool takes back at once is one reclaim
_USUAL_SECONDS = 72 * 60.0  # of belief in how a pool's market usually is, ...
_USUAL_LOSSES = {Market.SPOT: 0.1, Market.ON_DEMAND: 0.002}  # ... which is: once in 12 hours, once in 25 days


class How(StrEnum):
    """How an attempt on a pool ended."""

    OTHERWISE = "otherwise"  # by itself, on request, or because we gave its slots to another
    RECLAIMED = "reclaimed"  # the pool took its slots back, and said so
    LOST = "lost"  # host or runner went without a word


@dataclass(frozen=True)
class Tenure:
    """One attempt on a pool."""

    pool: str
    began: float
    ended: float | None  # None: it is still there
    how: How = How.OTHERWISE
    saved_at_end: bool = False  # after a notice, and all it had done: no work was lost


@dataclass(frozen=True)
class Record:
    """What a pool's record comes to now."""

    reclaims: float = 0.0  # times that it took slots back, each the less the longer ago
    life: float = math.inf  # seconds that it left them on average, by the same measure
    rate: float = 0.0  # per second, with what is usual for its market as long as little is known
    last_hour: int = 0  # times that it took slots back in it


def unnoticed_rate(record: Iterable[Tenure], now: float) -> float:
    """Losses per second that no notice foretold in time for a save: (1 + losses) / (2 h + uptime)."""
    losses, uptime = PRIOR_LOSSES, PRIOR_SECONDS
    for tenure in record:
        uptime += max(0.0, (now if tenure.ended is None else tenure.ended) - tenure.began)
        losses += tenure.how is not How.OTHERWISE and not tenure.saved_at_end
    return losses / uptime


def summed(record: Iterable[Tenure], market: Market, now: float) -> Record:
    losses, uptime, moments = 0.0, 0.0, list[float]()
    for tenure in record:
        ended = now if tenure.ended is None else min(tenure.ended, now)
        uptime += (_weight(now - ended) - _weight(now - min(tenure.began, ended))) * HALF_LIFE / math.log(2)
        if tenure.how is not How.OTHERWISE:
            losses += _weight(now - ended)
            moments.append(ended)
    reclaims, last_hour, before = 0.0, 0, -math.inf
    for moment in sorted(moments):
        if moment - before > TOGETHER:
            reclaims += _weight(now - moment)
            last_hour += now - moment <= 3600
            before = moment
    return Record(
        reclaims=reclaims,
        life=uptime / losses if losses else math.inf,
        rate=(_USUAL_LOSSES[market] + losses) / (_USUAL_SECONDS + uptime),
        last_hour=last_hour,
    )


def _weight(age: float) -> float:
    return float(0.5 ** (age / HALF_LIFE))
