"""The shapes of /api/v1. Keys may be added, none is renamed: scripts rely on them."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

RunStatus = Literal["queued", "starting", "running", "waiting", "completed", "failed", "killed"]
Role = Literal["admin", "member", "viewer"]
Name = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]*$")
MAX_NOTE = 10_000
MOST_STEPS = 2**53  # every program's numbers hold it exactly
MOST_TEXT = 1000
Value = (
    bool
    | Annotated[int, Field(ge=-MOST_STEPS, le=MOST_STEPS)]
    | Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, StringConstraints(max_length=MOST_TEXT)]
)
PARAM_NAME = r"^[\w./-]{1,100}$"


class Shape(BaseModel):
    # Built when first used: a command needs three of these, not forty.
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Asked(Shape):
    """What comes from outside. No database stores half a character, PostgreSQL no NUL, and nobody means one."""

    model_config = ConfigDict(defer_build=False)  # pydantic warns if FastAPI wraps what is not built

    @field_validator("*", mode="after")
    @classmethod
    def no_nul(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name == "spec":  # judged as a whole, with its line
            return value
        items = value.items() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
        words = [word for item in items for word in (item if isinstance(item, tuple) else (item,))]
        for word in words:
            if isinstance(word, str) and "\0" in word:
                raise ValueError("must not contain NUL characters")
            if isinstance(word, str) and any("\ud800" <= letter <= "\udfff" for letter in word):
                raise ValueError("must be valid Unicode")
        return value


# --- what comes back -------------------------------------------------------------------------------------------


class ProgressView(Shape):
    step: int = 0
    total: int | None = None
    epoch: int = 0
    batch: int = 0
    batches: int | None = None  # per epoch
    fraction: float | None = None  # of the current phase's steps; None = unknown
    stage: str | None = None


class CreditsView(Shape):
    used: float = 0.0
    estimated: float | None = None  # if it runs to its end; None = can't be told yet
    saved: float | None = None  # after a kill: what was left unspent
    low: float | None = None  # in eight of ten cases the whole lies between; None = can't be told yet
    high: float | None = None
    redone: float | None = None  # of those used: for steps that had been made before; only in the single-run answer
    kinds: dict[str, float] = {}  # of those used, by kind of time (see /usage); only in the single-run answer


class StopReasonView(Shape):
    reason: str
    decisive: bool
    text: str


class LadderView(Shape):
    """A stop in progress, as people see it."""

    rung: str
    next_rung: str | None = None
    next_at: str | None = None


class AttemptView(Shape):
    id: str
    number: int
    status: str
    reason: str | None = None
    text: str | None = None  # the reason in a sentence, with the evidence
    pool: str
    host: str | None = None
    slots: list[int]
    stage: str | None = None
    started_at: str
    ended_at: str | None = None
    up: bool = False  # its program was started, from `resumed_from`
    resumed_from: int | None = None  # step
    last_step: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    credits: float = 0.0
    reachable: bool = True  # False: the runner has not been heard of for a while
    heard_at: str | None = None  # while it is alive: when its runner was last heard of
    why_here: str = ""  # why it was placed on this pool and host, and what was passed over
    leaves_at: str | None = None  # while it is alive: by when it has to be gone, since its capacity is taken away
    leaves_why: str = ""
    waits_for: str = ""  # while a cluster has not started it: what for, in the cluster's words


class ParamView(Shape):
    """A parameter that the program has declared; it can be changed on the way."""

    value: Any = None
    default: Any = None
    low: float | None = None
    high: float | None = None


class ChangeView(Shape):
    """Something that was changed on the way."""

    seq: int
    name: str  # "total", or "param:NAME"
    value: Any
    step: int | None = None  # where it was applied; None: not yet
    refused: str | None = None  # why the program did not take it
    actor: str = ""
    at: str  # when it was asked for


class SavesView(Shape):
    """Checkpoints that were asked for on the way."""

    requested: int = 0
    done: int = 0  # as many of the requests have been answered by a checkpoint
    step: int | None = None  # of the checkpoint that answered the last one


class AtRiskView(Shape):
    """What no durable checkpoint holds: it would be lost if the capacity went this moment."""

    steps: int
    seconds: float
    credits: float
    step: int | None = None  # of the newest durable checkpoint; None: there is none
    from_step: int = 0  # where it would go on
    since: str  # the seconds count from here
    per_hour: float = 0.0  # credits


class FindingView(Shape):
    """What a diagnosis has found, and what still holds; of a phase that has ended: what held then."""

    cause: str  # a word of a closed list: non_finite, stuck, host_memory, ...
    weight: Literal["fatal", "bad", "hint"]
    confidence: float  # how often a finding like this one is right
    says: str  # a sentence with the figures that matter
    do: str = ""  # what a person does about it
    evidence: list[str] = []  # values, lines, stacks; the most telling first; only in the single-run answer
    metric: str = ""
    step: int | None = None  # where it began
    rank: int | None = None
    host: str = ""
    attempt: int = 0  # its number
    since: str


class PhaseView(Shape):
    name: str
    kind: Literal["train", "task"]
    status: str
    reason: str | None = None  # why it is where it is, in a sentence
    needs: list[str]
    stop_requested: bool = False
    stop_reasons: list[StopReasonView] = []
    elapsed_s: float = 0.0
    epoch: int = 0
    progress: ProgressView = ProgressView()
    ladder: LadderView | None = None
    retry_at: str | None = None
    attempts: list[AttemptView] = []
    params: dict[str, ParamView] = {}
    steering: list[ChangeView] = []
    saves: SavesView = SavesView()
    at_risk: AtRiskView | None = None  # while it trains
    findings: list[FindingView] = []  # the decisive first


class QueueView(Shape):
    position: int
    waits_for: str  # a sentence: "2 slots of pool local: 1 of 2 free"


class ParentView(Shape):
    run: str
    number: int | None = None  # None: it was deleted
    step: int | None = None
    relation: Literal["continue", "rerun"]


class CodeView(Shape):
    bundle: str | None = None  # content hash
    in_place: str | None = None
    commit: str | None = None
    dirty: bool | None = None


class RunView(Shape):
    id: str
    number: int
    name: str
    project: str
    status: RunStatus
    reason: str | None = None
    recovering: bool = False
    requested: Literal["pause", "kill"] | None = None  # asked for, not yet proven
    phase: str | None = None  # the one that runs, or the next one
    progress: ProgressView = ProgressView()
    elapsed_s: float = 0.0
    eta_s: float | None = None
    credits: CreditsView = CreditsView()
    priority: int = 0
    created_at: str
    started_at: str | None = None
    ended_at: str | None = None
    created_by: str = ""
    note: str = ""
    parent: ParentView | None = None
    queue: QueueView | None = None
    workflow: str | None = None  # NAME@VERSION
    code: CodeView = CodeView()
    phases: list[PhaseView] = []
    cause: str | None = None  # of a failed run: what was found, as a headline
    spec: str | None = None  # the exact YAML it runs with; only in the single-run answer
    environment: dict[str, list[str]] = {}  # names of variables by phase, "" = as at submit; with the spec


class RunPage(Shape):
    runs: list[RunView]
    next: str | None = None  # pass as `after` for the next page
    total: int = 0  # as many match, on all pages
    cursor: str = ""  # pass as `last_event_id` to a stream: it goes on where this answer ends


class EventView(Shape):
    seq: int
    at: str
    scope: Literal["run", "instance"]
    kind: str
    actor: str
    text: str
    run: str
    phase: str | None = None
    attempt: int | None = None
    data: dict[str, Any] = {}


class LogLineView(Shape):
    at: str
    phase: str
    attempt: int
    rank: int
    stream: str
    level: str
    text: str
    line: int  # number in its attempt, from 1


class LogPage(Shape):
    lines: list[LogLineView]
    cursor: str  # pass as `after` to get what comes next
    dropped: int = 0  # lines that the log limit cut
    more: bool = False
    looked: int | None = None  # lines, by a tail that gave up with less than was asked for: older ones may match


class SeriesView(Shape):
    name: str
    phase: str  # each phase counts its own steps: equal names in two phases are two series
    points: list[tuple[int, float | None, float]]  # step, value (null: not finite), time
    nonfinite: dict[str, str] = {}  # step -> "nan" | "inf" | "-inf", for the null values


class MetricsView(Shape):
    series: list[SeriesView]
    cursor: str  # pass as `after` to get what comes next
    more: bool = False  # the limit was reached: there is more right now


class CheckpointView(Shape):
    id: str
    phase: str
    step: int
    attempt: int
    committed_at: str
    bytes: int
    verified: bool  # False: it is damaged; no run resumes from it
    verified_at: str | None = None  # when every byte of it was read back last
    pinned: bool = False
    healthy: bool = True  # False: the training had gone wrong by then; no run resumes from it by itself
    newest: bool = False  # its phase would resume from it
    best: bool = False  # by the metric that the spec names
    trashed_until: str | None = None  # removed: it counts no more, and can be had back until then
    why: str = ""  # what made the program save
    block_seconds: float | None = None  # how long the loop waited for it
    upload_seconds: float | None = None  # from there until it was durable
    written: int | None = None  # bytes; what an earlier one had is not written again
    metrics: dict[str, Any] = {}
    path: str | None = None  # a directory, or its address in an object storage


class WorkflowView(Shape):
    name: str
    version: int
    created_at: str
    created_by: str
    note: str = ""
    spec: str


class TokenView(Shape):
    id: str
    name: str
    role: Role
    created_at: str
    token: str | None = None  # shown once, when it is made


class SecretView(Shape):
    name: str
    updated_at: str


class WhoView(Shape):
    name: str
    role: Role
    version: str
    csrf: str | None = None  # to a session: what its requests say in X-Whistle-CSRF when they change something


class LinkView(Shape):
    """A page that signs a browser in, once."""

    link: str  # /sign-in#code=…
    expires_at: str


class ProblemItem(Shape):
    path: str
    text: str
    line: int | None = None
    hint: str | None = None


class Problem(BaseModel):
    """RFC 9457, with our stable code."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    hint: str | None = None
    problems: list[ProblemItem] = []


