"""The least that a job could have cost, had one known when capacity comes and goes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from whistlestop.capacity.deadline import Job
from whistlestop.capacity.simulation import TICK
from whistlestop.capacity.traces import Trace

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Values = NDArray[numpy.float64]  # credits, by units of work left

_UNITS: Final = (60.0, 30.0, 20.0, 15.0, 12.0, 10.0)  # seconds; each divides a tick
_NEVER: Final = 1e18


def optimum(job: Job, traces: Sequence[Trace], *, on_demand: float, start: float = 0.0) -> float:
    """Credits; infinite: nothing could have kept the deadline. Exact on the simulator's ticks where work, changeover
    and time are whole numbers of ten seconds, else below by what they were rounded: no policy is cheaper.
    Backwards from the deadline, for every amount of work left at once."""
    import numpy

    scale = _scale(job)
    work, ticks = scale.work, math.ceil(scale.time / scale.tick)
    there = [[trace.at(start + tick * TICK) for tick in range(ticks)] for trace in traces]
    stays = [_stays(each) for each in there]
    firm, prices = on_demand * scale.unit / 3600, [trace.price * scale.unit / 3600 for trace in traces]
    enter = math.ceil(scale.changeover / scale.tick)  # ticks, the last of which may have some work in it
    kept = enter + 2

    def ended() -> "Values":
        values = numpy.full(work + 1, _NEVER)
        values[0] = 0.0
        return values

    idle, paid = [ended() for _ in range(kept)], [ended() for _ in range(kept)]
    spot = [[ended() for _ in range(kept)] for _ in traces]
    for tick in range(ticks - 1, -1, -1):
        here, after, begun = tick % kept, (tick + 1) % kept, (tick + enter) % kept
        length = min(scale.tick, scale.time - tick * scale.tick)  # of the last one: up to the deadline
        works = _worked(firm, 0, length, paid[after])
        gains = [_worked(price, 0, length, each[after]) for price, each in zip(prices, spot, strict=True)]
        best = idle[after].copy()
        # Units of work in the ticks of a changeover; below nothing: the deadline comes first.
        done = min(enter * scale.tick, scale.time - tick * scale.tick) - scale.changeover
        if enter == 0:
            numpy.minimum(best, works, out=best)
        elif done >= 0:
            numpy.minimum(best, _worked(firm, scale.changeover, done, paid[begun]), out=best)
        for index, price in enumerate(prices):
            if enter == 0 and there[index][tick]:
                numpy.minimum(best, gains[index], out=best)
            elif enter and done >= 0 and stays[index][tick] >= enter:
                numpy.minimum(best, _worked(price, scale.changeover, done, spot[index][begun]), out=best)
        best[0] = 0.0
        idle[here] = best
        paid[here] = numpy.minimum(works, best)
        for index, gained in enumerate(gains):
            spot[index][here] = numpy.minimum(gained, best) if there[index][tick] else best
    least = float(idle[0][work])
    return least if least < _NEVER else math.inf


@dataclass(frozen=True)
class _Scale:
    """A job in whole units. Where it does not fit: less work, less of a changeover and more time than it has."""

    unit: float  # seconds
    tick: int
    work: int
    changeover: int
    time: int


def _scale(job: Job) -> _Scale:
    fits = [unit for unit in _UNITS if all(_whole(each / unit) for each in (job.work, job.changeover, job.time))]
    unit = fits[0] if fits else _UNITS[-1]
    return _Scale(
        unit,
        round(TICK / unit),
        math.floor(job.work / unit + 1e-9),
        math.floor(job.changeover / unit + 1e-9),
        math.ceil(job.time / unit - 1e-9),
    )


def _whole(number: float) -> bool:
    return abs(number - round(number)) < 1e-9


def _worked(price: float, before: int, done: int, then: "Values") -> "Values":
    """`before` units are paid for that bring nothing, then `done` units of work; what is less than them ends it."""
    import numpy

    values = numpy.empty_like(then)
    done = min(done, len(then) - 1)
    values[0] = 0.0
    for left in range(1, done + 1):
        values[left] = price * (before + left)
    numpy.add(then[1 : len(then) - done], price * (before + done), out=values[done + 1 :])
    return values


def _stays(there: Sequence[bool]) -> list[int]:
    """Ticks for which it stays, from each one on."""
    found, count = [0] * len(there), 0
    for index in range(len(there) - 1, -1, -1):
        count = count + 1 if there[index] else 0
        found[index] = count
    return found
