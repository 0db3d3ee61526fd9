"""What the rest of a job will cost, by what is left of it and of its time: the value function of a Markov decision
process. Spot comes and goes at the rates that lifetimes.py has learned, on-demand can always be had, and a deadline
that can't be kept any more costs more than everything."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from whistlestop.capacity.lifetimes import AGES, SPANS, span

_ROWS: Final = 500  # into which the time to the deadline is cut
_MOST_ROWS: Final = 2000
_MORE: Final = 1.1  # times the work that it is made for: estimates may grow
_FEW: Final = 20  # ticks of work, from which on finer ones are better
_TOO_LATE: Final = 1e5  # where all of the time on-demand costs 1


@dataclass(frozen=True)
class Rates:
    """Ends per second by span of ages, of being there and of being away; prices in credits per second."""

    up: Sequence[float]
    down: Sequence[float]
    spot: float
    on_demand: float
    other: float = 0.0  # the chance that another pool is there when this one goes


@dataclass(frozen=True)
class Costs:
    """From here on, for each choice, as a part of what all of the time on-demand costs."""

    wait: float
    spot: float
    on_demand: float


class Outlook:
    """For a job with `work` seconds of work and `time` seconds to its deadline, for the next `horizon` seconds: what
    belongs to later ones is computed, and not kept."""

    def __init__(self, rates: Rates, work: float, time: float, changeover: float, horizon: float) -> None:
        import numpy

        # A little work long before its deadline needs finer ticks than its time by itself.
        self._tick = tick = max(1.0, min(time / _ROWS, max(work / 50, time / _MOST_ROWS)))
        # In parts of the dearest way, whatever the prices are: what is too late must be more than all of it.
        self._firm, self._cheap = 1 / time, rates.spot / rates.on_demand / time
        self._rates, self._work, self._time, self._changeover = rates, work, time, changeover
        self._horizon = horizon
        self._enter = enter = max(1, math.ceil(changeover / tick - 1e-9))  # ticks until it works, at the most
        self._begun = enter - changeover / tick  # work that is done in them, in ticks
        rows, columns = math.ceil(time / tick) + 1, math.ceil(_MORE * work / tick) + 2
        exact = _moves(numpy, rates, tick)
        there = slice(0, SPANS)
        # Half the width of a double is enough for costs, and twice as quick.
        self._moves = moves = exact.astype(numpy.float32)
        stays = moves[there, there]
        self._stays_up = numpy.linalg.matrix_power(exact[there, there], enter).astype(numpy.float32)
        self._after = numpy.linalg.matrix_power(exact, enter).astype(numpy.float32)
        self._lost = 1.0 - self._stays_up.sum(axis=1)
        self._rows, self._kept = rows, min(rows, int(horizon / tick) + enter + 3)
        shape = (self._kept, 2 * SPANS, columns)
        self._idle = idle = numpy.full(shape, _TOO_LATE, numpy.float32)
        self._paid = paid = numpy.full(shape, _TOO_LATE, numpy.float32)  # on-demand
        self._spot = spot = numpy.full((self._kept, SPANS, columns), _TOO_LATE, numpy.float32)
        idle[:, :, 0] = paid[:, :, 0] = spot[:, :, 0] = 0.0
        gone = 1.0 - stays.sum(axis=1, keepdims=True)
        for row in range(1, rows):
            at, before = row % self._kept, (row - 1) % self._kept
            here = moves @ idle[before]
            if row >= enter:
                numpy.minimum(here, self._start_paid(numpy, row), out=here)
                numpy.minimum(here[there], self._start_spot(numpy, row), out=here[there])
            here[:, 0] = 0.0
            onwards = stays @ spot[before] + gone * self._taken(row - 1)
            idle[at] = here
            paid[at, :, 1:] = self._firm * tick + (moves @ paid[before])[:, :-1]
            spot[at, :, 1:] = self._cheap * tick + onwards[:, :-1]
            paid[at, :, 0] = spot[at, :, 0] = 0.0
            numpy.minimum(paid[at], here, out=paid[at])
            numpy.minimum(spot[at], here[there], out=spot[at])

    def covers(self, work: float, time: float, changeover: float) -> bool:
        """False: it was made for less, or for something else, or its ticks are too long for the little that is left."""
        close = abs(changeover - self._changeover) <= 0.2 * self._changeover
        coarse = work < _FEW * self._tick and time < self._time / 2
        return (
            close and not coarse and work <= _MORE * self._work and self._time - self._horizon <= time <= self._time + 1
        )

    def costs(self, work: float, time: float, *, up: bool, age: float, on: str) -> Costs:
        """`on`: what it is on now: "idle", "spot" or "on_demand"."""
        # Less than a tick of work is a tick: what a changeover costs does not shrink with it.
        column, row = max(1.0, work / self._tick), int(time / self._tick)
        row = min(row, self._rows - 1)
        state = _state(up, age)
        if row < 1:
            return Costs(_TOO_LATE, _TOO_LATE, 0.0)
        tick = self._tick
        wait = self._mean(self._moves[state], self._idle[(row - 1) % self._kept], column)
        if on == "on_demand":
            paid = self._firm * tick + self._mean(
                self._moves[state], self._paid[(row - 1) % self._kept], max(0.0, column - 1)
            )
        elif row >= self._enter:
            paid = self._firm * tick * self._enter + self._mean(
                self._after[state], self._paid[(row - self._enter) % self._kept], max(0.0, column - self._begun)
            )
        else:
            paid = _TOO_LATE
        spot = _TOO_LATE
        if up and row >= self._enter:
            spot = self._cheap * tick * self._enter * (1 - self._lost[state] / 2)
            begun = max(0.0, column - self._begun)
            spot += self._mean(self._stays_up[state], self._spot[(row - self._enter) % self._kept], begun)
            spot += self._lost[state] * _at(self._taken(row - (self._enter + 1) // 2)[0], column)
        return Costs(float(wait), float(spot), float(paid))

    def _start_paid(self, numpy: Any, row: int) -> Any:
        cost = self._firm * self._tick * self._enter
        return cost + _less(numpy, self._after @ self._paid[(row - self._enter) % self._kept], self._begun)

    def _start_spot(self, numpy: Any, row: int) -> Any:
        lost = self._lost[:, None]
        cost = self._cheap * self._tick * self._enter * (1 - lost / 2)
        kept = _less(numpy, self._stays_up @ self._spot[(row - self._enter) % self._kept], self._begun)
        return cost + kept + lost * self._taken(row - (self._enter + 1) // 2)

    def _taken(self, row: int) -> Any:
        """The pool has just gone: perhaps another one is there."""
        other = self._rates.other
        idle = self._idle[row % self._kept]
        return (1 - other) * idle[SPANS : SPANS + 1] + other * idle[2:3]

    def _mean(self, chances: Any, values: Any, column: float) -> float:
        left = int(column)
        share = column - left
        return float(chances @ (values[:, left] * (1 - share) + values[:, min(left + 1, values.shape[1] - 1)] * share))


def too_late(cost: float) -> bool:
    return cost >= _TOO_LATE / 1000


def _state(up: bool, age: float) -> int:
    return span(age) + (0 if up else SPANS)


def _at(values: Any, column: float) -> float:
    left = int(column)
    share = column - left
    return float(values[left] * (1 - share) + values[min(left + 1, len(values) - 1)] * share)


def _less(numpy: Any, values: Any, work: float) -> Any:
    """The same with so much less to do, in ticks below one."""
    if work == 0.0:
        return values
    less = (1 - work) * values
    less[:, 1:] += work * values[:, :-1]
    less[:, 0] += work * values[:, 0]
    return less


def _moves(numpy: Any, rates: Rates, tick: float) -> Any:
    """Chances from one tick to the next: there by age, then away by age."""
    moves = numpy.zeros((2 * SPANS, 2 * SPANS))
    for here, there, ends in ((0, SPANS, rates.up), (SPANS, 0, rates.down)):
        for index in range(SPANS):
            end = 1.0 - math.exp(-ends[index] * tick)
            last = index == SPANS - 1
            older = 0.0 if last else min(1.0, tick / (AGES[index + 1] - AGES[index]))
            moves[here + index, there] += end
            moves[here + index, here + index] += (1 - end) * (1 - older)
            if not last:
                moves[here + index, here + index + 1] += (1 - end) * older
    return moves
