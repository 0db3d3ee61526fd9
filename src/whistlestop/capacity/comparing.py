"""One job under every policy, on the same capacity: what `whistle simulate` shows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from whistlestop.capacity.deadline import Greedy, Job, Learned, OnDemandOnly, Policy, UniformProgress
from whistlestop.capacity.hindsight import optimum
from whistlestop.capacity.simulation import Outcome, simulate
from whistlestop.capacity.traces import Trace

OURS = "ours"
SPOT_ONLY = "spot only"
POLICIES: dict[str, Policy] = {
    SPOT_ONLY: Greedy(),
    "on-demand only": OnDemandOnly(),
    "greedy": Greedy(),
    "uniform progress": UniformProgress(),
    OURS: Learned(),
}


@dataclass
class Row:
    """A policy, over all the starts that were tried."""

    name: str
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def cost(self) -> float:
        return sum(each.cost for each in self.outcomes) / len(self.outcomes)

    @property
    def missed(self) -> int:
        return sum(each.late for each in self.outcomes)

    @property
    def preemptions(self) -> float:
        return sum(each.preemptions for each in self.outcomes) / len(self.outcomes)

    @property
    def finished(self) -> float | None:
        """Hours from its beginning, of those that were in time."""
        done = [each.finished for each in self.outcomes if each.finished is not None]
        return sum(done) / len(done) / 3600 if done else None


@dataclass
class Comparison:
    job: Job
    rows: list[Row]
    least: float  # credits, in hindsight, on average
    starts: Sequence[float]


def compare(
    job: Job,
    traces: Sequence[Trace],
    *,
    on_demand: float,
    starts: Sequence[float],
    warm: float = 0.0,
    between: float = 0.0,
) -> Comparison:
    """`between`: see simulate. The least in hindsight loses nothing."""
    rows = []
    for name, policy in POLICIES.items():
        price = None if name == SPOT_ONLY else on_demand
        outcomes = [
            simulate(job, traces, policy, on_demand=price, start=start, warm=warm, between=between) for start in starts
        ]
        rows.append(Row(name, outcomes))
    least = [optimum(job, traces, on_demand=on_demand, start=start) for start in starts]
    return Comparison(job, rows, sum(least) / len(least), starts)
