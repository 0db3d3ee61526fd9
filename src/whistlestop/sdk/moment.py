"""What stop rules look at and what they say; and a training without any, which most are."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from whistlestop.domain.reasons import StopReason

if TYPE_CHECKING:
    from whistlestop.sdk.live_rules import LivePrivacy

NEVER = math.inf


class Moment(NamedTuple):
    """Between two steps: `step` of them are done, and the one with that index is about to run."""

    step: int
    seconds: float  # of training, over all attempts
    values: Mapping[str, float]  # logged since the last look
    latest: Mapping[str, float]
    spent: int = 0  # steps ever run, with those of discarded branches; 0: as many as `step`


class Fired(NamedTuple):
    reason: StopReason
    text: str
    exact: bool = False  # it fires at this very step in every rank: nobody has to be told


class AnyRules(Protocol):
    """What the loop asks of the stop rules; rules.py says what each means."""

    empty: bool
    watches: frozenset[str] | None

    @property
    def privacy(self) -> "LivePrivacy | None": ...
    @property
    def poisoned(self) -> bool: ...
    def check(self) -> None: ...
    def next_step(self, step: int) -> float: ...
    def next_seconds(self) -> float: ...
    def look(self, moment: Moment) -> list[Fired]: ...
    def again(self, moment: Moment) -> list[Fired]: ...
    def state(self) -> dict[str, Any]: ...
    def load(self, state: Mapping[str, Any]) -> None: ...


class NoRules:
    """Spares importing the others."""

    empty = True
    watches: frozenset[str] | None = frozenset()
    privacy = None
    poisoned = False

    def check(self) -> None:
        pass

    def next_step(self, step: int) -> float:
        return NEVER

    def next_seconds(self) -> float:
        return NEVER

    def look(self, moment: Moment) -> list[Fired]:
        return []

    def again(self, moment: Moment) -> list[Fired]:
        return []

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        pass
