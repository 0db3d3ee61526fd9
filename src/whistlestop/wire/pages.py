"""The shapes of what only pages ask: projects, the workflows of one, and what a verb would do."""

from typing import Literal

from pydantic import Field

from whistlestop.wire.api import BulkItem, CodeView, CreditsView, Shape

Verb = Literal["stop", "pause", "kill", "cancel", "delete"]


class ProjectView(Shape):
    name: str
    runs: int
    active: int  # queued, starting, running or waiting
    queued: int
    running: int  # or starting
    waiting: int
    failed: int
    credits: float
    last_at: str | None = None  # when something began or ended there last


class CodeOfView(Shape):
    """A run whose code a new one can take."""

    run: str
    number: int
    name: str
    created_at: str
    code: CodeView


class WorkflowCard(Shape):
    name: str
    version: int
    created_at: str
    created_by: str
    note: str = ""
    runs: int  # of all its versions
    newest: CodeOfView | None = None


class NextView(Shape):
    """Who would get the slots."""

    run: str
    number: int
    name: str
    phase: str
    slots: int


class FreesView(Shape):
    slots: int
    pool: str | None = None
    next: list[NextView] = Field(default_factory=list)


class NewestView(Shape):
    """The newest checkpoint that counts, and what happened since."""

    phase: str
    step: int
    committed_at: str
    age_s: float
    steps_since: int | None = None  # would be lost without another save


class TakesView(Shape):
    """How long the same took before: the median."""

    seconds: float
    longest: float
    count: int
    among: Literal["phase", "pool"]  # this phase of this workflow, or anything on this pool


class Consequences(Shape):
    """What a verb would do to a run, now. It is asked again when it is done: nothing is promised."""

    run: str
    verb: Verb
    phase: str | None = None  # the one that a stop is about
    refused: str | None = None  # why it can't be done
    hint: str | None = None
    kept: list[str] = Field(default_factory=list)
    lost: list[str] = Field(default_factory=list)
    goes_on: list[str] = Field(default_factory=list)
    undo: str = ""
    frees: FreesView | None = None
    per_hour: float = 0.0  # credits, until it has ended
    credits: CreditsView = CreditsView()
    checkpoint: NewestView | None = None
    takes: TakesView | None = None  # None: it was never done here
    at_most_s: float | None = None  # then it is ended without its consent


class JudgedItem(BulkItem):
    phase: str | None = None  # the one that a stop is about: send it along, or a later one may be stopped


class Preview(Shape):
    """A bulk request, judged and not done."""

    items: list[JudgedItem]  # the first 500
    total: int
    refused: int  # of the items
