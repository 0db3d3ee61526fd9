"""Spot or on-demand under a deadline, on recordings of spot capacity: what each policy costs beside the optimum.

    WHISTLE_TRACES=DIRECTORY python bench/deadlines.py [--quick] [--starts 3] [--out FILE]

Nothing is timed: the policies of capacity/deadline.py, the very ones that the scheduler asks, are simulated minute by
minute on recordings, which are not part of this project. A job of 48 hours begins at many moments, one in each equal
part of the time, in the zones and in the half of the time that nothing was fitted on: the usual rates of
capacity/lifetimes.py come from three zones (TRAINING), first half. All policies get the same starts. Costs are shares
of what it costs on-demand only, in points of a hundred; a gap is a cost less the optimum in hindsight of the same
start. Cold: nothing is known of the pools when the job begins. Warm: what somebody saw who has looked for 14 days.
With up to six starts in a zone no two jobs share their time there. Cells are simulated beside each other, one a core.
"""

import os
import random
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from measuring import Result, alone

from whistlestop.capacity.deadline import Greedy, Job, Learned, Policy, UniformProgress
from whistlestop.capacity.hindsight import optimum
from whistlestop.capacity.simulation import simulate
from whistlestop.capacity.traces import Trace, read_traces

HOUR, DAY = 3600.0, 86400.0
WORK = 48 * HOUR
TIMES_DEARER = 3.145  # on-demand, as V100 were
FAMILY = "2023-02-15"
TRAINING = ("us-east-1c", "us-east-2a", "us-west-2b")
FRACTIONS = (0.65, 0.75, 0.85, 0.92)  # of the time to the deadline, which the work takes
CHANGEOVERS = (3, 12, 24)  # minutes
GREEDY, UNIFORM, UNIFORM_1, COLD, WARM = "greedy", "UP (2d)", "UP (1d)", "ours, cold", "ours, warm"
POLICIES: Mapping[str, tuple[Policy, float]] = {
    GREEDY: (Greedy(), 0.0),
    UNIFORM: (UniformProgress(2), 0.0),
    UNIFORM_1: (UniformProgress(1), 0.0),
    COLD: (Learned(), 0.0),
    WARM: (Learned(), 14 * DAY),
}
AIM = 0.5  # of the gap that Uniform Progress leaves


GRID_POOLS = (1, 3)
GANG = "h100_16_counts"
# "Can't Be Late", table 3: hours on spot of 48, at 0.8 and 12 min, on eight zones of two weeks of 2022
PUBLISHED = {GREEDY: 17.2, UNIFORM: 22.9}


@dataclass(frozen=True)
class Setting:
    fraction: float
    changeover: float  # minutes
    pools: int

    @property
    def job(self) -> Job:
        return Job(WORK, WORK / self.fraction, self.changeover * 60)

    @property
    def name(self) -> str:
        return f"{self.fraction:g}, {self.changeover:g} min, {self.pools} pool{'s' if self.pools > 1 else ''}"


@dataclass
class Cell:
    """One setting, all its samples."""

    setting: Setting
    least: list[float] = field(default_factory=list)
    costs: dict[str, list[float]] = field(default_factory=dict)
    spot_hours: dict[str, list[float]] = field(default_factory=dict)
    missed: int = 0

    def cost(self, policy: str) -> float:
        return statistics.mean(self.costs[policy])

    def gap(self, policy: str) -> float:
        return self.cost(policy) - statistics.mean(self.least)

    def error(self, policy: str) -> float:
        """Standard error of the gap."""
        gaps = [cost - least for cost, least in zip(self.costs[policy], self.least, strict=True)]
        return statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0

    def hours(self, policy: str) -> float:
        return statistics.mean(self.spot_hours[policy])

    def ratio(self, policy: str) -> float:
        return self.gap(policy) / self.gap(UNIFORM)


def sample(
    setting: Setting,
    traces: Sequence[Trace],
    *,
    starts: int,
    since: float,
    until: float,
    policies: Mapping[str, tuple[Policy, float]] = POLICIES,
    seed: int = 6,
) -> Cell:
    """`since` and `until`: shares of the recordings, between which a job begins and ends."""
    cell, job = Cell(setting), setting.job
    base = TIMES_DEARER * WORK / HOUR
    for first in traces:
        chance = random.Random(f"{seed} {setting} {first.name}")
        others = [trace for trace in traces if trace is not first]
        begin, end = first.seconds * since, first.seconds * until - job.time
        for number in range(starts):
            start = begin + (number + chance.random()) / starts * (end - begin)
            chosen = [first, *chance.sample(others, setting.pools - 1)]
            cell.least.append(optimum(job, chosen, on_demand=TIMES_DEARER, start=start) / base)
            for name, (policy, warm) in policies.items():
                outcome = simulate(job, chosen, policy, on_demand=TIMES_DEARER, start=start, warm=warm)
                cell.costs.setdefault(name, []).append(outcome.cost / base)
                cell.spot_hours.setdefault(name, []).append(outcome.on_spot / HOUR)
                cell.missed += outcome.late
    return cell


