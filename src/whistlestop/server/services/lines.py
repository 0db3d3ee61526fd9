"""Lines for charts: buckets aligned to round numbers, so that a chart that grows changes only at its end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whistlestop.domain.clock import LATEST, clipped
from whistlestop.server.store import buckets
from whistlestop.server.store.buckets import ODD, Buckets, Column
from whistlestop.server.store.descent import Reader, Seek
from whistlestop.server.store.gathering import Gathered, gather, join

DIGITS = 7  # significant ones: a screen shows four
FINE = 6  # digits of what lies between the lowest and the highest value: a counter's last steps are visible, too
MOST_EXACT = 1e15  # with more digits than that, rounding would only add errors
MOST_ODD = 100
FINEST = {"step": 1.0, "time": 2.0**-20}


@dataclass(frozen=True)
class Line:
    x: list[float]
    last: list[float | None]
    low: list[float | None] | None  # None: every bucket is one point
    high: list[float | None] | None
    nonfinite: list[tuple[float, str]]

    def __len__(self) -> int:
        return len(self.x)

    def columns(self) -> dict[str, Any]:
        """As wire/charts.ChartLine has them."""
        return vars(self)


def draw(reader: Reader, groups: Sequence[Sequence[Seek]], width: int) -> list[list[Line]]:
    """A group is what one chart shows: its lines share the size of their buckets. Few points are shown as they are."""
    seeks = [seek for group in groups for seek in group]
    if not seeks:
        return [[] for _ in groups]
    chart = np.repeat(np.arange(len(groups)), [len(group) for group in groups])  # of each seek
    sizes = np.array([_size_for(group, width) for group in groups])[chart]
    found = gather(reader, seeks, sizes)
    owner = chart[found.seek]
    few = np.bincount(owner, found.points, minlength=len(groups)) <= width
    coarse = few & (np.bincount(owner, found.points > 1, minlength=len(groups)) > 0)
    sizes[few[chart]] = 0.0
    if coarse.any():  # what was found as single points already need not be looked for again
        again = np.flatnonzero(coarse[chart])
        finer = gather(reader, [seeks[place] for place in again], sizes[again])
        found = join([found[~coarse[owner]], Gathered(again[finer.seek], finer.buckets, finer.points)])
    lines = iter(_lines(found, sizes, seeks[0].axis == "step"))
    return [[next(lines) for _ in group] for group in groups]


def _size_for(group: Sequence[Seek], width: int) -> float:
    if sum({seek.series.id: seek.series.points for seek in group}.values()) <= width:
        return 0.0
    extents = [_extent(seek) for seek in group]
    low = min(max(first, window[0]) for first, _, window in extents)
    high = max(min(last, window[1]) for _, last, window in extents)
    return _size(low, high, width, FINEST[group[0].axis])


def _extent(seek: Seek) -> tuple[float, float, tuple[float, float]]:
    row = seek.series
    if seek.axis == "step":
        return row.first_step, row.last_step, seek.steps
    return clipped(row.first_time), clipped(row.last_time), seek.times


def _size(low: float, high: float, width: int, finest: float) -> float:
    """The smallest power of two with which the range has at most `width` buckets."""
    if not high > low:
        return finest
    size = max(finest, 2.0 ** (math.ceil(math.log2((high - low) / width)) - 1))
    while math.floor(high / size) - math.floor(low / size) >= width:
        size *= 2
    return size


def _lines(found: Gathered, sizes: Column, by_step: bool) -> list[Line]:
    """One for each seek, all of them at once."""
    where = found.buckets.step_high if by_step else found.buckets.time_high
    size = sizes[found.seek]
    places = np.where(size > 0, np.floor(where / np.where(size > 0, size, 1.0)), 0.0)
    exact = np.where(size > 0, 0, where)  # a large step has more digits than a float
    order = np.lexsort((exact, places, found.seek))
    found, where, places, exact = found[order], where[order], places[order], exact[order]
    different = [column[1:] != column[:-1] for column in (found.seek, places, exact)]
    starts = np.flatnonzero(np.concatenate(([True], np.logical_or.reduce(different)))) if len(where) else order
    merged = buckets.merge(found.buckets, starts)
    owner, every = found.seek[starts], np.arange(len(sizes) + 1)
    bounds = np.searchsorted(owner, every)
    merges = np.diff(np.searchsorted(found.seek, every)) > np.diff(bounds)
    merges |= np.bincount(found.seek, found.points > 1, minlength=len(sizes)) > 0
    reach = _reach(merged, bounds)[owner]
    x = _plain(merged.step_high if by_step else merged.time_high)
    last = _numbers(merged.last, reach)
    low, high = (_numbers(merged.low, reach), _numbers(merged.high, reach)) if merges.any() else (last, last)
    odd = _odd(found, where)
    ends = bounds.tolist()
    return [
        Line(x[a:b], last[a:b], low[a:b] if many else None, high[a:b] if many else None, odd.get(place, []))
        for place, (a, b, many) in enumerate(zip(ends, ends[1:], merges.tolist(), strict=False))
    ]


def _reach(merged: Buckets, bounds: Column) -> Column:
    """Of each line: from its lowest to its highest value."""
    reach = np.zeros(len(bounds) - 1)
    filled = np.flatnonzero(np.diff(bounds))
    if len(filled):
        lows, highs = (np.fmin.reduceat(merged.low, bounds[filled]), np.fmax.reduceat(merged.high, bounds[filled]))
        with np.errstate(over="ignore"):
            reach[filled] = highs - lows
    return reach


def _odd(found: Gathered, where: Column) -> dict[int, list[tuple[float, str]]]:
    """By line: the first ones."""
    chosen = np.flatnonzero(found.buckets.odd)
    owner = found.seek[chosen]
    first = np.arange(len(chosen)) - np.searchsorted(owner, owner) < MOST_ODD
    chosen, owner = chosen[first], owner[first]
    told: dict[int, list[tuple[float, str]]] = {}
    for line, x, bit in zip(owner.tolist(), _plain(where[chosen]), found.buckets.odd[chosen].tolist(), strict=True):
        told.setdefault(line, []).extend((x, word) for mask, word in ODD.items() if bit & mask)
    return {line: several[:MOST_ODD] for line, several in told.items()}


def _plain(x: Column) -> list[float]:
    """Steps as they are, times to a tenth of a millisecond."""
    values: list[float] = (x if x.dtype.kind == "i" else np.round(np.clip(x, 0.0, LATEST), 4)).tolist()
    return values


def _numbers(values: Column, reach: Column) -> list[float | None]:
    with np.errstate(all="ignore"):  # 0 has no logarithm, and what is tiny or huge stays as it is
        places = DIGITS - 1 - np.floor(np.log10(np.abs(values)))
        fine = FINE - 1 - np.floor(np.log10(reach))
        places = np.where((reach > 0) & (reach < np.inf), np.maximum(places, fine), places)
        scaled = values * 10.0**places
        rounded = np.round(scaled) / 10.0**places
    shown = np.where(np.isfinite(rounded) & (np.abs(scaled) < MOST_EXACT), rounded, values)
    if np.isnan(shown).any():
        return [None if value != value else value for value in shown.tolist()]
    plain: list[float | None] = shown.tolist()
    return plain
