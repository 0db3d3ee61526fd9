"""What a phase with a deadline should do now, and why, in words: deadline.py asked for one moment of a real run."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from whistlestop.capacity.deadline import Job, Moment, Offer, Policy, cheapest, safely

_AUTO: Final = 300.0  # seconds between two saves, where that is `auto`: more would cost it too much
_UNITS: Final = {"second": 1.0, "minute": 60.0, "hour": 3600.0}


@dataclass(frozen=True)
class Case:
    """A phase that may use both markets."""

    job: Job
    now: float  # seconds since the job began
    left: float  # seconds of work
    offers: Sequence[Offer]
    on: str | None  # the pool that it holds slots of
    starting: float = 0.0  # seconds until it works there
    look: float = 5.0  # seconds until somebody decides again, with what its estimates may be off
    risk: float = 0.0  # seconds of work that a loss takes back: on spot up to now, else between two saves at the most
    saves: bool = True  # False: for all that is known, it never does


@dataclass(frozen=True)
class Advice:
    pool: str | None  # None: wait
    why: str
    escalates: bool = False  # to on-demand, for the deadline's sake
    urgent: bool = False  # it must start now, wherever that is


def moment_of(case: Case) -> Moment:
    return Moment(case.now, case.left, case.on, case.offers, case.look, case.starting, case.risk)


def advise(policy: Policy, case: Case) -> Advice:
    moment = moment_of(case)
    chosen = moment.offer(safely(policy, case.job, moment))
    facts = f"{spoken(case.left)} of work in {spoken(case.job.time - case.now)}"
    cost = spoken(case.job.changeover)
    spot = cheapest(case.offers, spot=True)
    if chosen is None and spot is not None:
        return Advice(None, f"waits: the spot that is there goes too soon to be worth a move of {cost}: {facts}")
    if chosen is None:
        return Advice(None, f"waits for spot, which costs less: {facts}")
    if chosen.name == case.on:
        return Advice(case.on, "")
    if chosen.spot:
        return Advice(chosen.name, f"spot is the cheapest way to its deadline: {facts}")
    move = f"a move costs {cost}{_loss(case)}"
    if moment.slack(case.job) < case.job.changeover:
        why = f"the deadline can't be kept: {facts}, {move}: on-demand pool {chosen.name} comes closest"
        return Advice(chosen.name, why, escalates=True, urgent=True)
    if moment.slack(case.job) - case.look < 2 * case.job.changeover + case.risk:
        why = f"spot can't make the deadline: {facts}, {move}: on-demand pool {chosen.name} from here on"
        return Advice(chosen.name, why, escalates=True, urgent=True)
    held = "spot goes too soon to be worth it" if spot else "spot will hardly be back in time"
    return Advice(chosen.name, f"{held}: {facts}, {move}: on-demand pool {chosen.name} for now", escalates=True)


def between_saves(every: Iterable[str], pace: float | None) -> float:
    """Seconds, at the most, by what a spec says of its checkpoints; `pace`: seconds a step, where that is known.
    Infinite: nobody can tell, or it does not save by itself."""
    return min((_seconds_of(each, pace) for each in every), default=math.inf)


def _seconds_of(cadence: str, pace: float | None) -> float:
    count, _, unit = cadence.partition(" ")
    if cadence == "auto":
        return _AUTO
    if unit.startswith("step"):
        return int(count) * pace if pace is not None else math.inf
    return int(count) * _UNITS.get(unit.rstrip("s"), math.inf)


def _loss(case: Case) -> str:
    if not case.saves:
        return ", a loss all of it, as long as nobody knows how often it saves"
    return f", a loss {spoken(case.risk)} of work" if case.risk >= 1 else ""


def spoken(seconds: float) -> str:
    """3 h 10 min, 4 min, 30 s"""
    if seconds < 99.5:
        return f"{max(0.0, seconds):.0f} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{rest} min"
    return f"{hours} h {rest} min" if rest else f"{hours} h"
