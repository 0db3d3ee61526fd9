"""The shapes of what was spent: by whom, where, when and on what kind of time; and what may still be spent."""

from typing import Literal

from pydantic import Field

from whistlestop.wire.api import Asked, Shape

By = Literal["project", "workflow", "run", "pool", "day", "market", "kind"]
# How time was spent, in the order in which it is drawn. Queued time is free.
Kind = Literal["queued", "starting", "productive", "redone", "saving", "stalled", "stopping"]


class SpentView(Shape):
    """What one group has used, attempts that are alive counted up to now."""

    # A project, NAME@VERSION of a workflow ("" = none), the id of a run, a pool, 2026-01-31 (UTC), a market or a kind.
    key: str
    name: str = ""  # for people: of a run its name; else as the key
    number: int | None = None  # of a run
    market: str | None = None  # of a pool
    credits: float = 0.0
    slot_hours: float = 0.0  # paid ones: without the queue
    attempts: int | None = None  # of the total and of runs; None: nobody counted
    kinds: dict[Kind, float] = Field(default_factory=dict)  # credits; those that are 0 are left out, queued always
    hours: dict[Kind, float] = Field(default_factory=dict)  # slot-hours, with those that were waited for in the queue
    redone: float = 0.0  # share of the credits, 0 to 1
    wasted: float = 0.0  # share of the credits: redone or stalled


class DayView(Shape):
    day: str  # 2026-01-31, UTC
    credits: float = 0.0
    kinds: dict[Kind, float] = Field(default_factory=dict)  # credits


class BudgetView(Shape):
    project: str
    credits: float  # in all, since then
    since: str  # what was spent before is not counted
    by: str = ""  # who has set it
    spent: float = 0.0  # by attempts that have ended
    running: float = 0.0  # by those that are alive, up to now
    balance: float = 0.0  # credits - spent - running
    per_hour: float = 0.0  # what is being spent right now
    lasts_s: float | None = None  # at that rate; None: nothing runs


class ComparisonView(Shape):
    """What the productive time has cost in all, and what it would have cost elsewhere, at the prices of today."""

    hours: float = 0.0  # productive slot-hours
    cost: float = 0.0  # of everything: with what was redone, saved, waited for
    on_demand: float | None = None  # the productive time on on-demand pools of the same class; None: there is none
    spot: float | None = None  # the same on spot pools, if nothing was ever lost; None: there is none
    spot_share: float = 0.0  # of the productive time, 0 to 1
    unpriced_hours: float = 0.0  # productive, on pools that are gone: left out of all the figures above


class UsageView(Shape):
    by: By
    project: str | None = None
    since: str
    until: str
    total: SpentView
    groups: list[SpentView] = Field(default_factory=list)  # the dearest first; days in their order
    left_off: int = 0  # groups that the limit cut; they are in the total
    days: list[DayView] = Field(default_factory=list)  # every day of the time, for a chart; the newest 366 of them
    budgets: list[BudgetView] = Field(default_factory=list)  # of all projects, or of the one that was asked for
    comparison: ComparisonView = ComparisonView()


class BudgetBody(Asked):
    credits: float = Field(ge=0, le=1e12, allow_inf_nan=False)
    restart: bool = Field(False, description="count from now on; a new budget always does")
