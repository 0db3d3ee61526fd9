"""How hard to stop, and the ladder a request climbs when the program does not answer."""

from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum, StrEnum


class Stop(IntEnum):
    """How hard to stop. A request may be raised, never lowered."""

    NONE = 0
    FINISH_PHASE = 1  # end this phase at the next step, keep the result, go on with the pipeline
    PAUSE = 2  # save, free the slots, resumable
    KILL = 3  # now, for good


class PauseCheckpoint(StrEnum):
    SAVE = "save"  # save first, then leave
    LATEST = "latest"  # leave at once; the work since the last checkpoint goes


class Rung(StrEnum):
    """What a request has come to. Each one is an event that people see."""

    FLAG = "flag"  # the control block says so; the loop sees it at its next step
    INTERRUPT = "interrupt"  # SIGINT
    TERMINATE = "terminate"  # SIGTERM
    KILL = "kill"  # SIGKILL to the whole tree


@dataclass(frozen=True)
class Ladder:
    """How long each rung may take before the next one. Zero skips the wait."""

    flag: timedelta = timedelta(minutes=5)  # a program with the SDK saves and leaves in this time
    interrupt: timedelta = timedelta(seconds=30)
    terminate: timedelta = timedelta(seconds=30)
    attach: timedelta = timedelta(
        seconds=30
    )  # how long a young program may import before we take it for one without the SDK
    kill_save: timedelta = timedelta(seconds=30)  # how long a kill lets a checkpoint commit in flight finish

    @property
    def total(self) -> timedelta:
        """The latest time from a stop to SIGKILL."""
        return max(self.flag, self.attach) + self.interrupt + self.terminate
