"""How long a run's own steps, evaluations and saves take, and how long a silence must be to be a hang.

Knows no process and no clock: whoever watches says when, and where the program is. Standard library only, and quick to
import: the runner has it from the start.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

FLOOR = 60.0  # seconds: no silence that is shorter is told, however quick the steps are
UNSEEN = 15.0  # floors, for what the run has not done before: nothing is known of it
BUSY = 4.0  # times that, while the program computes or prints: it compiles, or evaluates
STEPS = 50.0  # usual steps that a first evaluation or save may take at least
TIMES = 3.0  # the 99th percentile
YOUNG, PATIENT = 5.0, 3.0  # so many floors of steps must have been seen; until then a silence takes this many floors
FEW = 8  # pieces of work: of fewer nobody knows how far they scatter
RARE, SLOWER = 20_000, 12.0  # steps: until so many were seen, one that takes so many times the median is no surprise
SURE = 5000.0  # one in so many runs like this one has a longer piece of work than we wait for
LEAST, MOST = 2.0, 8.0  # times the longest
GROWS = 4.0  # times the patience: what a silence that was taken for a hang can teach at once
LAST, LONGEST = 512, 16  # pieces of work that are remembered: the newest ones, and the longest
DAY = 86_400.0  # seconds after which the longest ones may be forgotten, and twice that after which they are


class Doing(StrEnum):
    """What the program is at. Each has a history of its own."""

    START = "start"  # before its loop: imports, loads
    FIRST_STEP = "first_step"  # compiles
    STEP = "step"
    EPOCH_END = "epoch_end"  # the last and the first step of an epoch: many evaluate there and say nothing of it
    EVALUATION = "evaluation"
    SAVE = "save"
    FINISH = "finish"  # behind the loop


_FLOORS = 5.0  # of all but steps: small evaluations may be followed by a large one
_ONCE_IS_NOTHING = 2  # evaluations or saves: the first one is often a mere trial


class Moment(NamedTuple):
    """Where the program is, by its own words. Any change is progress."""

    doing: Doing
    step: int = 0
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Usual:
    """Seconds that one piece of work takes: one step, one evaluation."""

    median: float
    longest: float
    count: int


class Rhythm:
    """Of one rank. `every`: seconds between two looks; what happens more often is seen in blocks."""

    def __init__(self, *, floor: float = FLOOR, every: float = 1.0) -> None:
        self.floor, self._every = floor, every
        self._histories: dict[Doing, _History] = {}
        self._moment: Moment | None = None
        self._seen_at = self._now = self._since = 0.0
        self.broken = 0.0  # seconds of the last silence that has ended

    def see(self, at: float, moment: Moment) -> bool:
        """The program is there now. True: it has got on since the last look."""
        # Time in which nobody looked does not count: then the whole host stood still, or we did.
        self._now += min(max(0.0, at - self._seen_at), 5.0 * self._every) if self._moment is not None else 0.0
        self._seen_at = at
        before, self._moment = self._moment, moment
        if before == moment:
            return False
        if before is not None:
            self.broken = self.silent
            self._learn(before, self.silent, moment.step - before.step)
        self._since = self._now
        return True

    def rest(self, at: float) -> None:
        """Nothing is expected of it now, and nothing is learnt."""
        self._moment, self._seen_at, self._since = None, at, self._now

    def skip(self, at: float) -> None:
        """It waits for others since the last look: that is neither silence nor a piece of work of its own."""
        self._seen_at = at

    @property
    def moment(self) -> Moment | None:
        return self._moment

    @property
    def silent(self) -> float:
        """Seconds without progress."""
        return self._now - self._since

    def patience(self, doing: Doing | None = None, *, idle: bool = True) -> float:
        """Seconds of silence that what it has done so far justifies. `idle`: it neither computes nor prints; that
        counts only where there is no history."""
        doing = doing or (self._moment.doing if self._moment is not None else Doing.START)
        history = self._histories.get(doing)
        steps = self._histories.get(Doing.STEP)
        known = history.count if history is not None else 0
        if not idle and doing in (Doing.START, Doing.FINISH):
            return math.inf  # it may train without telling us, or only log
        unseen = max(UNSEEN * self.floor * (1.0 if idle else BUSY), STEPS * (steps.usual().median if steps else 0.0))
        if history is None or known < (1 if doing is Doing.STEP else _ONCE_IS_NOTHING):
            return unseen if history is None else max(unseen, history.expected())
        if doing is not Doing.STEP:
            return max(_FLOORS * self.floor, history.expected())
        floors = 1.0 if history.spent >= YOUNG * self.floor else PATIENT
        rare = SLOWER * history.usual().median if known < RARE else 0.0
        return max(floors * self.floor, rare, history.expected())

    def usual(self, doing: Doing) -> Usual | None:
        """None: it has not done that yet."""
        history = self._histories.get(doing)
        return history.usual() if history is not None else None

    def _learn(self, before: Moment, seconds: float, steps: int) -> None:
        doing = before.doing
        if doing in self._histories and seconds > self.floor:
            seconds = min(seconds, GROWS * self.patience(doing, idle=False))
        if doing not in self._histories:
            self._histories[doing] = _History(self._every)
        self._histories[doing].add(seconds, max(1, steps), self._now)


class _History:
    """Bounded: the newest pieces of work, and the longest of this day and of the one before it."""

    def __init__(self, every: float) -> None:
        self.count = 0
        self.spent = 0.0  # seconds
        self._every = every
        self._last: deque[tuple[float, int]] = deque(maxlen=LAST)
        self._longest: list[float] = []
        self._earlier: list[float] = []
        self._day = 0.0
        self._longest_one = 0.0

    def add(self, seconds: float, steps: int, now: float) -> None:
        self.count += 1
        self.spent += seconds
        self._last.append((seconds, steps))
        # Of a block, one step may have taken all but the time between two looks.
        one = seconds if steps == 1 else max(seconds / steps, seconds - self._every)
        self._longest_one = max(self._longest_one, one)
        if now - self._day > DAY:
            self._day, self._earlier, self._longest = now, self._longest, []
        if len(self._longest) < LONGEST:
            heapq.heappush(self._longest, seconds)
        elif seconds > self._longest[0]:
            heapq.heapreplace(self._longest, seconds)

    def usual(self) -> Usual:
        ordered = sorted(seconds / steps for seconds, steps in self._last)
        return Usual(ordered[len(ordered) // 2], self._longest_one, self.count)

    def expected(self) -> float:
        """Longer than this the next one will hardly be."""
        ordered = sorted(seconds for seconds, _ in self._last)
        percentile = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]
        longest = heapq.nlargest(LONGEST, self._longest + self._earlier)
        return max(TIMES * percentile, _beyond(longest, self.count) * longest[0])


def _beyond(longest: Sequence[float], count: int) -> float:
    """How many times the longest one the next may take, by how far the longest ones lie apart (Hill's estimate of the
    tail): saves that all take a minute will not take two, steps between a second and a minute may well."""
    if count < FEW:
        return TIMES
    least = max(longest[-1], 1e-3)
    spread = sum(math.log(max(each, least) / least) for each in longest[:-1]) / (len(longest) - 1)
    return min(MOST, max(LEAST, SURE**spread if spread < 1.0 else MOST))
