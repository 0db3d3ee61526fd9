"""What saves cost, as measured by this run, and what follows from it for a deadline."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MARGIN: Final = 1.1  # on measured times
_WEIGHT: Final = 0.3  # of the newest measurement in the average
_CHANGE: Final = 1.25  # of the interval: what people are told of


@dataclass(frozen=True)
class Costs:
    save_seconds: float | None = None  # what one save costs the loop; None: none was made yet
    durable_seconds: float = 0.0  # from handed over to safe in storage
    rate: float | None = None  # unnoticed preemptions per second of this pool; None: nobody knows
    age: float = 0.0  # seconds that this machine has lasted, as far as this attempt can tell


def must_begin_by(deadline: float, costs: Costs) -> float:
    """The last moment to begin a save that shall be durable at the deadline."""
    return deadline - MARGIN * ((costs.save_seconds or 0.0) + costs.durable_seconds)


class Measured:
    """Moving averages. They go on where the attempt before has ended: `state` is in every checkpoint."""

    def __init__(self, rate: float | None = None) -> None:
        self._rate = rate if rate is not None and math.isfinite(rate) and rate > 0 else None
        self._save: float | None = None
        self._durable: float | None = None
        self._saves = 0  # of this process
        self._loaded = False
        self._saved_step = -1
        self._durable_step = 0
        self._told = 0.0

    def costs(self, age: float = 0.0) -> Costs:
        return Costs(self._save, self._durable or 0.0, self._rate, age)

    def saved(self, step: int, seconds: float) -> bool:
        """The first save of a process has buffers to make: it counts only as long as there is no other. False: this
        one was told before."""
        if step == self._saved_step:
            return False
        self._saved_step = step
        self._saves += 1
        if self._save is None or (self._saves == 2 and not self._loaded):
            self._save = seconds
        elif self._saves > 1:
            self._save += _WEIGHT * (seconds - self._save)
        return True

    def durable(self, step: int, seconds: float) -> None:
        """As the runner writes it: the same save is told again and again."""
        if step == self._durable_step or not (math.isfinite(seconds) and seconds >= 0):
            return
        self._durable_step = step
        self._durable = seconds if self._durable is None else self._durable + _WEIGHT * (seconds - self._durable)

    def is_news(self, interval: float) -> bool:
        """It differs by more than a quarter from the one that people were told of."""
        news = not self._told / _CHANGE <= interval <= self._told * _CHANGE
        self._told = interval if news else self._told
        return news

    def state(self) -> dict[str, float | None]:
        return {"save_seconds": self._save, "durable_seconds": self._durable}

    def load(self, state: object) -> None:
        """Anything that is not as `state` made it is left alone: it is only an estimate."""
        if not isinstance(state, Mapping):
            return
        self._save, self._durable = _seconds(state.get("save_seconds")), _seconds(state.get("durable_seconds"))
        self._loaded = self._save is not None


def read_rate(text: str | None) -> float | None:
    """From the environment. None where nobody knows, or nobody could know that."""
    try:
        rate = float(text or "")
    except ValueError:
        return None
    return rate if math.isfinite(rate) and rate > 0 else None


def _seconds(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if good else None
