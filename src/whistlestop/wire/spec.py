"""What a whistle.yaml means, as values. Reading and judging the file is in spec_file.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from whistlestop.domain.stops import Ladder

DEFAULT_LADDER = Ladder()


class PhaseKind(StrEnum):
    TRAIN = "train"  # has steps and checkpoints; can be stopped and keeps its result
    TASK = "task"  # a plain command


@dataclass(frozen=True)
class Secret:
    """An environment value that is looked up when the attempt starts and is never stored with the run."""

    name: str


@dataclass(frozen=True)
class CheckpointSpec:
    every: tuple[
        str, ...
    ] = ()  # "500 steps", "10 minutes", "1 epoch"; any of them. Empty: only at the end and on request
    keep: int = 3  # the newest ones
    best: int = 0  # beside them, by the metric `by`
    by: str = ""
    mode: str = "min"  # or "max"
    keep_every: int = 0  # beside them: of every so many steps the first one

    def policy(self) -> dict[str, Any]:
        """What stays, as a launch says it."""
        return {"last": self.keep, "best": self.best, "by": self.by, "mode": self.mode, "every": self.keep_every}


@dataclass(frozen=True)
class CapacitySpec:
    """What a phase may run on. Empty: on whatever there is."""

    pools: tuple[str, ...] = ()  # by name, in the order in which they are tried
    kind: str = ""  # the class of machine; `class` in the file
    region: str = ""
    market: str = "any"  # or spot, or on_demand
    changeover: timedelta | None = None  # from a loss until it works again, until that was measured
    preemptible: bool = True  # may give way to a run of higher priority


class Do(StrEnum):
    """What a guard does, the hardest last: of two that would act at once, the harder one does."""

    NOTIFY = "notify"  # an event, and the alerts that come of it
    RESTART = "restart"  # this attempt ends, the next goes on from the newest healthy checkpoint
    ROLL_BACK = "roll_back"  # the same, from before the finding began, and without the data of then
    PAUSE = "pause"
    STOP = "stop"
    FAIL = "fail"  # the phase fails, whatever retries are left
    KILL = "kill"


@dataclass(frozen=True)
class GuardSpec:
    when: tuple[str, ...]  # causes, of diagnosis.findings
    do: Do
    holds: timedelta = timedelta()  # for so long it has to be so; `for` in the file
    confidence: float = 0.9  # of the finding, at least
    times: int = 3  # restarts and roll-backs, at most; then it stops
    skip: int | None = None  # batches that a roll-back passes over; None: all from the checkpoint to where it began
    dry: bool = False  # only says what it would have done

    @property
    def repeats(self) -> bool:
        return self.do in (Do.RESTART, Do.ROLL_BACK)


@dataclass(frozen=True)
class PhaseSpec:
    name: str
    command: tuple[str, ...]  # a string in the file becomes ("/bin/bash", "-c", text)
    kind: PhaseKind = PhaseKind.TRAIN
    needs: tuple[str, ...] = ()  # phases that must have completed; default in the file: the one above
    workdir: str = "."  # inside the bundle
    env: Mapping[str, str | Secret] = field(default_factory=dict)
    slots: int = 1  # on each node
    nodes: int = 1  # a gang: all of them or none
    ranks: int = 0  # processes that are started on each node, each told which it is; 0: the command, once
    time_limit: timedelta | None = None
    retries: int = 0  # on error; lost capacity costs nothing
    checkpoint: CheckpointSpec = CheckpointSpec()
    stop_when: tuple[Mapping[str, Any], ...] = ()  # read by the SDK
    grace: Ladder = DEFAULT_LADDER
    capacity: CapacitySpec = CapacitySpec()
    work: timedelta | None = None  # how long it computes, by the user's own estimate
    guards: tuple[GuardSpec, ...] = ()  # train phases only

    @property
    def all_slots(self) -> int:
        return self.nodes * self.slots


@dataclass(frozen=True)
class AlertSpec:
    """One receiver that is told of this run, beside those that its project has."""

    to: str
    on: tuple[str, ...] = ()  # domain.alerts.AlertKind; empty: as the receiver was set up


@dataclass(frozen=True)
class Spec:
    name: str
    phases: tuple[PhaseSpec, ...]
    project: str = "default"
    priority: int = 0  # higher first
    budget: float | None = None  # credits
    deadline: timedelta | None = None  # from submit to the end
    alerts: tuple[AlertSpec, ...] = ()

    def phase(self, name: str) -> PhaseSpec:
        return next(phase for phase in self.phases if phase.name == name)
