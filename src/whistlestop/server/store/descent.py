"""From the top of the pyramid down to what a chart needs and no further: the cost follows the width of the chart and
the number of its lines, not the number of points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import sqlalchemy as sa

from whistlestop.server.store import buckets, metrics, rollups
from whistlestop.server.store.buckets import Buckets, Column
from whistlestop.server.store.rollups import CHUNK, FACTOR, ROW, WHOLE, Key
from whistlestop.server.store.schema import metric_chunks, metric_series

Axis = Literal["step", "time"]
Range = tuple[float, float]  # both ends belong to it
ALL: Range = (-np.inf, np.inf)
AT_ONCE = 5_000  # series in one statement
MOST_ODD = 8  # of a level: buckets with values that are not finite are opened to tell where exactly, the first ones


@dataclass(frozen=True)
class Seek:
    """A part of a series, in buckets that are less than `size` wide. 0: every point by itself."""

    series: sa.Row[Any]  # of metric_series
    axis: Axis
    steps: Range = ALL
    times: Range = ALL
    size: float = 0.0
    most_rows: int = 64  # that are opened at each level; a program that jumps to and fro gets coarser buckets instead


@dataclass
class Found:
    """In the order of the records."""

    buckets: Buckets
    points: Column  # in each bucket


class Reader:
    """Reads each row once, and counts."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._rollups: dict[Key, rollups.Stored] = {}
        self._chunks: dict[tuple[int, int], Buckets] = {}
        self._growing: dict[int, metrics.Points] = {}
        self.rows = 0
        self.statements = 0

    def descend(self, seeks: Sequence[Seek]) -> list[Found]:
        """All of them together: one question for each level."""
        descents = [_Descent(seek) for seek in seeks]
        for level in range(max((descent.top for descent in descents), default=0), 0, -1):
            self._load_rollups([key for descent in descents for key in descent.needs(level)])
            for descent in descents:
                descent.look(level, self._rollups)
        self._load_chunks([(descent.seek.series, record) for descent in descents for record in descent.chunks()])
        return [descent.finish(self._chunks) for descent in descents]

    def growing(self, wanted: Sequence[sa.Row[Any]]) -> dict[int, metrics.Points]:
        """By series: the points of the chunk that grows. One question for all."""
        missing = list(dict.fromkeys(series.id for series in wanted if series.id not in self._growing))
        for start in range(0, len(missing), AT_ONCE):
            found = self._connection.execute(_GROWING, {"ids": missing[start : start + AT_ONCE]}).all()
            self._growing |= {row.id: metrics.unpack(row.data) for row in found}
            self.rows += len(found)
            self.statements += 1
        return self._growing

    def _load_rollups(self, keys: Sequence[Key]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key not in self._rollups]
        if missing:
            found = rollups.read(self._connection, missing)
            self._rollups |= found
            self.rows += len(found)
            self.statements += 1

    def _load_chunks(self, wanted: Sequence[tuple[sa.Row[Any], int]]) -> None:
        missing = {
            (series.attempt_id, series.name, record): (series.id, record)
            for series, record in wanted
            if (series.id, record) not in self._chunks
        }
        for row in _CHUNKS.read(self._connection, missing):
            points = metrics.unpack(row.data)
            made = buckets.of_points(points.step, points.time, points.value)
            self._chunks[missing[row.attempt_id, row.name, row.first_record]] = made
            self.rows += 1
        self.statements += bool(missing)


_GROWING = (
    sa.select(metric_series.c.id, metric_chunks.c.data)
    .join(
        metric_chunks,
        sa.and_(
            metric_chunks.c.attempt_id == metric_series.c.attempt_id,
            metric_chunks.c.name == metric_series.c.name,
            metric_chunks.c.first_record == metric_series.c.open_record,
        ),
    )
    .where(metric_series.c.id.in_(sa.bindparam("ids", expanding=True)))
)
_CHUNKS = rollups.Lookup(
    metric_chunks.c.attempt_id,
    metric_chunks.c.name,
    metric_chunks.c.first_record,
    of=sa.select(metric_chunks.c.attempt_id, metric_chunks.c.name, metric_chunks.c.first_record, metric_chunks.c.data),
)


