"""When to save, as small frozen values. The loop asks only for the next step and the next time, not at every step."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from whistlestop.domain.errors import BadRequest
from whistlestop.sdk.costs import MARGIN, Costs

NEVER = math.inf
PRIOR_SECONDS: Final = 2 * 3600.0  # between two preemptions, as long as nobody knows better
SHARE: Final = 0.035  # of the time that saving by itself may take: what CheckFreq keeps to
SHAPE: Final = 2.0  # between a pool of equal machines (large) and one where the old ones hardly ever go (below 1)
AT_LEAST: Final = 10.0  # seconds between saves: each one is read back, told of and listed
FIRST: Final = 30.0  # seconds until the trial save, which shows that saving works and what it costs


class Cadence(Protocol):
    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        """The first step after `step` to save at; NEVER if steps don't matter."""

    def next_time(self, now: float, *, costs: Costs) -> float:
        """The next time to save at, when a save has just been made; NEVER if time doesn't matter."""


@dataclass(frozen=True)
class EverySteps:
    steps: int

    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        return step - step % self.steps + self.steps

    def next_time(self, now: float, *, costs: Costs) -> float:
        return NEVER


@dataclass(frozen=True)
class EveryEpochs:
    epochs: int

    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        if per_epoch is None:
            return NEVER
        return EverySteps(self.epochs * per_epoch).next_step(step, per_epoch=per_epoch)

    def next_time(self, now: float, *, costs: Costs) -> float:
        return NEVER


@dataclass(frozen=True)
class EverySeconds:
    seconds: float

    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        return NEVER

    def next_time(self, now: float, *, costs: Costs) -> float:
        return now + self.seconds


@dataclass(frozen=True)
class Interval:
    seconds: float
    why: str  # a sentence for people


@dataclass(frozen=True)
class AutoCadence:
    """A save costs the loop δ seconds. A machine that goes without notice, λ times a second, costs half an interval on
    average, and the time W that a save needs to become durable, whatever the interval. Their sum is least at √(2δ/λ)
    (Young 1974). Saves can't come faster than they become durable, and all of them may take a share of the time only.
    """

    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        return NEVER

    def next_time(self, now: float, *, costs: Costs) -> float:
        return now + max(self._limits(costs))

    def interval(self, costs: Costs) -> Interval:
        if costs.save_seconds is None:
            return Interval(FIRST, f"the first time after {FIRST:g} s, to see what it costs")
        limits = self._limits(costs)
        seconds = max(limits)
        limit = (
            "the balance of the two",
            f"the {shown(costs.durable_seconds)} until a save is durable",
            f"the {SHARE:.1%} of the time that saving may take",
            f"the {AT_LEAST:g} s that have to lie between two saves",
        )[limits.index(seconds)]
        takes = "this pool takes machines back" if costs.rate else "machines are assumed to be taken back"
        between = 1 / costs.rate if costs.rate else PRIOR_SECONDS
        lasts = f" and this one has lasted {shown(costs.age)}" if costs.age > between / 2 else ""
        why = f"a save costs {shown(costs.save_seconds)}, {takes} every {shown(between)}{lasts}; limited by {limit}"
        return Interval(seconds, f"every {shown(seconds)}: {why}")

    def _limits(self, costs: Costs) -> tuple[float, ...]:
        if costs.save_seconds is None:
            return (FIRST,)
        # Machines of a pool differ: if their own rates are spread around the pool's as a gamma distribution of this
        # shape, one that has lasted for a while is likely to be one of those that last.
        between = (1 / costs.rate if costs.rate else PRIOR_SECONDS) + max(0.0, costs.age) / SHAPE
        return (
            math.sqrt(2 * costs.save_seconds * between),
            MARGIN * costs.durable_seconds,
            costs.save_seconds / SHARE,
            AT_LEAST,
        )


@dataclass(frozen=True)
class AnyOf:
    parts: tuple[Cadence, ...] = ()

    @property
    def counts_epochs(self) -> bool:
        """It needs to know how long an epoch is."""
        return any(isinstance(part, EveryEpochs) for part in self.parts)

    def next_step(self, step: int, *, per_epoch: int | None) -> float:
        return min((part.next_step(step, per_epoch=per_epoch) for part in self.parts), default=NEVER)

    def next_time(self, now: float, *, costs: Costs) -> float:
        return min((part.next_time(now, costs=costs) for part in self.parts), default=NEVER)

    def interval(self, costs: Costs) -> Interval | None:
        """What people may want to know the reasons of; None where they have said it themselves."""
        return next((part.interval(costs) for part in self.parts if isinstance(part, AutoCadence)), None)


_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "sec": 1, "min": 60, "s": 1, "m": 60, "h": 3600}


def shown(seconds: float) -> str:
    """9.5 ms, 0.13 s, 55 s, 4.2 min, 3.2 h"""
    units = ((0.001, "ms", 0.1), (1.0, "s", 100.0), (60.0, "min", 5940.0), (3600.0, "h", NEVER))
    amount, unit = next((seconds / size, unit) for size, unit, until in units if seconds < until)
    return f"{amount:.2g} {unit}" if amount < 10 else f"{amount:.0f} {unit}"


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
