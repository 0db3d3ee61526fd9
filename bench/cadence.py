"""`every: auto` on the lifetimes of spot machines, beside fixed intervals: what is wasted of the machines' time.

    WHISTLE_TRACES=DIRECTORY python bench/cadence.py [--quick] [--draws 3] [--out FILE]

Nothing is timed: the rule itself is replayed (testing/cadence_replay.py) on recordings, which are not part of this
project, and on lives without a memory that are drawn here. How long a recorded life really was is drawn from between
two probes; beside it, for comparison, lives in whole probes, whose gap a fixed interval may divide. A save costs δ
seconds of the loop and is durable W later.
"""

import os
import random
from pathlib import Path

from measuring import Result, alone

from whistlestop.testing.cadence_replay import FIXED, SETTINGS, compare
from whistlestop.testing.spot_traces import Pool, Spell, read_families

TIMES_BEST = 1.1
DRAWN = {"drawn, 20 min": 1200.0, "drawn, 2 h": 7200.0, "drawn, 20 h": 72000.0}  # seconds between two preemptions


def measure(draws: int) -> Result:
    result = Result()
    families = {name: drawn(between) for name, between in DRAWN.items()}
    if traces := os.environ.get("WHISTLE_TRACES"):
        families |= read_families(Path(traces))
    else:
        result.notes["recordings"] = "none; WHISTLE_TRACES says where they are"
    for family, pools in families.items():
        lives = [spell for pool in pools for spell in pool.spells]
        hours = sum(spell.seconds for spell in lives) / 3600
        ended = sum(spell.ended for spell in lives)
        result.notes[family] = f"{len(pools)} pools, {ended:,} preemptions in {hours:,.0f} h"
        for save, durable in SETTINGS:
            row = compare(family, pools, save, durable, draws=draws)
            name = f"{family}, δ {save:g} W {durable:g}"
            result.add(f"{name}: auto", row.auto * 100, "%")
            for interval in FIXED:
                result.add(f"{name}: every {interval / 60:g} min", row.fixed[interval] * 100, "%")
            result.add(f"{name}: best fixed, {row.best_interval:.0f} s", row.best * 100, "%")
            result.add(f"{name}: auto, times the best fixed", row.ratio, "x", aim=TIMES_BEST)
            result.add(f"{name}: auto, times the best of each pool", row.auto / row.best_each, "x")
            if family not in DRAWN:
                recorded = compare(family, pools, save, durable, draws=0)
                best = f"best fixed, {recorded.best_interval:.0f} s"
                result.add(f"{name}: auto, times the {best}, lives in whole probes", recorded.ratio, "x")
    return result


def drawn(between: float) -> list[Pool]:
    pools = []
    for number in range(5):
        chance = random.Random(f"{between} {number}")
        pools.append(Pool(f"pool {number}", 0.0, [Spell(chance.expovariate(1 / between)) for _ in range(100)]))
    return pools


if __name__ == "__main__":
    alone(measure, full=3, quick=1, doc=__doc__, what="draws")