class Done(Shape):
    """What a verb did to one run."""

    run: RunView
    changed: bool  # False: it was so already
    text: str  # a sentence


class BulkItem(Shape):
    run: str
    number: int
    name: str
    ok: bool
    code: str | None = None
    text: str


class BulkDone(Shape):
    items: list[BulkItem]


class FieldView(Shape):
    """One value of a spec, as a form shows it."""

    path: str  # for `set`
    label: str
    group: str = ""  # the phase it belongs to; "" = the run
    value: str = ""
    default: str = ""  # what holds where it is empty
    kind: Literal["text", "number", "choice", "list"] = "text"
    choices: list[str] = []
    line: int | None = None
    problem: str | None = None
    hint: str | None = None
    fixed: bool = False  # shown only: change it in the YAML


class Checked(Shape):
    ok: bool
    problems: list[ProblemItem] = []
    name: str | None = None
    phases: list[str] = []


class CheckedForm(Checked):
    """The same, with what a form needs."""

    spec: str | None = None  # the YAML after `set`, with its comments; None: it can't be read
    fields: list[FieldView] = []


class BundleView(Shape):
    hash: str
    bytes: int
    known: bool  # it was here already


# --- what is asked for -----------------------------------------------------------------------------------------


class Submit(Asked):
    spec: str | None = Field(None, max_length=1_000_000, description="the text of a whistle.yaml")
    workflow: str | None = Field(None, max_length=200, description="NAME or NAME@VERSION, instead of spec")
    set: list[str] = Field([], max_length=200, description="changes: phases.0.env.LR=0.1")
    bundle: str | None = Field(None, pattern=r"^[0-9a-f]{64}$", description="hash of an uploaded bundle")
    in_place: str | None = Field(None, max_length=4096, description="absolute directory to run in, unbundled")
    env: dict[str, str] = Field({}, description="PATH and the like, as they were at submit")
    commit: str | None = Field(None, max_length=100)
    dirty: bool | None = None
    code_of: str | None = Field(
        None, max_length=200, description="a run whose code and environment are taken, instead of bundle or in_place"
    )
    note: str = Field("", max_length=MAX_NOTE)
    key: str | None = Field(None, max_length=100, description="idempotency key: the same key is the same run")
    force: bool = Field(False, description="also if the project's budget can't pay for it")


