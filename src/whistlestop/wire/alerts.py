"""The shapes of alerts: who is told, and what became of each that was sent."""

from typing import Literal

from pydantic import Field, field_validator

from whistlestop.domain.alerts import DEFAULT, KINDS
from whistlestop.wire.api import Asked, Shape
from whistlestop.wire.mistakes import nearest

DeliveryState = Literal["waiting", "sent", "given_up"]


class ReceiverView(Shape):
    name: str
    kind: str  # webhook or apprise
    address: str  # masked: the rest of it is a secret
    project: str | None = None  # None: of all projects
    only_named: bool = False  # of runs that name it in their spec, alone
    on: list[str] = Field(default_factory=list)
    created_at: str
    created_by: str
    waiting: int = 0  # alerts that it has not taken yet
    sent_at: str | None = None  # when it last took one
    failing_since: str | None = None
    next_at: str | None = None  # when it is tried again
    error: str = ""
    secret: str | None = None  # what webhooks are signed with: told once, when it is added


class ReceiverBody(Asked):
    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")
    address: str = Field(min_length=4, max_length=4000, description="https://… is posted to; all else is apprise's")
    project: str | None = Field(None, max_length=100)
    only_named: bool = False
    on: list[str] = Field(default_factory=lambda: [kind.value for kind in DEFAULT], min_length=1, max_length=50)

    @field_validator("on")
    @classmethod
    def known(cls, value: list[str]) -> list[str]:
        for word in value:
            if word not in KINDS:
                hint = nearest(word, [kind.value for kind in KINDS]) or f"one of {', '.join(KINDS)}"
                raise ValueError(f"{word!r} is nothing that an alert tells of: {hint}")
        return list(dict.fromkeys(value))


class DeliveryView(Shape):
    id: str  # as its receiver gets it, the same over all tries
    receiver: str
    kind: str
    title: str
    run: str | None = None  # its id
    event: int | None = None  # the number of the event that it tells of
    state: DeliveryState
    created_at: str
    ended_at: str | None = None  # when it was taken, or given up
    tries: int = 0
    error: str = ""
    behind: int = 0  # of one that waits: how many go before it
