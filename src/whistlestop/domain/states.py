"""Where a run, a phase and an attempt can be, and every step between. Why they are there is in reasons.py."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from whistlestop.domain.errors import IllegalTransition


class RunState(StrEnum):
    """The trial's status."""

    QUEUED = "queued"  # waits for slots; `recovering` says that it ran before
    STARTING = "starting"  # has slots, its program is not up yet
    RUNNING = "running"  # at least one program runs
    WAITING = "waiting"  # paused, or needs a person; holds no slots
    COMPLETED = "completed"
    FAILED = "failed"
    KILLED = "killed"


class PhaseState(StrEnum):
    PENDING = "pending"  # not begun, or between two attempts
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    KILLED = "killed"
    SKIPPED = "skipped"  # a phase that it needs did not complete


class AttemptState(StrEnum):
    """The runtime instance's status."""

    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"  # ended because somebody asked: pause or kill
    PREEMPTED = "preempted"  # the capacity was taken back
    LOST = "lost"  # nobody can say how it ended


class Stage(StrEnum):
    """How far a live attempt has come. Shown, never decided upon."""

    ALLOCATING = "allocating"  # slots are held, the runner is being started
    PREPARING = "preparing"  # the runner lays out code and checkpoint
    STARTING = "starting"  # the program is up and has not reached its loop
    TRAINING = "training"  # the program has reached its loop, or is a task
    EVALUATING = "evaluating"
    SAVING = "saving"
    STOPPING = "stopping"  # asked to stop, has not ended
    ENDING = "ending"  # the program ended; the tree is being proven gone


RUN_TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    # Completed or failed while queued: nothing is left to spend on the last phase.
    RunState.QUEUED: frozenset(
        {RunState.STARTING, RunState.WAITING, RunState.COMPLETED, RunState.FAILED, RunState.KILLED}
    ),
    # Completed and failed straight from starting: a program may be quicker than its first report.
    RunState.STARTING: frozenset(
        {
            RunState.RUNNING,
            RunState.QUEUED,
            RunState.WAITING,
            RunState.COMPLETED,
            RunState.FAILED,
            RunState.KILLED,
        }
    ),
    # Back to QUEUED between phases and when capacity is lost: the run goes on elsewhere.
    RunState.RUNNING: frozenset(
        {
            RunState.QUEUED,
            RunState.STARTING,
            RunState.WAITING,
            RunState.COMPLETED,
            RunState.FAILED,
            RunState.KILLED,
        }
    ),
    RunState.WAITING: frozenset({RunState.QUEUED, RunState.KILLED}),
    RunState.COMPLETED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.KILLED: frozenset(),
}

PHASE_TRANSITIONS: Mapping[PhaseState, frozenset[PhaseState]] = {
    # Straight to COMPLETED when there is no budget left for another attempt and a checkpoint to keep.
    PhaseState.PENDING: frozenset(
        {PhaseState.RUNNING, PhaseState.COMPLETED, PhaseState.FAILED, PhaseState.KILLED, PhaseState.SKIPPED}
    ),
    # Back to PENDING when an attempt ends and another one follows.
    PhaseState.RUNNING: frozenset({PhaseState.PENDING, PhaseState.COMPLETED, PhaseState.FAILED, PhaseState.KILLED}),
    PhaseState.COMPLETED: frozenset(),
    PhaseState.FAILED: frozenset(),
    PhaseState.KILLED: frozenset(),
    PhaseState.SKIPPED: frozenset(),
}

ATTEMPT_TRANSITIONS: Mapping[AttemptState, frozenset[AttemptState]] = {
    AttemptState.STARTED: frozenset(
        {
            AttemptState.COMPLETED,
            AttemptState.FAILED,
            AttemptState.ABORTED,
            AttemptState.PREEMPTED,
            AttemptState.LOST,
        }
    ),
    AttemptState.COMPLETED: frozenset(),
    AttemptState.FAILED: frozenset(),
    AttemptState.ABORTED: frozenset(),
    AttemptState.PREEMPTED: frozenset(),
    AttemptState.LOST: frozenset(),
}

S = TypeVar("S", RunState, PhaseState, AttemptState)


def terminal(table: Mapping[S, frozenset[S]]) -> frozenset[S]:
    return frozenset(state for state, after in table.items() if not after)


RUN_ENDED = terminal(RUN_TRANSITIONS)
PHASE_ENDED = terminal(PHASE_TRANSITIONS)
ATTEMPT_ENDED = terminal(ATTEMPT_TRANSITIONS)


def check(table: Mapping[S, frozenset[S]], before: S, after: S) -> None:
    """Raise IllegalTransition unless `before -> after` is in the table."""
    if after not in table[before]:
        raise IllegalTransition(f"{before.value} -> {after.value} is not in the table")


def before(table: Mapping[S, frozenset[S]], after: S) -> frozenset[S]:
    """Every state from which `after` can be reached in one step: the guard of a write."""
    return frozenset(state for state, nexts in table.items() if after in nexts)
