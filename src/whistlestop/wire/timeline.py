"""The shapes of a run's timeline: marks on the step monitor, and how long each stage of a start took."""

from typing import Literal

from whistlestop.wire.api import Shape

StageName = Literal["queued", "allocating", "preparing", "starting", "training"]


class StageView(Shape):
    attempt: int | None = None  # None: it waits for one
    stage: StageName
    at: str
    seconds: float | None = None  # None: it is there now


class PhaseTimelineView(Shape):
    phase: str
    total: int | None = None
    per_epoch: int | None = None
    epochs: list[int]  # steps at which an epoch ends; those ahead are reckoned
    evaluations: list[int]  # steps at which an evaluation began
    stages: list[StageView]


class TimelineView(Shape):
    phases: list[PhaseTimelineView]
