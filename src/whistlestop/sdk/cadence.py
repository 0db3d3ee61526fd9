"""When to save, as small frozen values. The loop asks only for the next step and the next time, not at every step."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from whistlestop.domain.errors import BadRequest

NEVER = math.inf


class Cadence(Protocol):
    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        """The first step after `step` to save at; NEVER if steps don't matter."""

    def next_time(self, now: float, *, save_seconds: float) -> float:
        """The next time to save at, when a save has just been made; NEVER if time doesn't matter."""


@dataclass(frozen=True)
class EverySteps:
    steps: int

    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        return step - step % self.steps + self.steps

    def next_time(self, now: float, *, save_seconds: float) -> float:
        return NEVER


@dataclass(frozen=True)
class EveryEpochs:
    epochs: int

    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        if per_epoch is None:
            return NEVER
        return EverySteps(self.epochs * per_epoch).next_step(step, per_epoch=per_epoch)

    def next_time(self, now: float, *, save_seconds: float) -> float:
        return NEVER


@dataclass(frozen=True)
class EverySeconds:
    seconds: float

    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        return NEVER

    def next_time(self, now: float, *, save_seconds: float) -> float:
        return now + self.seconds


@dataclass(frozen=True)
class AutoCadence:
    """Young's formula: the square root of 2 × cost of a save × time between interruptions."""

    between_interruptions: float = 3 * 3600.0  # assumed, until the pool's own record is known here
    at_least: float = 30.0

    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        return NEVER

    def next_time(self, now: float, *, save_seconds: float) -> float:
        return now + max(self.at_least, math.sqrt(2 * save_seconds * self.between_interruptions))


@dataclass(frozen=True)
class AnyOf:
    parts: tuple[Cadence, ...] = ()

    @property
    def counts_epochs(self) -> bool:
        """It needs to know how long an epoch is."""
        return any(isinstance(part, EveryEpochs) for part in self.parts)

    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        return min((part.next_step(step, per_epoch=per_epoch) for part in self.parts), default=NEVER)

    def next_time(self, now: float, *, save_seconds: float) -> float:
        return min((part.next_time(now, save_seconds=save_seconds) for part in self.parts), default=NEVER)


_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "sec": 1, "min": 60, "s": 1, "m": 60, "h": 3600}


def read_cadence(every: str | int | Iterable[str] | None) -> AnyOf:
    """500, "500 steps", "10 minutes, 1 epoch" or a list of such. BadRequest says what is wrong with it."""
    if every is None:
        return AnyOf()
    if isinstance(every, int):
        return AnyOf((_one(f"{every} steps"),))
    words = every.split(",") if isinstance(every, str) else every
    return AnyOf(tuple(_one(word.strip().lower()) for word in words if word.strip()))


def _one(word: str) -> Cadence:
    if word == "auto":
        return AutoCadence()
    match = _FORM.fullmatch(word)
    if match and (amount := float(match[1])) > 0:
        unit = match[2] if len(match[2]) == 1 else match[2].removesuffix("s")
        if unit in _SECONDS:
            return EverySeconds(amount * _SECONDS[unit])
        if unit in ("step", "epoch") and amount.is_integer():
            return EverySteps(int(amount)) if unit == "step" else EveryEpochs(int(amount))
    raise BadRequest(f"{word!r} does not say when to save", hint='write "500 steps", "10 minutes", "1 epoch" or "auto"')
