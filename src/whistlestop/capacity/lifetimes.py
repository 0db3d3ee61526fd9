"""How long a spot pool stays, and how long it stays away, by age: what is alive for long is safer than what is young.
Nelson and Aalen's way of counting: ends and time at risk, for each span of ages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

AGES: Final = (0.0, 600.0, 1500.0, 3600.0, 9000.0, 24000.0, 60000.0)  # where a span of ages begins, in seconds
SPANS: Final = len(AGES)
_NEVER: Final = float("inf")
_DAY: Final = 86400.0
_WEIGHT: Final = 3.0  # ends' worth of belief in what other pools have shown, for each span

# Ends per second, as 22 days of three pools of one provider have shown them (V100, 2023, looked at every 195 s). A
# pool's own record outweighs them after a few ends.
USUAL_UP: Final = (3.6e-4, 3.6e-4, 1.9e-4, 1.1e-4, 4.5e-5, 3.1e-5, 7.4e-6)
USUAL_DOWN: Final = (3.3e-4, 3.5e-4, 1.5e-4, 8.5e-5, 9.3e-5, 7.3e-5, 7.3e-5)


def span(age: float) -> int:
    return next((index - 1 for index, begin in enumerate(AGES) if age < begin), SPANS - 1)


@dataclass
class Spells:
    """Of one kind: being there, or being away."""

    usual: Sequence[float]
    ends: list[float] = field(default_factory=lambda: [0.0] * SPANS)
    at_risk: list[float] = field(default_factory=lambda: [0.0] * SPANS)  # seconds

    def add(self, seconds: float, *, ended: bool) -> None:
        for index, begin in enumerate(AGES):
            until = AGES[index + 1] if index + 1 < SPANS else _NEVER
            self.at_risk[index] += max(0.0, min(seconds, until) - begin)
        if ended:
            self.ends[span(seconds)] += 1

    def rates(self) -> list[float]:
        """Ends per second, by span of ages."""
        return [
            (_WEIGHT + ends) / (_WEIGHT / usual + seconds)
            for usual, ends, seconds in zip(self.usual, self.ends, self.at_risk, strict=True)
        ]

    def stays(self, age: float, seconds: float) -> float:
        """The chance that one of this age goes on for so long."""
        rates, until, risk = self.rates(), age + seconds, 0.0
        for index in range(span(age), SPANS):
            begin = max(age, AGES[index])
            end = until if index == SPANS - 1 else min(until, AGES[index + 1])
            risk += rates[index] * max(0.0, end - begin)
        return math.exp(-risk)

    def left(self, age: float) -> float:
        """Seconds that one of this age may be expected to go on."""
        rates = self.rates()
        first = span(age)
        survives, expected = 1.0, 0.0
        for index in range(first, SPANS):
            begin = age if index == first else AGES[index]
            rate = rates[index]
            if index == SPANS - 1:
                expected += survives / rate
                break
            stays = math.exp(-rate * (AGES[index + 1] - begin))
            expected += survives * (1.0 - stays) / rate
            survives *= stays
        return expected


@dataclass
class Record:
    """What has been seen of one pool."""

    up: Spells = field(default_factory=lambda: Spells(USUAL_UP))
    down: Spells = field(default_factory=lambda: Spells(USUAL_DOWN))
    _is_up: bool | None = None
    _since: float | None = None  # None: when it began was not seen

    def see(self, now: float, up: bool) -> None:
        """As often as somebody looks. What was there at the first look is of unknown age: its end is not counted."""
        if self._is_up is None:
            self._is_up = up
        elif up is not self._is_up:
            if self._since is not None:
                self._spells(self._is_up).add(now - self._since, ended=True)
            self._is_up, self._since = up, now

    def lose(self, now: float) -> None:
        """It took back what somebody had there, and is there again."""
        if self._is_up and self._since is not None:
            self.up.add(now - self._since, ended=True)
            self._since = now

    def age(self, now: float) -> float:
        """Since the last change; unknown counts as an hour."""
        return 3600.0 if self._since is None else max(0.0, now - self._since)

    @property
    def share(self) -> float:
        """Of the time, in which it was there; half of it, as long as little is known."""
        there, away = sum(self.up.at_risk), sum(self.down.at_risk)
        return (there + _DAY / 2) / (there + away + _DAY)

    def _spells(self, up: bool) -> Spells:
        return self.up if up else self.down
