"""The shapes of losses on purpose: capacity taken back from a run or a host, and what else can be rehearsed."""

from typing import Literal

from pydantic import Field

from whistlestop.wire.api import Asked, Noted, Shape

NOTICE = 30.0  # seconds; what most clouds give
LONGEST_NOTICE = 3600.0


class PreemptBody(Noted):
    notice_s: float = Field(NOTICE, ge=0, le=LONGEST_NOTICE, description="seconds until its capacity is gone; 0: now")
    attempts: list[int] = Field(
        [], max_length=100, description="only these of the run, by number: asking twice never hits the next one"
    )


class RehearseBody(Asked):
    fault: Literal["program", "host", "link", "storage", "save"]
    seconds: float = Field(5.0, gt=0, le=600, description="how long it lasts: of link, storage and save")
    phase: str | None = Field(None, max_length=200, description="default: the train phase that runs now")
    attempt: int | None = Field(None, ge=1, description="only this one, by number")


class Rehearsal(Shape):
    """A loss on purpose has begun."""

    run: str
    phase: str
    attempt: int
    fault: str
    step: int  # where it was
    text: str  # a sentence
    warning: str | None = None  # what would have been worse for real
