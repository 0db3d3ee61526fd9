"""Which pool next: the user's own order, else the cheapest by what an hour of work costs there by its record; and when
one is left for another because it keeps taking back what it gives. Pure; where there is room is in room.py."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from whistlestop.capacity.pools import Pool
from whistlestop.capacity.records import Record
from whistlestop.domain.clock import iso
from whistlestop.domain.credits import priced

CHANGEOVER = 60.0  # seconds from a loss until it works again, as long as nobody has said or measured it
LOSS = 60.0  # seconds of work that a loss costs beside it
PASSED_OVER = 600.0  # seconds for which a pool is passed over by a phase that it took slots back from, for each time
LOOK_BACK = 3600.0  # seconds in which these times are counted
OFTEN = 1.5  # times by the decaying count from which on a pool reclaims repeatedly, ...
SHORT = 600.0  # ... if it leaves its slots for less than this many seconds,
CHANGEOVERS = 5.0  # or than this many changeovers
HARDLY_USEFUL = 0.25  # of its time on a pool: below it, waiting for another one is better


@dataclass(frozen=True)
class Wants:
    """What a phase may run on. Phases with equal ones are judged once."""

    slots: int = 1
    pools: tuple[str, ...] = ()  # by name, in order; empty: any
    kind: str = ""
    region: str = ""
    market: str = "any"
    changeover: float = CHANGEOVER

    def allow(self, pool: Pool) -> bool:
        return (
            (not self.pools or pool.name in self.pools)
            and self.kind in ("", pool.kind)
            and self.region in ("", pool.region)
            and self.market in ("any", pool.market)
        )


@dataclass(frozen=True)
class Candidate:
    """A pool that a phase may use."""

    pool: Pool
    useful: float = 1.0  # the part of its time there that is not lost to reclaims
    trouble: str = ""  # why another one is better, in words

    @property
    def effective(self) -> float:
        """Credits for an hour of work."""
        return self.pool.price / self.useful


def candidates(wants: Wants, pools: Iterable[Pool], records: Mapping[str, Record]) -> list[Candidate]:
    """Those that it may use, the best one first, whatever room they have now."""
    found = [_judged(pool, records.get(pool.name, Record()), wants) for pool in pools if wants.allow(pool)]
    if wants.pools:
        return sorted(found, key=lambda each: wants.pools.index(each.pool.name))
    return sorted(found, key=lambda each: (each.effective, each.pool.rank, each.pool.name))


def for_phase(found: Sequence[Candidate], reclaims: Sequence[tuple[str, float]], now: float) -> list[Candidate]:
    """The same, with what these pools have done to this very phase: `reclaims` are pool and time."""
    if not reclaims:
        return list(found)
    return [_with_reclaims(each, [at for pool, at in reclaims if pool == each.pool.name], now) for each in found]


def how(chosen: Candidate, found: Sequence[Candidate], wants: Wants) -> str:
    """Why this one, in words; empty where there was nothing to choose."""
    if len(found) < 2:
        return f"the only one that it may use, although {chosen.trouble}" if chosen.trouble else ""
    if chosen.trouble:
        return f"no other one can take it now, although {chosen.trouble}"
    if wants.pools:
        return f"number {wants.pools.index(chosen.pool.name) + 1} in its list"
    return f"the cheapest that can take it, at {_cost(chosen)}"


def _judged(pool: Pool, record: Record, wants: Wants) -> Candidate:
    # Of lives that end by chance at this rate, the mean of what is left of one after so many seconds is this part.
    useful = max(0.01, math.exp(-record.rate * (wants.changeover + LOSS)))
    trouble = ""
    if record.reclaims >= OFTEN and record.life < max(SHORT, CHANGEOVERS * wants.changeover):
        often = f"{_times(record.last_hour)} in the last hour" if record.last_hour else "again and again lately"
        trouble = f"it took slots back {often}, after {_span(record.life)} each"
    return Candidate(pool, useful, trouble)


def _with_reclaims(candidate: Candidate, times: Sequence[float], now: float) -> Candidate:
    recent = [at for at in times if now - at < LOOK_BACK]
    if not recent:
        return candidate
    until = max(recent) + PASSED_OVER * len(recent)
    if now >= until:
        return candidate
    often = _times(len(recent))
    words = f"this phase's slots were taken back there {often} in the last hour (passed over until {iso(until)})"
    return Candidate(candidate.pool, candidate.useful, words)


def _cost(candidate: Candidate) -> str:
    price = f"{priced(candidate.pool.price)} per slot-hour"
    if candidate.useful > 0.98:
        return price
    return f"{price}, {candidate.effective:.3g} for an hour of work by its record"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