def measure(starts: int) -> Result:
    result = Result()
    where = os.environ.get("WHISTLE_TRACES")
    traces = read_traces(Path(where)) if where else []
    zones = [trace for trace in traces if trace.family == FAMILY]
    if not zones:
        result.notes["recordings"] = "none, so nothing was simulated; WHISTLE_TRACES says where they are"
        return result
    missed = _reproduce(result, zones, starts)
    test = [zone for zone in zones if zone.name.partition("_")[0] not in TRAINING]
    result.notes["tested on"] = (
        f"{', '.join(zone.name for zone in test)}: {starts} starts each, second half of the time"
    )
    gangs = [trace for trace in traces if trace.family == GANG]
    grid = [
        Setting(fraction, changeover, pools)
        for pools in GRID_POOLS
        for fraction in FRACTIONS
        for changeover in CHANGEOVERS
    ]
    ends = [Setting(fraction, 12, pools) for pools in GRID_POOLS for fraction in (FRACTIONS[0], FRACTIONS[-1])]
    with ProcessPoolExecutor(mp_context=get_context("fork")) as workers:
        tested = [workers.submit(sample, each, test, starts=starts, since=0.5, until=1.0) for each in grid]
        ganged = [workers.submit(sample, each, gangs, starts=starts // 2 or 1, since=0.0, until=1.0) for each in ends]
        cells = [each.result() for each in tested]
        beside = [each.result() for each in ganged] if gangs else []
    for cell in cells:
        _tell(result, cell, cell.setting.name)
    for pools in GRID_POOLS:
        of_them = [cell for cell in cells if cell.setting.pools == pools]
        for policy in (COLD, WARM):
            ratio = sum(cell.gap(policy) for cell in of_them) / sum(cell.gap(UNIFORM) for cell in of_them)
            name = f"all with {pools} pool{'s' if pools > 1 else ''}: gap of {policy}, times UP's"
            result.add(name, ratio, "x", aim=AIM)
    if gangs:
        result.notes["gangs"] = f"all or none of 16 H100 in {len(gangs)} zones, two weeks, of which nothing was fitted"
    for cell in beside:
        _tell(result, cell, f"gang of 16, {cell.setting.name}")
    missed += sum(cell.missed for cell in [*cells, *beside])
    result.add("missed deadlines, of all simulated jobs", missed, "jobs", aim=0)
    return result


def _reproduce(result: Result, zones: Sequence[Trace], starts: int) -> int:
    """Greedy and Uniform Progress where their figures are known; nothing of ours is in it."""
    policies = {name: POLICIES[name] for name in PUBLISHED}
    whole = sample(Setting(0.8, 12, 1), zones, starts=starts, since=0.0, until=1.0, policies=policies)
    fortnight = sample(Setting(0.8, 12, 1), zones, starts=starts, since=0.0, until=1 / 3, policies=policies)
    for name, hours in PUBLISHED.items():
        result.add(
            f"published setting: {name}, hours on spot (table 3, other weeks: {hours:g})", fortnight.hours(name), "h"
        )
        result.add(f"published setting: {name}, gap, first two weeks", 100 * fortnight.gap(name), "points")
        result.add(f"published setting: {name}, gap, all six weeks", 100 * whole.gap(name), "points")
    return whole.missed + fortnight.missed


def _tell(result: Result, cell: Cell, name: str) -> None:
    for policy in cell.costs:
        result.add(f"{name}: gap of {policy}", 100 * cell.gap(policy), "points")
    for policy in (COLD, WARM):
        result.add(f"{name}: gap of {policy}, times UP's", cell.ratio(policy), "x", aim=AIM)
    least = 100 * statistics.mean(cell.least)
    said = (f"{policy} {100 * cell.cost(policy):.1f} ± {100 * cell.error(policy):.1f}" for policy in cell.costs)
    result.notes[name] = f"{len(cell.least)} jobs; the least {least:.1f}; cost, and error of its gap: {', '.join(said)}"
    result.raw |= {f"{name}: {policy}": [round(each, 5) for each in costs] for policy, costs in cell.costs.items()}
    result.raw[f"{name}: the least"] = [round(each, 5) for each in cell.least]


if __name__ == "__main__":
    alone(measure, full=3, quick=1, doc=__doc__, what="starts")