class Noted(Asked):
    note: str = Field("", max_length=MAX_NOTE)


class StopBody(Noted):
    phase: str | None = Field(None, max_length=200, description="default: the train phase that runs now")


class SaveBody(StopBody):
    """Save at the next step and go on."""


class Keyed(StopBody):
    key: str | None = Field(
        None, min_length=1, max_length=100, description="idempotency key: the same key is the same request to this run"
    )


class ExtendBody(Keyed):
    steps: int | None = Field(None, ge=1, le=MOST_STEPS, description="how many steps in all")
    more: int | None = Field(None, ge=1, le=MOST_STEPS, description="how many more than now; instead of steps")


class ParamsBody(Keyed):
    params: dict[Annotated[str, StringConstraints(pattern=PARAM_NAME)], Value] = Field(
        min_length=1, max_length=100, description="name -> value, of parameters that the program has declared"
    )

    @field_validator("params", mode="before")
    @classmethod
    def in_words(cls, value: Any) -> Any:
        """Before the types: each of those a value could be would complain for itself."""
        if isinstance(value, dict) and (text := params_problem(value)) is not None:
            raise PydanticCustomError("params", "{text}", {"text": text})
        return value


def params_problem(params: Mapping[Any, Any]) -> str | None:
    """What is wrong with a name or a value, for people."""
    for name, value in params.items():
        if not isinstance(name, str) or not re.fullmatch(PARAM_NAME.strip("^$"), name):
            return f"{name!r} can't be the name of a parameter: letters, digits and _ . - /, 100 at most"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} = {value!r} is not a finite number"
        if isinstance(value, int) and abs(value) > MOST_STEPS:
            return f"{name} is too large: whole numbers go up to {MOST_STEPS}"
        if isinstance(value, str) and len(value) > MOST_TEXT:
            return f"{name} is too long: a text has {MOST_TEXT} letters at most"
        if not isinstance(value, bool | int | float | str):
            return f"{name} must be a number, a truth value or a text"
    return None


