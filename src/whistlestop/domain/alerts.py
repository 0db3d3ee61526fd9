"""What people are told of while they look elsewhere: the closed list of kinds, which event makes which, and when a
receiver that does not answer is tried again. Pure."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


class AlertKind(StrEnum):
    FAILED = "failed"
    DONE = "done"
    KILLED = "killed"  # somebody asked for it: only who wants to hear of it does
    STUCK = "stuck"
    NON_FINITE = "non_finite"
    FINDING = "finding"  # another one that weighs fatal or bad
    PREEMPTED_OFTEN = "preempted_often"
    CHECKPOINT_TOO_OLD = "checkpoint_too_old"
    BUDGET_80 = "budget_80"
    GUARD = "guard"  # one has acted, or would have
    ATTENTION = "attention"  # the run waits for a person
    TEST = "test"  # somebody tries a receiver out


SAYS: Mapping[AlertKind, str] = {
    AlertKind.FAILED: "has failed",
    AlertKind.DONE: "is done",
    AlertKind.KILLED: "was killed",
    AlertKind.STUCK: "is stuck",
    AlertKind.NON_FINITE: "has a metric that is no longer a number",
    AlertKind.FINDING: "is not well",
    AlertKind.PREEMPTED_OFTEN: "loses its capacity again and again",
    AlertKind.CHECKPOINT_TOO_OLD: "has not saved for too long",
    AlertKind.BUDGET_80: "has used 80 % of a budget",
    AlertKind.GUARD: "has met a guard",
    AlertKind.ATTENTION: "waits for a person",
    AlertKind.TEST: "is a test",
}
KINDS = tuple(kind for kind in AlertKind if kind is not AlertKind.TEST)  # that can be asked for
DEFAULT = tuple(kind for kind in KINDS if kind is not AlertKind.KILLED)

ENDED = "ended"  # of an attempt: of several in a row the run is preempted often
_BY_EVENT: Mapping[str, AlertKind] = {
    "run_failed": AlertKind.FAILED,
    "run_completed": AlertKind.DONE,
    "run_killed": AlertKind.KILLED,
    "stuck": AlertKind.STUCK,
    "guard": AlertKind.GUARD,
    "checkpoint_too_old": AlertKind.CHECKPOINT_TOO_OLD,
    "budget_80": AlertKind.BUDGET_80,
}
EVENTS = frozenset({*_BY_EVENT, "finding", "run_waiting", ENDED})  # all that an alert can come from

OFTEN = 3  # losses of capacity
WITHIN = 3600.0  # seconds
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 300.0  # seconds before a receiver that failed is tried again
GIVE_UP = 7 * 86400.0  # seconds after which an alert is of no use to anybody


def kind_of(event: str, data: Mapping[str, Any]) -> AlertKind | None:
    """None: nobody is told of it. The end of an attempt is one of several: see `often`."""
    if event == "finding":
        return _of_finding(str(data.get("cause")), str(data.get("weight")))
    if event == "run_waiting":
        return AlertKind.ATTENTION if data.get("attention") else None
    return _BY_EVENT.get(event)


def _of_finding(cause: str, weight: str) -> AlertKind | None:
    if cause in (AlertKind.STUCK, AlertKind.NON_FINITE):
        return AlertKind(cause)
    return AlertKind.FINDING if weight in ("fatal", "bad") else None


def often(losses: Sequence[float]) -> bool:
    """The newest of these losses, newest first, begins a time of many: with it there are three in an hour, and with
    the one before it there were not. One alert per such time, and nothing to remember."""
    if len(losses) < OFTEN or losses[0] - losses[OFTEN - 1] > WITHIN:
        return False
    return len(losses) == OFTEN or losses[1] - losses[OFTEN] > WITHIN


def pause_after(failures: int) -> float:
    """Seconds. Short at first, for whoever restarts; never long, for whoever is back after a night."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 30))
