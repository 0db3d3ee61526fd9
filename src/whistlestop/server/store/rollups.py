"""The pyramid over a series: a bucket of level k sums up 16 ** k points, a row holds 256 buckets. Only full chunks and
full buckets are in it, so a row changes only by growing, and a new point costs the same however many there are."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from whistlestop.server.store import buckets
from whistlestop.server.store.buckets import Buckets
from whistlestop.server.store.schema import metric_rollups

FACTOR = 16
ROW = 256  # buckets
CHUNK = 4096  # points: a row of level 1
WHOLE = 3  # the level at which a chunk is one bucket
MOST_TERMS = 100  # in one condition: SQLite takes a thousand


class Key(NamedTuple):
    series: int
    level: int
    number: int  # of the row


@dataclass(frozen=True)
class Stored:
    first_record: int  # at level 1: the key of the chunk
    buckets: Buckets


@dataclass(frozen=True)
class Grown:
    """Chunks of a series that have become full."""

    series: int
    before: int  # full chunks that it had
    first_records: Sequence[int]  # of the new ones
    points: Buckets  # of all the new ones


def full_buckets(chunks: int, level: int) -> int:
    """How many of a level are in the pyramid over so many full chunks."""
    return chunks * CHUNK // int(FACTOR**level)


def grow(connection: sa.Connection, grown: Sequence[Grown]) -> None:
    begun = read(connection, [key for each in grown for key in _begun(each)])
    drop(connection, list(begun))
    rows: list[dict[str, Any]] = []
    for each in grown:
        rows += _rows(each, begun)
    if rows:
        connection.execute(metric_rollups.insert(), rows)


def read(connection: sa.Connection, keys: Iterable[Key]) -> dict[Key, Stored]:
    found: dict[Key, Stored] = {}
    for which in among(metric_rollups.c.series_id, metric_rollups.c.level, metric_rollups.c.number, keys=keys):
        for row in connection.execute(sa.select(metric_rollups).where(which)):
            found[Key(row.series_id, row.level, row.number)] = Stored(row.first_record, buckets.unpack(row.data))
    return found


def drop(connection: sa.Connection, keys: Iterable[Key]) -> None:
    for which in among(metric_rollups.c.series_id, metric_rollups.c.level, metric_rollups.c.number, keys=keys):
        connection.execute(metric_rollups.delete().where(which))


def among(*columns: sa.Column[Any], keys: Iterable[tuple[Any, Any, Any]]) -> Iterator[sa.ColumnElement[bool]]:
    """The three columns of a primary key are one of these keys: as a few conditions, one for each statement.

    Written out, because SQLite reads the whole table for `(a, b, c) IN (…)`.
    """
    first, second, third = columns
    groups: dict[tuple[Any, Any], list[Any]] = {}
    for one, two, three in keys:
        groups.setdefault((one, two), []).append(three)
    terms = [sa.and_(first == one, second == two, third.in_(threes)) for (one, two), threes in groups.items()]
    for start in range(0, len(terms), MOST_TERMS):
        yield sa.or_(*terms[start : start + MOST_TERMS])


def _levels(each: Grown) -> Iterator[tuple[int, int]]:
    """Those that grow, and how many buckets each had."""
    level, after = 1, each.before + len(each.first_records)
    while (had := full_buckets(each.before, level)) < full_buckets(after, level):
        yield level, had
        level += 1


def _begun(each: Grown) -> Iterator[Key]:
    for level, had in _levels(each):
        if had % ROW:
            yield Key(each.series, level, had // ROW)


def _rows(each: Grown, begun: dict[Key, Stored]) -> Iterator[dict[str, Any]]:
    below, skipped = each.points, each.before * CHUNK  # `skipped`: how many of its level are older
    for level, had in _levels(each):
        fresh = buckets.coarser(below[had * FACTOR - skipped :], FACTOR)
        first = had // ROW
        old = begun.get(Key(each.series, level, first))
        below, skipped = buckets.join([old.buckets, fresh]) if old else fresh, first * ROW
        for start in range(0, len(below), ROW):
            yield {
                "series_id": each.series,
                "level": level,
                "number": first + start // ROW,
                "first_record": each.first_records[start // ROW] if level == 1 else 0,
                "data": buckets.pack(below[start : start + ROW]),
            }
