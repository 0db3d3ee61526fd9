"""A job on recorded capacity: what a policy would have cost, and when it would have been done."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from whistlestop.capacity.deadline import Job, Learned, Moment, Offer, Policy, safely
from whistlestop.capacity.lifetimes import Record
from whistlestop.capacity.traces import Trace

TICK: Final = 60.0
FIRM: Final = "on-demand"


@dataclass(frozen=True)
class Piece:
    """Of the time line: what it was on, and whether it worked."""

    on: str | None
    working: bool
    since: float
    until: float


@dataclass
class Outcome:
    cost: float = 0.0  # credits
    finished: float | None = None  # seconds since its beginning; None: not in time
    preemptions: int = 0
    changes: int = 0  # entries into a pool
    on_spot: float = 0.0  # seconds
    pieces: list[Piece] = field(default_factory=list)

    @property
    def late(self) -> bool:
        return self.finished is None


def simulate(
    job: Job,
    traces: Sequence[Trace],
    policy: Policy,
    *,
    on_demand: float | None,
    start: float = 0.0,
    warm: float = 0.0,
    between: float = 0.0,
) -> Outcome:
    """`on_demand`: credits per hour; None: there is none, and deadlines may be missed. `start`: where in the traces it
    begins. `warm`: seconds before that which a policy that learns may know. `between`: seconds of work between two
    saves, which a loss takes back; 0: none is ever lost."""
    records = {trace.name: Record() for trace in traces}
    if isinstance(policy, Learned):
        policy = replace(policy, records=records)
        _warm_up(records, traces, start, warm)
    firm = [] if on_demand is None else [Offer(FIRM, on_demand / 3600, spot=False)]
    price = {trace.name: trace.price / 3600 for trace in traces} | {each.name: each.price for each in firm}
    outcome, now, left, on, starting = Outcome(), 0.0, job.work, None, 0.0
    unsaved = 0.0
    while now < job.time and left > 1e-6:
        up = {trace.name: trace.at(start + now) for trace in traces}
        for trace in traces:
            records[trace.name].see(now, up[trace.name])
        if on is not None and not up.get(on, True):
            outcome.preemptions += 1
            left, unsaved = left + unsaved, 0.0
            on, starting = None, 0.0
        offers = [Offer(name, price[name], True, there) for name, there in up.items()]
        risk = unsaved if on in up else min(between, left)
        wanted = safely(policy, job, Moment(now, left, on, [*offers, *firm], TICK, starting, risk))
        if on is not None and math.isinf(between):
            wanted = on  # nobody is moved that has nothing to go on from
        if wanted != on:
            unsaved = 0.0  # who moves saves first
            on, starting = wanted, job.changeover if wanted is not None else 0.0
            outcome.changes += wanted is not None
        worked, length = 0.0, min(TICK, job.time - now)
        if on is not None:
            worked = min(left, max(0.0, length - starting))
            left -= worked
            unsaved = unsaved + worked if unsaved + worked < between else 0.0
            spent = length if left > 1e-6 else starting + worked
            outcome.cost += price[on] * spent
            outcome.on_spot += spent if on in up else 0.0
            starting = max(0.0, starting - TICK)
            if left <= 1e-6:
                outcome.finished = now + spent
        _note(outcome, on, worked > 0, now)
        now += TICK
    return outcome


def _note(outcome: Outcome, on: str | None, working: bool, now: float) -> None:
    last = outcome.pieces[-1] if outcome.pieces else None
    if last is not None and (last.on, last.working) == (on, working):
        outcome.pieces[-1] = Piece(on, working, last.since, now + TICK)
    else:
        outcome.pieces.append(Piece(on, working, now, now + TICK))


def _warm_up(records: dict[str, Record], traces: Sequence[Trace], start: float, warm: float) -> None:
    for trace in traces:
        at = max(0.0, start - warm)
        while at < start:
            records[trace.name].see(at - start, trace.at(at))
            at += trace.gap