class PauseBody(Noted):
    checkpoint: Literal["save", "latest"] = "save"


class ResumeBody(Noted):
    from_start: bool = Field(False, description="allow a start at step 0 where no checkpoint exists")


class KillBody(Noted):
    grace_s: float | None = Field(None, ge=0, le=3600, description="how long a commit in flight may take")


class RerunBody(Noted):
    set: list[str] = Field([], max_length=200)
    force: bool = Field(False, description="also if the project's budget can't pay for it")
    key: str | None = Field(
        None, min_length=1, max_length=100, description="idempotency key: the same key is the same run"
    )


class ContinueBody(RerunBody):
    step: int | None = Field(None, ge=0, le=2**62, description="default: the newest committed checkpoint")
    phase: str | None = Field(None, max_length=200)
    checkpoint: str | None = Field(
        None, max_length=200, description="its id, instead of step: two attempts may both have saved at a step"
    )


class NoteBody(Asked):
    note: str = Field(max_length=MAX_NOTE)


class BulkBody(Noted):
    verb: Literal["stop", "pause", "resume", "kill", "cancel", "delete"]
    runs: list[str] = Field([], max_length=10_000, description="ids, #numbers or names")
    phases: dict[str, Annotated[str, Field(max_length=200)]] = Field(
        {},
        max_length=10_000,
        description="of a stop, by run id: the phase that is meant; default: the one that runs now",
    )
    status: list[RunStatus] = Field([], max_length=10)
    project: str | None = Field(None, max_length=200)
    search: str | None = Field(None, max_length=200)
    workflow: str | None = Field(None, max_length=200, description="any version of it")
    everything: bool = Field(False, description="with no runs and no filter: really all of them")


class CheckBody(Asked):
    spec: str = Field(max_length=1_000_000)
    set: list[str] = Field([], max_length=200)


class WorkflowBody(Asked):
    spec: str = Field(max_length=1_000_000)
    note: str = Field("", max_length=MAX_NOTE)


class TokenBody(Asked):
    name: str = Name
    role: Role = "member"


class SecretBody(Asked):
    value: str = Field(max_length=64_000)
