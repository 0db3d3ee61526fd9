"""The real rule of `every: auto` on recorded lifetimes of spot machines, beside fixed intervals.

    python -m whistlestop.testing.cadence_replay TRACES

TRACES is a directory of recordings, or one of them, in the forms of spot_traces.py. Every pool is one run that goes on
whenever there is a machine and is never warned. What is wasted: the time that saves block the loop, and the work that
is lost when a machine goes. The rule sees what it would see in production and nothing of what is to come: it measures
its costs, takes them over from the last durable checkpoint, and is told the pool's rate when an attempt begins.

A recording tells of a machine only at every probe. How long it really lived is drawn from in between, the same for all
rules: else a fixed interval that divides the gap of the probes would lose next to nothing, which nobody could have
known. `--as-recorded` takes lives as multiples of the gap all the same, to see how much that matters. It matters a lot.
"""

import argparse
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from whistlestop.sdk.cadence import PRIOR_SECONDS, AutoCadence, Cadence
from whistlestop.sdk.costs import Measured
from whistlestop.testing.spot_traces import Pool, Spell, read_families

SETTINGS = ((0.13, 1.5), (1.0, 5.0), (10.0, 60.0))  # seconds: what a save costs the loop, and until it is durable
FIXED = (300.0, 1800.0)
_DRAWS = 3
_FINENESS = 1.04  # between two fixed intervals that are tried


Known = Mapping[str, float | None]  # of costs, in a checkpoint


@dataclass(frozen=True)
class Waste:
    blocked: float = 0.0
    lost: float = 0.0
    uptime: float = 0.0

    def __add__(self, other: "Waste") -> "Waste":
        return Waste(self.blocked + other.blocked, self.lost + other.lost, self.uptime + other.uptime)

    @property
    def share(self) -> float:
        return (self.blocked + self.lost) / self.uptime if self.uptime else 0.0


@dataclass(frozen=True)
class Row:
    """Shares of the machines' time."""

    family: str
    save_seconds: float
    durable_seconds: float
    auto: float
    fixed: Mapping[float, float]  # by interval
    best: float  # of all fixed intervals, one for all pools, chosen in hindsight
    best_interval: float
    best_each: float  # the same, chosen for each pool by itself

    @property
    def ratio(self) -> float:
        return self.auto / self.best


def compare(family: str, pools: Sequence[Pool], save: float, durable: float, *, draws: int = _DRAWS) -> Row:
    """`draws` of every life; 0: as recorded."""
    if not draws:
        pools, draws = [replace(pool, gap=0.0) for pool in pools], 1
    drawn = [pool.drawn(random.Random(f"{pool.name} {number}")) for pool in pools for number in range(draws)]
    intervals = _intervals(max(5.0, durable))
    shares: dict[float, Waste] = {}
    each = [Waste() for _ in pools]
    for interval in (*FIXED, *intervals):
        wastes = [fixed_waste(spells, interval, save, durable) for spells in drawn]
        shares[interval] = sum(wastes, Waste())
        for index in range(len(pools)):
            own = sum(wastes[index * draws : (index + 1) * draws], Waste())
            each[index] = own if not each[index].uptime or own.share < each[index].share else each[index]
    auto = sum((replayed(AutoCadence(), spells, save, durable) for spells in drawn), Waste())
    best = min(intervals, key=lambda interval: shares[interval].share)
    return Row(
        family=family,
        save_seconds=save,
        durable_seconds=durable,
        auto=auto.share,
        fixed={interval: shares[interval].share for interval in FIXED},
        best=shares[best].share,
        best_interval=best,
        best_each=sum(each, Waste()).share,
    )


def replayed(cadence: Cadence, spells: Sequence[Spell], save: float, durable: float) -> Waste:
    """One run on one pool, machine after machine."""
    waste, ended = Waste(), 0
    known: Known = {}
    for spell in spells:
        measured = Measured((1 + ended) / (PRIOR_SECONDS + waste.uptime))  # as the server tells it at a launch
        measured.load(known)
        own, known = _attempt(cadence, measured, spell, save, durable, known)
        waste += own
        ended += spell.ended
    return waste


