"""The shapes of advice: what is wrong with a run, what is to come, and what each choice costs."""

from typing import Literal

from pydantic import Field

from whistlestop.wire.api import Shape

VerdictName = Literal["kill", "stop", "wait", "fix_and_continue", "rerun", "nothing"]
ChoiceVerb = Literal["wait", "stop", "kill", "continue"]


class BandView(Shape):
    """In eight of ten runs the truth lies between `low` and `high`."""

    low: float
    likely: float
    high: float


class AheadView(BandView):
    step: float


class FoundView(Shape):
    """One thing that is wrong. `confidence`: how often a finding like this one is right."""

    cause: str
    weight: Literal["fatal", "bad", "hint"]
    headline: str
    confidence: float
    says: str
    evidence: list[str] = Field(default_factory=list)  # values, lines, stacks; the most telling first
    do: str
    metric: str = ""
    step: int | None = None
    rank: int | None = None
    host: str = ""
    at: str | None = None


class GainView(Shape):
    """The main metric, smoothed, so far and as far as it can be told."""

    metric: str
    aim: Literal["min", "max"]
    now: float
    end: BandView
    better: BandView  # improvement until the end; below 0 it gets worse
    noise: float
    distinct: bool  # the improvement can be told from noise
    curve: list[tuple[float, float]]  # step and value
    ahead: list[AheadView]


class ChoiceView(Shape):
    verb: ChoiceVerb
    seconds: BandView | None = None  # from now to the result; None = can't be told
    credits: BandView | None = None  # from now on
    saves: float | None = None  # credits, beside letting it run to its end
    lost_steps: int = 0  # made, and in no checkpoint
    gets: str


class AdviceView(Shape):
    run: str
    number: int
    name: str
    phase: str | None
    status: str
    at: str
    verdict: VerdictName
    sure: bool  # False: this is what one does who does not know
    reason: str
    do: str
    fraction: float | None = None
    goes_back_to: int | None = None  # step of the checkpoint to continue from
    spent: float = 0.0  # credits
    seconds: BandView | None = None  # to its end; None = too early, or nobody knows how many steps there are
    credits: BandView | None = None  # from now to its end
    saves: float | None = None  # credits that ending now leaves unspent
    findings: list[FoundView] = Field(default_factory=list)
    gain: GainView | None = None
    choices: list[ChoiceView] = Field(default_factory=list)  # the one that is advised first
