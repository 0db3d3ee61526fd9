"""Lines for charts: buckets aligned to round numbers, so that a chart that grows changes only at its end."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from whistlestop.server.store import buckets
from whistlestop.server.store.buckets import ODD, Buckets, Column
from whistlestop.server.store.descent import Found, Reader, Seek

DIGITS = 7  # significant ones: a screen shows four
FINE = 6  # digits of what lies between the lowest and the highest value: a counter's last steps are visible, too
LATEST = 1e11  # seconds: a time behind it, which a program may have made up, stands at the chart's edge
MOST_EXACT = 1e15  # with more digits than that, rounding would only add errors
MOST_ODD = 100
FINEST = {"step": 1.0, "time": 2.0**-20}


@dataclasses.dataclass(frozen=True)
class Line:
    x: Column
    buckets: Buckets
    single: bool  # every bucket is one point
    odd: list[tuple[float, str]]

    def __len__(self) -> int:
        return len(self.x)

    def columns(self) -> dict[str, Any]:
        """As wire/charts.ChartLine has them."""
        highest = np.fmax.reduce(self.buckets.high, initial=-np.inf)
        with np.errstate(over="ignore"):
            reach = float(highest - np.fmin.reduce(self.buckets.low, initial=np.inf))
        return {
            "x": _plain(self.x),
            "last": _numbers(self.buckets.last, reach),
            "low": None if self.single else _numbers(self.buckets.low, reach),
            "high": None if self.single else _numbers(self.buckets.high, reach),
            "nonfinite": self.odd,
        }


def draw(reader: Reader, groups: Sequence[Sequence[Seek]], width: int) -> list[list[Line]]:
    """A group is what one chart shows: its lines share the size of their buckets. Few points are shown as they are."""
    sized = [_sized(group, width) for group in groups]
    found = _descend(reader, sized)
    few = [
        place
        for place, several in enumerate(found)
        if any(seek.size for seek in sized[place]) and sum(int(each.points.sum()) for each in several) <= width
    ]
    for place in few:
        sized[place] = [dataclasses.replace(seek, size=0.0) for seek in sized[place]]
    for place, several in zip(few, _descend(reader, [sized[place] for place in few]), strict=True):
        found[place] = several
    return [
        [_line(seek, each) for seek, each in zip(group, several, strict=True)]
        for group, several in zip(sized, found, strict=True)
    ]


def _descend(reader: Reader, groups: Sequence[Sequence[Seek]]) -> list[list[Found]]:
    found = iter(reader.descend([seek for group in groups for seek in group]))
    return [[next(found) for _ in group] for group in groups]


def _sized(group: Sequence[Seek], width: int) -> list[Seek]:
    if sum({seek.series.id: seek.series.points for seek in group}.values()) <= width:
        return list(group)
    low = min(max(first, window[0]) for first, _, window in map(_extent, group))
    high = max(min(last, window[1]) for _, last, window in map(_extent, group))
    size = _size(low, high, width, FINEST[group[0].axis])
    return [dataclasses.replace(seek, size=size) for seek in group]


def _extent(seek: Seek) -> tuple[float, float, tuple[float, float]]:
    row = seek.series
    if seek.axis == "step":
        return row.first_step, row.last_step, seek.steps
    return _clipped(row.first_time), _clipped(row.last_time), seek.times


def _clipped(time: float) -> float:
    return min(max(time, 0.0), LATEST)


def _size(low: float, high: float, width: int, finest: float) -> float:
    """The smallest power of two with which the range has at most `width` buckets."""
    if not high > low:
        return finest
    size = max(finest, 2.0 ** (math.ceil(math.log2((high - low) / width)) - 1))
    while math.floor(high / size) - math.floor(low / size) >= width:
        size *= 2
    return size


def _line(seek: Seek, found: Found) -> Line:
    nodes = found.buckets
    where = nodes.step_high if seek.axis == "step" else nodes.time_high
    places = np.floor(where / seek.size) if seek.size else where
    order = np.argsort(places, kind="stable") if np.any(places[1:] < places[:-1]) else np.arange(len(places))
    places = places[order]
    starts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1]))) if len(places) else order
    merged = buckets.merge(nodes[order], starts)
    x = merged.step_high if seek.axis == "step" else merged.time_high
    single = bool(len(starts) == len(nodes) and (found.points == 1).all())
    return Line(x, merged, single, _odd(nodes.odd[order], where[order]))


def _odd(bits: Column, where: Column) -> list[tuple[float, str]]:
    chosen = np.flatnonzero(bits)[:MOST_ODD]
    told = zip(_plain(where[chosen]), bits[chosen].tolist(), strict=True)
    return [(x, word) for x, bit in told for mask, word in ODD.items() if bit & mask][:MOST_ODD]


def _plain(x: Column) -> list[float]:
    """Steps as they are, times to a tenth of a millisecond."""
    values: list[float] = (x if x.dtype.kind == "i" else np.round(np.clip(x, 0.0, LATEST), 4)).tolist()
    return values


def _numbers(values: Column, reach: float) -> list[float | None]:
    with np.errstate(all="ignore"):  # 0 has no logarithm, and what is tiny or huge stays as it is
        places = DIGITS - 1 - np.floor(np.log10(np.abs(values)))
        if 0 < reach < np.inf:
            places = np.maximum(places, FINE - 1 - np.floor(np.log10(reach)))
        scaled = values * 10.0**places
        rounded = np.round(scaled) / 10.0**places
    shown = np.where(np.isfinite(rounded) & (np.abs(scaled) < MOST_EXACT), rounded, values)
    if np.isnan(shown).any():
        return [None if value != value else value for value in shown.tolist()]
    plain: list[float | None] = shown.tolist()
    return plain