def _attempt(
    cadence: Cadence,
    measured: Measured,
    spell: Spell,
    save: float,
    durable: float,
    known: Known,
) -> tuple[Waste, Known]:
    """What it wastes, and what the last durable checkpoint knows of costs. As in the loop, the next save is planned
    when one is made; there are two slots, and one of them has to be free."""
    blocked, step, safe_at, slot_at = 0.0, 0, 0.0, 0.0
    under_way: list[tuple[float, float, Known]] = []  # durable at, work in it, costs in it
    kept = 0.0
    due = cadence.next_time(0.0, costs=measured.costs())
    while (begins := max(due, slot_at)) < spell.seconds:
        work, state = begins - blocked, measured.state()
        blocked += min(save, spell.seconds - begins)
        if (handed := begins + save) >= spell.seconds:
            break
        slot_at, safe_at = safe_at, max(handed, safe_at) + durable
        under_way.append((safe_at, work, state))
        step += 1
        measured.saved(step, save)
        while under_way and under_way[0][0] <= handed:
            _, kept, known = under_way.pop(0)
            measured.durable(step, durable)
        due = cadence.next_time(handed, costs=measured.costs(age=handed))
    for at, inside, costs in under_way:
        if at <= spell.seconds:
            kept, known = inside, costs
    lost = spell.seconds - blocked - kept if spell.ended else 0.0
    return Waste(blocked, lost, spell.seconds), known


def fixed_waste(spells: Sequence[Spell], interval: float, save: float, durable: float) -> Waste:
    """The same for a fixed interval, without a step for every save. Not for intervals below `durable`."""
    period, blocked, lost, uptime = interval + save, 0.0, 0.0, 0.0
    for spell in spells:
        whole, rest = divmod(spell.seconds, period)
        own = whole * save + max(0.0, rest - interval)
        kept = max(0.0, (spell.seconds - durable) // period) * interval
        blocked, uptime = blocked + own, uptime + spell.seconds
        lost += spell.seconds - own - kept if spell.ended else 0.0
    return Waste(blocked, lost, uptime)


def table(rows: Sequence[Row]) -> str:
    lines = ["δ / W s        auto   5 min  30 min  best fixed          auto/best  /best of each pool"]
    for index, row in enumerate(rows):
        if not index or rows[index - 1].family != row.family:
            lines.append(row.family)
        five, thirty = (row.fixed[each] for each in FIXED)
        lines.append(
            f"{row.save_seconds:>5g} / {row.durable_seconds:<4g} {row.auto:7.2%} {five:7.2%} {thirty:7.2%} "
            f"{row.best:7.2%} @{row.best_interval:5.0f} s {row.ratio:12.3f} {row.auto / row.best_each:14.3f}"
        )
    return "\n".join(lines)


def main(words: Sequence[str] | None = None, say: Callable[[str], object] = print) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, metavar="TRACES")
    parser.add_argument("--as-recorded", action="store_true", help="lives are multiples of the gap between two probes")
    chosen = parser.parse_args(words)
    draws = 0 if chosen.as_recorded else _DRAWS
    families = read_families(chosen.traces)
    if not families:
        print(f"{chosen.traces}: there is no recording in a form that is known here", file=sys.stderr)
        return 1
    rows = []
    for name, pools in families.items():
        ended = sum(spell.ended for pool in pools for spell in pool.spells)
        hours = sum(spell.seconds for pool in pools for spell in pool.spells) / 3600
        label = f"{name}: {len(pools)} pools, {ended} preemptions in {hours:,.0f} h"
        rows += [compare(label, pools, *costs, draws=draws) for costs in SETTINGS]
    say(table(rows))
    return 0


def _intervals(lowest: float, highest: float = 7200.0) -> list[float]:
    found = [lowest]
    while found[-1] < highest:
        found.append(found[-1] * _FINENESS)
    return found


if __name__ == "__main__":
    sys.exit(main())
