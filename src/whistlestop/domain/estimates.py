"""How long the steps that are left will take, and how well that is known: from the pace so far, for whoever asks
(lists, budgets, deadlines, advice). The only estimator: what two of them said would differ."""

import bisect
import itertools
import math
from dataclasses import dataclass

Mark = tuple[int, float]  # a step, and the time at which it was done

MOST = 128  # marks of one run: thinned beyond, so that a look costs the same after an hour and after a month
WARM_UP = 10  # steps before anything is told: the first ones are not like the others
BLOCKS = 8  # parts of equal steps that the history is cut into: what they differ by is what the pace varies by

# The factors of the band by the tuning half of the recorded paces, the rest by earlier recordings that were not kept
# (docs/adr/0029-kill-or-wait.md); tests/diagnosis/test_forecast.py measures with the half that nobody has looked at.
RECENT = 0.5  # how much the newer half of the history weighs beside the whole
MEMORY = 0.7  # Hurst's exponent: 0.5 if every block were for itself; slow spells last, so means settle more slowly
FLOOR = 0.08  # no pace is known better than this
FARTHER = 0.1  # for every e-fold that is to come beyond what was seen: what has never happened yet
LOW, HIGH = -1.4, 1.62  # of the ratio of truth to estimate, in deviations: one run in ten lies beyond either


@dataclass(frozen=True)
class Pace:
    """When it was at which step, thinned evenly, and its newest report."""

    marks: tuple[Mark, ...] = ()
    last: Mark | None = None
    apart: int = 1  # steps between two marks, at least

    def told(self, step: int, at: float) -> "Pace":
        """The same step again says nothing new; after a step back, or a clock that was, it is another history."""
        if not math.isfinite(at) or at <= 0:
            return self
        if self.last is None or step < self.last[0] or at < self.last[1]:
            return Pace(((step, at),), (step, at))
        if step == self.last[0]:
            return self
        if step - self.marks[-1][0] < self.apart:
            return Pace(self.marks, (step, at), self.apart)
        marks, apart = (*self.marks, (step, at)), self.apart
        if len(marks) > MOST:
            marks, apart = marks[::2], max(2 * apart, (step - marks[0][0]) // MOST)
        return Pace(marks, (step, at), apart)

    @property
    def history(self) -> tuple[Mark, ...]:
        """With the newest report."""
        if self.last is None or self.last == self.marks[-1]:
            return self.marks
        return (*self.marks, self.last)


@dataclass(frozen=True)
class Left:
    """Seconds. In eight of ten runs the truth lies between `low` and `high`."""

    low: float
    likely: float
    high: float

    def times(self, factor: float) -> "Left":
        return Left(self.low * factor, self.likely * factor, self.high * factor)


def seconds_left(pace: Pace | None, steps: int) -> Left | None:
    """For so many more steps. None as long as there is too little to go by."""
    if pace is None:
        return None
    history = pace.history
    if len(history) < 2 or history[-1][0] - history[0][0] < WARM_UP:
        return None
    if steps <= 0:
        return Left(0.0, 0.0, 0.0)
    history = _warm(history)
    made = history[-1][0] - history[0][0]
    paces = _paces(history)
    recent = paces[len(paces) // 2 :]
    likely = steps * _mean(paces) ** (1 - RECENT) * _mean(recent) ** RECENT
    ahead = max(1e-9, steps / made)
    settles = 2 * MEMORY - 2
    own = _variance(paces) * (len(paces) ** settles + (len(paces) * ahead) ** settles)
    deviation = math.sqrt(own + FLOOR**2 + (FARTHER * math.log1p(ahead)) ** 2)
    return Left(likely * _power(LOW * deviation), likely, likely * _power(HIGH * deviation))


def _warm(history: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """Without its first steps, where there are others: they compile, open and fill what the later ones find ready."""
    first, made = history[0][0], history[-1][0] - history[0][0]
    begins = bisect.bisect_left(history, (first + min(WARM_UP, made // WARM_UP), 0.0))
    return history[max(1, begins) :] if len(history) - begins > 3 else history


def _paces(history: tuple[Mark, ...]) -> list[float]:
    """Seconds a step, in blocks of equal steps: pauses for an evaluation or a save are in them as they come."""
    count = max(1, min(BLOCKS, len(history) - 1))
    first, made = history[0][0], history[-1][0] - history[0][0]
    times = [_at(history, first + made * block / count) for block in range(count + 1)]
    return [max(1e-9, (end - begin) * count / made) for begin, end in itertools.pairwise(times)]


def _at(history: tuple[Mark, ...], step: float) -> float:
    after = min(len(history) - 1, max(1, bisect.bisect_left(history, (step, 0.0))))
    (begin, begun), (end, ended) = history[after - 1], history[after]
    return begun + (ended - begun) * (step - begin) / (end - begin)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(paces: list[float]) -> float:
    """Of their logarithms: a pace that doubles is as far off as one that halves."""
    if len(paces) < 2:
        return 0.0
    logs = [math.log(pace) for pace in paces]
    mean = _mean(logs)
    return math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)


def _power(exponent: float) -> float:
    return math.exp(max(-20.0, min(20.0, exponent)))
