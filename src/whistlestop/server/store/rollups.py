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
    if begun:
        connection.execute(_DROP, [dict(zip(("series", "of_level", "row_number"), key, strict=True)) for key in begun])
    rows: list[dict[str, Any]] = []
    for each in grown:
        rows += _rows(each, begun)
    if rows:
        connection.execute(metric_rollups.insert(), rows)


def read(connection: sa.Connection, keys: Iterable[Key]) -> dict[Key, Stored]:
    return {
        Key(row.series_id, row.level, row.number): Stored(row.first_record, buckets.unpack(row.data))
        for row in _ROWS.read(connection, keys)
    }


class Lookup:
    """Rows by the three columns of their primary key, a few statements for any number of them.

    Not by `(a, b, c) IN (…)`, for which SQLite reads the whole table. What is asked for most is built only once.
    """

    FEW = 4  # pairs of the first two columns: a statement for each of them
    MOST = 100  # of them in one statement: SQLite takes a thousand terms
    VALUES = 10_000  # of the third column in one statement: SQLite takes 32,766 in all, PostgreSQL 65,535

    def __init__(self, *columns: sa.Column[Any], of: sa.Select[Any]) -> None:
        self._columns, self._select = columns, of
        self._one = of.where(
            columns[0] == sa.bindparam("one"),
            columns[1] == sa.bindparam("two"),
            columns[2].in_(sa.bindparam("threes", expanding=True)),
        )

    def read(self, connection: sa.Connection, keys: Iterable[tuple[Any, Any, Any]]) -> Iterator[sa.Row[Any]]:
        groups: dict[tuple[Any, Any], list[Any]] = {}
        for one, two, three in keys:
            groups.setdefault((one, two), []).append(three)
        pieces = [
            (one, two, threes[start : start + self.VALUES])
            for (one, two), threes in groups.items()
            for start in range(0, len(threes), self.VALUES)
        ]
        if len(groups) <= self.FEW:
            for one, two, threes in pieces:
                yield from connection.execute(self._one, {"one": one, "two": two, "threes": threes})
            return
        first, second, third = self._columns
        for some in self._portions(pieces):
            terms = [sa.and_(first == one, second == two, third.in_(threes)) for one, two, threes in some]
            yield from connection.execute(self._select.where(sa.or_(*terms)))

    def _portions(self, pieces: Sequence[tuple[Any, Any, list[Any]]]) -> Iterator[list[tuple[Any, Any, list[Any]]]]:
        """For one statement each."""
        some: list[tuple[Any, Any, list[Any]]] = []
        values = 0
        for piece in pieces:
            if some and (len(some) == self.MOST or values + len(piece[2]) > self.VALUES):
                yield some
                some, values = [], 0
            some.append(piece)
            values += len(piece[2])
        if some:
            yield some


_ROWS = Lookup(
    metric_rollups.c.series_id, metric_rollups.c.level, metric_rollups.c.number, of=sa.select(metric_rollups)
)
_DROP = metric_rollups.delete().where(
    metric_rollups.c.series_id == sa.bindparam("series"),
    metric_rollups.c.level == sa.bindparam("of_level"),
    metric_rollups.c.number == sa.bindparam("row_number"),
)


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
