"""Metric journals into columns: the records of one shape lie at equal distances, so they are read as a table, not one
by one. What can't be read raises, as records.parse does."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from whistlestop.channel.layout import Kind
from whistlestop.channel.records import HEADER, JournalDamaged, Record
from whistlestop.domain.clock import LATEST
from whistlestop.server.services import cleaning
from whistlestop.server.store import metrics, series, streams
from whistlestop.server.store.metrics import Points

Words = npt.NDArray[np.uint64]
_HEAD = HEADER.size // 8  # words
_STEP, _TIME, _VALUES = _HEAD, _HEAD + 1, _HEAD + 2  # of a POINTS record
MOST_SERIES = 10_000  # of one attempt: each costs a row and a chunk with every batch
_LOOK = 64  # records that are looked at first; then twice as many, and so on
_HOP = 32  # records: where fewer of one shape follow each other, all that follow are walked one by one


class Stored(NamedTuple):
    records: int
    first: bool  # of this attempt that has points whose names are too many: it has to be told
    odd: bool = False  # the program logged a value that is not finite


@dataclass(frozen=True)
class Table:
    """POINTS records of one shape and size, as rows of words."""

    shape: int
    first: int  # which records of the journal's piece they are, from 1
    rows: npt.NDArray[Any]  # u64, one row for each
    numbers: npt.NDArray[np.int64] | None = None  # where they do not follow each other


def store(connection: sa.Connection, attempt_id: str, stream: str, data: bytes) -> Stored:
    # What counts all metrics has no bytes: its offset counts the points that were left out.
    left_before, records = streams.position(connection, attempt_id, streams.ALL_METRICS)
    shapes = metrics.shapes(connection, attempt_id, stream)
    found: dict[str, list[Points]] = {}
    names: dict[int, list[str]] = {shape: [_series(stream, name) for name in known] for shape, known in shapes.items()}
    count = 0
    for part in split(data):
        if isinstance(part, Record):
            count += 1
            if part.kind == Kind.SHAPE:
                cleaned = [cleaning.name(name) for name in part.names()]
                if shapes.get(part.shape) != cleaned:
                    metrics.add_shape(connection, attempt_id, stream, part.shape, cleaned)
                shapes[part.shape], names[part.shape] = cleaned, [_series(stream, name) for name in cleaned]
        else:
            _read(part, records, names.get(part.shape, ()), found)  # without its names a point means nothing
            count += len(part.rows)
    left = _too_many(connection, attempt_id, found)
    kind = "program" if stream == "metrics-0" else "system" if stream.startswith("metrics-sys") else "rank"
    metrics.append(
        connection,
        attempt_id,
        {name: metrics.in_order(parts) for name, parts in found.items()},
        dict.fromkeys(found, kind),
    )
    streams.advance(connection, attempt_id, streams.ALL_METRICS, offset=left_before + left, records=records + count)
    odd = kind != "system" and any(not np.isfinite(each.value).all() for parts in found.values() for each in parts)
    return Stored(count, first=left > 0 and left_before == 0, odd=odd)


def _too_many(connection: sa.Connection, attempt_id: str, found: dict[str, list[Points]]) -> int:
    """Takes out what would be one series too many; the answer: how many points."""
    room = MOST_SERIES - series.count(connection, attempt_id)
    if len(found) <= room:
        return 0
    known = series.names(connection, attempt_id)
    extra = [name for name in found if name not in known][max(0, room) :]
    return sum(len(points) for name in extra for points in found.pop(name))


def split(data: bytes) -> Iterator[Table | Record]:
    """Tables of POINTS, and every other record by itself, in their order but for tables of shapes that take turns."""
    if len(data) % 8:
        raise JournalDamaged(f"{len(data) % 8} stray bytes at the end")
    words = np.frombuffer(data, "<u8")
    heads: list[int] = []  # the same as plain numbers, once they are needed
    position, count = 0, 0
    while position < len(words):
        size, kind, shape = _header(words, position)
        if kind != Kind.POINTS:
            count += 1
            yield Record(kind, shape, data[8 * (position + _HEAD) : 8 * (position + size)])
            position += size
            continue
        run = _run(words, position, size)
        if run >= _HOP:
            rows = words[position : position + run * size].reshape(run, size)
            yield Table(shape, count + 1, rows)
            position, count = position + run * size, count + run
        else:
            heads = heads or words.tolist()
            tables, position, many = _walk(words, heads, position, count)
            yield from tables
            count += many


def _header(words: Words, position: int) -> tuple[int, int, int]:
    """Size in words, kind and shape."""
    head = int(words[position])
    size, kind, shape = head & 0xFFFFFFFF, head >> 32 & 0xFFFF, head >> 48
    if size < HEADER.size or size % 8 or position + size // 8 > len(words):
        raise JournalDamaged(f"a record of {size} bytes at {8 * position}, with {8 * (len(words) - position)} left")
    if kind == Kind.POINTS and size < 8 * _VALUES:
        raise JournalDamaged(f"a POINTS record with {size - HEADER.size} bytes")
    return size // 8, kind, shape


def _run(words: Words, position: int, size: int) -> int:
    """How many records from here on have the same first word."""
    most, look = (len(words) - position) // size, _LOOK
    run = 0
    while run < most:
        heads = words[position + run * size : position + min(most, run + look) * size : size]
        same = heads == words[position]
        if not same.all():
            return run + int(np.argmin(same))
        run += len(heads)
        look *= 2
    return run


def _walk(words: Words, heads: Sequence[int], position: int, count: int) -> tuple[list[Table], int, int]:
    """Shapes that take turns: from record to record up to the next that is not POINTS, then a table for each shape."""
    places: dict[int, list[int]] = {}
    numbers: dict[int, list[int]] = {}
    number, end = count, len(heads)
    while position < end:
        head = heads[position]
        if head not in places:
            if head >> 32 & 0xFFFF != Kind.POINTS:
                break
            places[head], numbers[head] = [], []
            _header(words, position)
        following = position + (head & 0xFFFFFFFF) // 8
        if following > end:
            _header(words, position)  # says what is wrong
        number += 1
        places[head].append(position)
        numbers[head].append(number)
        position = following
    tables = []
    for head, starts in places.items():
        rows = words[np.array(starts)[:, None] + np.arange((head & 0xFFFFFFFF) // 8)]
        tables.append(Table(head >> 48, 0, rows, np.array(numbers[head], np.int64)))
    return tables, position, number - count


def _read(table: Table, before: int, names: Sequence[str], found: dict[str, list[Points]]) -> None:
    values = table.rows.shape[1] - _VALUES
    if names and values < len(names):
        raise JournalDamaged(f"shape {table.shape} has {len(names)} names, and a record of it {values} values")
    if table.numbers is None:
        numbers = np.arange(before + table.first, before + table.first + len(table.rows))
    else:
        numbers = before + table.numbers
    steps = np.ascontiguousarray(table.rows[:, _STEP]).view(np.int64)
    told = np.ascontiguousarray(table.rows[:, _TIME]).view(np.float64)
    times = np.clip(np.nan_to_num(told, posinf=0.0, neginf=0.0), 0.0, LATEST)
    for column, name in enumerate(names):
        value = np.ascontiguousarray(table.rows[:, _VALUES + column]).view(np.float64)
        found.setdefault(name, []).append(Points(numbers, steps, times, value))


def _series(stream: str, name: str) -> str:
    """Rank 0 and the runner's samples speak for the run; other ranks are told apart."""
    name, rank = cleaning.name(name), stream.removeprefix("metrics-")
    return name if rank == "0" or rank.startswith("sys") else f"{name}@{rank}"
