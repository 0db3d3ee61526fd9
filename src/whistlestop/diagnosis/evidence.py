"""All that a diagnosis may look at, as plain values: the server gathers them, tests/cases holds recorded ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

POINTS = 2_000  # of one series, thinned evenly: a diagnosis costs the same for a thousand points and a hundred million
CAME_BACK = 5  # finite points in a row, after one that was not: whatever it was, it is over
LINES = 400  # of the last attempt's output: the last ones, and of those that came on stderr as many again


@dataclass(frozen=True)
class Odd:
    """The first point of a series that is not a number, or not a finite one; after it had come back, the first since
    then. Thinning never loses it."""

    step: int
    value: str  # nan, inf or -inf
    at: float


@dataclass(frozen=True)
class Series:
    """A metric over all attempts as the run page draws it: of a step that was made twice, the newer value."""

    name: str  # as it was logged; without the rank
    steps: tuple[int, ...]
    values: tuple[float, ...]  # finite ones only
    times: tuple[float, ...]  # unix seconds
    rank: int = 0
    kind: str = "program"  # or system: the runner's samples
    odd: Odd | None = None
    odd_until: int | None = None  # the step of the last such point


@dataclass(frozen=True)
class Place:
    """Where the newest attempt is, or was, in its loop."""

    stage: str = ""  # domain.states.Stage
    step: int = 0
    total: int = 0  # 0: nobody knows
    epoch: int = 0
    resumed_step: int = 0
    started_at: float = 0.0  # the attempt
    loop_started_at: float = 0.0
    progress_at: float = 0.0  # its last step, evaluation or save
    ended_at: float | None = None


@dataclass(frozen=True)
class End:
    """How one attempt ended."""

    attempt: int
    reason: str  # domain.reasons.EndReason
    text: str  # what that rests on, in words, with the last error line
    host: str = ""
    exit_code: int | None = None
    signal: str | None = None
    last_step: int | None = None
    at: float = 0.0


@dataclass(frozen=True)
class Line:
    at: float
    stream: str  # out, err or sys
    rank: int
    text: str
    attempt: int = 1


@dataclass(frozen=True)
class Told:
    """An event of the run: what the runner and the SDK said of themselves (straggler, stuck, save_failed, notice)."""

    at: float
    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1


@dataclass(frozen=True)
class HostRecord:
    """What other runs have seen on a host where this one failed, lately."""

    host: str
    good: int  # attempts of other runs that ended well there
    failed: int  # that failed there and not elsewhere
    elsewhere: int  # attempts of this run that got on without this failure on other hosts


@dataclass(frozen=True)
class Saved:
    """A checkpoint that the run could go on from."""

    step: int
    at: float
    best: bool = False  # by the metric that the spec names


@dataclass(frozen=True)
class Evidence:
    """One train or task phase of a run, as of `now`."""

    now: float
    kind: str = "train"  # or task
    status: str = "running"  # the run's, or of a phase that is over, its own
    place: Place = Place()
    series: tuple[Series, ...] = ()
    ends: tuple[End, ...] = ()  # the oldest first
    lines: tuple[Line, ...] = ()  # of the newest attempt, in order
    told: tuple[Told, ...] = ()
    hosts: tuple[HostRecord, ...] = ()
    aims: Mapping[str, str] = field(default_factory=dict)  # metric -> min or max, as the spec names them
    attempts: int = 1
    price: float = 0.0  # credits for a second of all its slots
    spent: float = 0.0  # credits so far
    marks: tuple[tuple[int, float], ...] = ()  # steps and when they were done, thinned: domain.estimates.Pace
    saved: tuple[Saved, ...] = ()  # healthy ones, the newest first
    follows: bool = False  # phases wait for the result of this one
