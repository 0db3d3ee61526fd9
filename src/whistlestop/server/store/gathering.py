"""What all lines of a chart show, in one array: a run that was preempted three hundred times has as many short series,
and numpy's price is for each call. Long series are descended into; short ones are read with one question for all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from whistlestop.server.store import buckets, metrics
from whistlestop.server.store.buckets import Buckets, Column
from whistlestop.server.store.descent import Reader, Seek, inside, outside, span
from whistlestop.server.store.rollups import FACTOR


@dataclass(frozen=True)
class Gathered:
    """Of each seek in the order of its records."""

    seek: Column  # i64, whose bucket it is
    buckets: Buckets
    points: Column  # in each bucket

    def __getitem__(self, chosen: Column) -> "Gathered":
        return Gathered(self.seek[chosen], self.buckets[chosen], self.points[chosen])


def gather(reader: Reader, seeks: Sequence[Seek], sizes: Column) -> Gathered:
    """`sizes`: of each seek's buckets; the seeks' own do not count."""
    short = [place for place, seek in enumerate(seeks) if not seek.series.chunks]
    long = [place for place, seek in enumerate(seeks) if seek.series.chunks]
    parts = (
        [_short(reader, [seeks[place] for place in short], np.array(short, np.int64), sizes[short])] if short else []
    )
    found = reader.descend([replace(seeks[place], size=float(sizes[place])) for place in long])
    for place, each in zip(long, found, strict=True):
        parts.append(Gathered(np.full(len(each.points), place), each.buckets, each.points))
    return join(parts)


def join(parts: Sequence[Gathered]) -> Gathered:
    if len(parts) == 1:
        return parts[0]
    none = np.empty(0, np.int64)
    return Gathered(
        np.concatenate([none, *(part.seek for part in parts)]),
        buckets.join([part.buckets for part in parts]),
        np.concatenate([none, *(part.points for part in parts)]),
    )


def _short(reader: Reader, seeks: Sequence[Seek], places: Column, sizes: Column) -> Gathered:
    """In the same buckets as when their chunk will be full, or else a line would change all along the chunk."""
    known = reader.growing([seek.series for seek in seeks])
    each = [known.get(seek.series.id, metrics.EMPTY) for seek in seeks]
    counts = np.array([len(points) for points in each])
    whole = metrics.join(each)
    points = buckets.of_points(whole.step, whole.time, whole.value)
    owner = np.repeat(np.arange(len(seeks)), counts)
    windows = np.array([(*seek.steps, *seek.times) for seek in seeks])
    left = np.ones(len(points), bool)
    parts: list[tuple[Column, Buckets, int]] = []  # where they begin
    if sizes.any():
        number = np.arange(len(points)) - np.repeat(np.cumsum(counts) - counts, counts)  # within its series
        for size in (FACTOR**2, FACTOR):
            full = np.flatnonzero(number < np.repeat(counts // size * size, counts)).reshape(-1, size)
            nodes = buckets.merge(points[full.ravel()], np.arange(len(full)) * size)
            if not len(nodes):
                continue
            whose = owner[full[:, 0]]
            narrow = span(nodes, seeks[0].axis) < sizes[whose]
            chosen = inside(nodes, windows[whose].T) & narrow & (nodes.odd == 0) & left[full[:, 0]]
            parts.append((full[chosen, 0], nodes[chosen], size))
            left[full[chosen]] = False
    single = np.flatnonzero(left & ~outside(points, windows[owner].T))
    parts.append((single, points[single], 1))
    begins = np.concatenate([starts for starts, _, _ in parts])
    order = np.argsort(begins)
    many = np.concatenate([np.full(len(part), size) for _, part, size in parts])
    return Gathered(places[owner[begins]][order], buckets.join([part for _, part, _ in parts])[order], many[order])
