"""Metric points in compressed column chunks, keyed by attempt and name. The number of the journal record orders them:
of two values for one step the later record counts, within an attempt and (by attempt number) across attempts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from whistlestop.server.store import packing, rollups, series
from whistlestop.server.store.buckets import of_points
from whistlestop.server.store.rollups import CHUNK
from whistlestop.server.store.schema import attempts, metric_chunks, metric_shapes

WORDS = 4  # record, step, time, value
NO_KINDS: Mapping[str, str] = {}

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class Points:
    record: Column  # i64
    step: Column  # i64
    time: Column  # f64
    value: Column  # f64

    def __len__(self) -> int:
        return len(self.record)

    def after(self, record: int) -> "Points":
        start = int(np.searchsorted(self.record, record, side="right"))
        return Points(self.record[start:], self.step[start:], self.time[start:], self.value[start:])

    def until(self, record: int) -> "Points":
        end = int(np.searchsorted(self.record, record, side="right"))
        return Points(self.record[:end], self.step[:end], self.time[:end], self.value[:end])

    def before_step(self, step: int) -> "Points":
        kept = self.step < step
        return Points(self.record[kept], self.step[kept], self.time[kept], self.value[kept])


EMPTY = Points(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.float64))


def join(parts: Sequence[Points]) -> Points:
    if not parts:
        return EMPTY
    return Points(
        np.concatenate([part.record for part in parts]),
        np.concatenate([part.step for part in parts]),
        np.concatenate([part.time for part in parts]),
        np.concatenate([part.value for part in parts]),
    )


def append(
    connection: sa.Connection, attempt_id: str, new: Mapping[str, Points], kinds: Mapping[str, str] = NO_KINDS
) -> None:
    """The cost follows what is new, not what is there: of each series only the chunk that still grows is read."""
    new = {name: points for name, points in new.items() if len(points)}
    if not new:
        return
    tails: dict[str, bytes] = {}
    for some in series.portions(list(new)):
        growing = sa.and_(
            metric_chunks.c.attempt_id == attempt_id,
            metric_chunks.c.open.is_(sa.true()),
            metric_chunks.c.name.in_(some),
        )
        found = {row.name: row.data for row in connection.execute(sa.select(metric_chunks).where(growing))}
        if found:
            connection.execute(metric_chunks.delete().where(growing))
        tails |= found
    rows, added, full = [], [], {}
    for name, points in new.items():
        whole = join([unpack(tails[name]), points]) if name in tails else points
        rows += [_row(attempt_id, name, _slice(whole, start, start + CHUNK)) for start in range(0, len(whole), CHUNK)]
        ends = len(whole) // CHUNK * CHUNK
        if ends:
            full[name] = _slice(whole, 0, ends)
        rest = int(whole.record[ends]) if ends < len(whole) else None
        added.append(series.Added(name, kinds.get(name, "program"), points, ends // CHUNK, rest))
    connection.execute(metric_chunks.insert(), rows)
    before = series.add(connection, attempt_id, added)
    if full:
        rollups.grow(connection, [grown(*before[name], points) for name, points in full.items()])


def grown(series_id: int, chunks: int, points: Points) -> rollups.Grown:
    """What full chunks, one behind the other, add to the pyramid."""
    first_records = points.record[::CHUNK].tolist()
    return rollups.Grown(series_id, chunks, first_records, of_points(points.step, points.time, points.value))


def page(
    connection: sa.Connection, attempt_id: str, *, wanted: Collection[str] = (), after: int = 0, limit: int
) -> tuple[dict[str, Points], int | None]:
    """By name, points whose record is after `after`: about `limit` of them at most. Where there are more, also the last
    record that is in it, else None.

    Records are never cut: one that has more values than `limit` comes whole.
    """
    newer = _newer(attempt_id, wanted, after)
    horizon = _horizon(connection, newer, limit)
    if horizon is not None:
        newer = sa.and_(newer, metric_chunks.c.first_record <= horizon)
    found = _read(connection, newer, after)
    records = np.sort(np.concatenate([points.record for points in found.values()] or [EMPTY.record]))
    if horizon is None and len(records) <= limit:
        return found, None
    last = int(records[min(limit, len(records)) - 1])
    if len(records) > limit and records[limit] == last > records[0]:
        last = int(records[np.searchsorted(records, last) - 1])  # not all of this one fits in
    last = last if horizon is None else min(last, horizon)
    return {name: points.until(last) for name, points in found.items()}, last


_NEWEST_RECORDS = sa.select(
    attempts.c.id,
    sa.select(sa.func.max(metric_chunks.c.last_record))
    .where(metric_chunks.c.attempt_id == attempts.c.id)
    .scalar_subquery()
    .label("record"),
).where(attempts.c.run_id == sa.bindparam("run"))


def newest_records(connection: sa.Connection, run_id: str) -> dict[str, int]:
    """By attempt: one query, and of each attempt a step down the index."""
    rows = connection.execute(_NEWEST_RECORDS, {"run": run_id})
    return {row.id: int(row.record) for row in rows if row.record is not None}


def _newer(attempt_id: str, wanted: Collection[str], after: int) -> sa.ColumnElement[bool]:
    newer = sa.and_(metric_chunks.c.attempt_id == attempt_id, metric_chunks.c.last_record > after)
    return sa.and_(newer, metric_chunks.c.name.in_(wanted)) if wanted else newer


def _horizon(connection: sa.Connection, newer: sa.ColumnElement[bool], limit: int) -> int | None:
    """The record up to which chunks with so many points end. None: there are not so many."""
    query = sa.select(metric_chunks.c.last_record, metric_chunks.c.points).where(newer)
    points = 0
    with connection.execute(query.order_by(metric_chunks.c.last_record)) as rows:
        for row in rows:
            points += row.points
            if points > limit:
                return int(row.last_record)
    return None


def _read(connection: sa.Connection, which: sa.ColumnElement[bool], after: int) -> dict[str, Points]:
    query = sa.select(metric_chunks.c.name, metric_chunks.c.data).where(which)
    found: dict[str, list[Points]] = {}
    for row in connection.execute(query.order_by(metric_chunks.c.name, metric_chunks.c.first_record)):
        found.setdefault(row.name, []).append(unpack(row.data).after(after))
    return {name: join(parts) for name, parts in found.items()}


def shapes(connection: sa.Connection, attempt_id: str, stream: str) -> dict[int, list[str]]:
    query = sa.select(metric_shapes.c.shape, metric_shapes.c.names).where(
        metric_shapes.c.attempt_id == attempt_id, metric_shapes.c.stream == stream
    )
    return {row.shape: row.names for row in connection.execute(query)}


def add_shape(connection: sa.Connection, attempt_id: str, stream: str, shape: int, named: Sequence[str]) -> None:
    """A later definition of the same number replaces the earlier one."""
    key = (metric_shapes.c.attempt_id == attempt_id, metric_shapes.c.stream == stream, metric_shapes.c.shape == shape)
    if connection.execute(metric_shapes.update().where(*key).values(names=list(named))).rowcount == 0:
        connection.execute(
            metric_shapes.insert().values(attempt_id=attempt_id, stream=stream, shape=shape, names=list(named))
        )


def _row(attempt_id: str, name: str, points: Points) -> dict[str, Any]:
    finite = points.value[np.isfinite(points.value)]
    return {
        "attempt_id": attempt_id,
        "name": name,
        "first_record": int(points.record[0]),
        "last_record": int(points.record[-1]),
        "points": len(points),
        "open": len(points) < CHUNK,
        "first_step": int(points.step.min()),
        "last_step": int(points.step.max()),
        "low": float(finite.min()) if len(finite) else None,
        "high": float(finite.max()) if len(finite) else None,
        "nonfinite": len(points) - len(finite),
        "data": _pack(points),
    }


def _slice(points: Points, start: int, end: int) -> Points:
    return Points(points.record[start:end], points.step[start:end], points.time[start:end], points.value[start:end])


def _pack(points: Points) -> bytes:
    return packing.pack((points.record, points.step, points.time, points.value), growing=3)


def unpack(data: bytes) -> Points:
    if not data.startswith(packing.MARK):
        return _unpack_old(packing.unpack_old(data))
    record, step, time, value = packing.unpack(data, WORDS, growing=3)
    return Points(record, step, time.view(np.float64), value.view(np.float64))


def _unpack_old(raw: bytes) -> Points:
    """As they were packed before migration 0003."""
    size = len(raw) // WORDS
    return Points(
        np.cumsum(np.frombuffer(raw[:size], "<i8")),
        np.cumsum(np.frombuffer(raw[size : 2 * size], "<i8")),
        np.frombuffer(raw[2 * size : 3 * size], "<f8"),
        np.frombuffer(raw[3 * size :], "<f8"),
    )


def in_order(parts: Sequence[Points]) -> Points:
    """One series out of several shapes, by record number."""
    points = join(parts)
    if len(parts) == 1:
        return points
    order = np.argsort(points.record, kind="stable")
    return Points(points.record[order], points.step[order], points.time[order], points.value[order])