@dataclass
class _Descent:
    seek: Seek
    open: Column = field(default_factory=lambda: np.empty(0, np.int64))  # buckets of the level that is looked at next
    parts: list[tuple[Column, Buckets, int]] = field(default_factory=list)  # first points, buckets, points in each
    raw: list[tuple[int, Column]] = field(default_factory=list)  # chunks by their first record, chosen points

    def __post_init__(self) -> None:
        self.top = 0
        if self.seek.series.chunks:
            self.top = WHOLE
            while rollups.full_buckets(self.seek.series.chunks, self.top + 1):
                self.top += 1

    def needs(self, level: int) -> list[Key]:
        """With what the levels above do not cover: their buckets are not full yet."""
        if level > self.top:
            return []
        if level >= WHOLE:
            covered = rollups.full_buckets(self.seek.series.chunks, level + 1) * FACTOR
            bare = np.arange(covered, rollups.full_buckets(self.seek.series.chunks, level))
            self.open = np.concatenate((self.open, bare))
        return [Key(self.seek.series.id, level, int(row)) for row in np.unique(self.open // ROW)]

    def look(self, level: int, stored: Mapping[Key, rollups.Stored]) -> None:
        if level > self.top or not len(self.open):
            return
        numbers, place = np.unique(self.open // ROW, return_inverse=True)
        rows = [stored[Key(self.seek.series.id, level, int(number))] for number in numbers]
        offsets = np.cumsum([0, *(len(row.buckets) for row in rows)])
        nodes = buckets.join([row.buckets for row in rows])[offsets[place] + self.open % ROW]
        keep, split = self._judge(nodes, self.open // (FACTOR if level > 1 else ROW))
        self.parts.append((self.open[keep] * FACTOR**level, nodes[keep], FACTOR**level))
        children = (self.open[split][:, None] * FACTOR + np.arange(FACTOR)).ravel()
        if level == 1:
            for row, number in zip(rows, numbers, strict=True):
                self.raw.append((row.first_record, children[children // CHUNK == number]))
            children = children[:0]
        self.open = children

    def chunks(self) -> list[int]:
        grows = self.seek.series.open_record
        return [record for record, chosen in self.raw if len(chosen)] + ([] if grows is None else [grows])

    def finish(self, chunks: Mapping[tuple[int, int], Buckets]) -> Found:
        series = self.seek.series
        grows = chunks.get((series.id, series.open_record)) if series.open_record is not None else None
        if grows is not None:
            self._take_growing(series.chunks * CHUNK, grows)
        for record, chosen in self.raw:
            if len(chosen):
                self._take(chosen, chunks[series.id, record][chosen % CHUNK])
        order = np.argsort(np.concatenate([starts for starts, _, _ in self.parts] or [np.empty(0, np.int64)]))
        points = np.concatenate([np.full(len(part), size) for _, part, size in self.parts] or [np.empty(0, np.int64)])
        return Found(buckets.join([part for _, part, _ in self.parts])[order], points[order])

    def _take_growing(self, first: int, points: Buckets) -> None:
        """In the same buckets as when its chunk will be full, or else the line would change all along the chunk."""
        left = np.ones(len(points), bool)
        for size in (FACTOR**2, FACTOR):
            nodes = buckets.coarser(points, size)
            kept = left[: len(nodes) * size].reshape(-1, size)
            whole = self._inside(nodes) & (self._span(nodes) < self.seek.size) & (nodes.odd == 0) & kept[:, 0]
            self.parts.append((first + np.flatnonzero(whole) * size, nodes[whole], size))
            kept[whole] = False
        self._take(first + np.flatnonzero(left), points[left])

    def _take(self, starts: Column, points: Buckets) -> None:
        within = ~self._outside(points)
        self.parts.append((starts[within], points[within], 1))

    def _judge(self, nodes: Buckets, rows_below: Column) -> tuple[Column, Column]:
        """Which to show as they are, and which to open."""
        outside, cut = self._outside(nodes), ~self._inside(nodes)
        span = self._span(nodes)
        odd = (nodes.odd > 0) & ~outside
        open_up = ~outside & (cut | (span >= self.seek.size) | (odd & (np.cumsum(odd) <= MOST_ODD)))
        if len(np.unique(rows_below[open_up])) > self.seek.most_rows:
            worst = np.flatnonzero(open_up)[np.lexsort((-span[open_up], ~cut[open_up]))]  # the edges first
            _, first = np.unique(rows_below[worst], return_index=True)
            allowed = rows_below[worst][np.sort(first)[: self.seek.most_rows]]
            open_up &= np.isin(rows_below, allowed)
        return ~outside & ~open_up, open_up

    def _span(self, nodes: Buckets) -> Column:
        return span(nodes, self.seek.axis)

    def _outside(self, nodes: Buckets) -> Column:
        return outside(nodes, (*self.seek.steps, *self.seek.times))

    def _inside(self, nodes: Buckets) -> Column:
        return inside(nodes, (*self.seek.steps, *self.seek.times))


def span(nodes: Buckets, axis: Axis) -> Column:
    low, high = (nodes.step_low, nodes.step_high) if axis == "step" else (nodes.time_low, nodes.time_high)
    wide: Column = high.astype(np.float64) - low.astype(np.float64)
    return wide


def outside(nodes: Buckets, window: Any) -> Column:
    """`window`: first and last step, first and last time; numbers, or one of each for every node."""
    beyond: Column = (nodes.step_high < window[0]) | (nodes.step_low > window[1])
    beyond |= (nodes.time_high < window[2]) | (nodes.time_low > window[3])
    return beyond


def inside(nodes: Buckets, window: Any) -> Column:
    within: Column = (nodes.step_low >= window[0]) & (nodes.step_high <= window[1])
    within &= (nodes.time_low >= window[2]) & (nodes.time_high <= window[3])
    return within
