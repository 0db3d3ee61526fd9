"""Log lines in compressed chunks. A chunk grows until it is full, so that a slow log does not become a row per line."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
import zstandard

from whistlestop.server.store.schema import attempts, log_chunks
from whistlestop.wire.frames import LogLine, decode_line, split_records

CHUNK = 128 * 1024  # bytes before compression
LINES = 2000


_OTHER = log_chunks.alias()
_LAST_CHUNKS = (  # a step down the key for each attempt: grouped, it would walk over all their chunks
    sa.select(log_chunks.c.attempt_id, log_chunks.c.first_line, log_chunks.c.lines)
    .select_from(attempts.join(log_chunks, log_chunks.c.attempt_id == attempts.c.id))
    .where(
        attempts.c.id.in_(sa.bindparam("attempt_ids", expanding=True)),
        log_chunks.c.first_line
        == sa.select(sa.func.max(_OTHER.c.first_line)).where(_OTHER.c.attempt_id == attempts.c.id).scalar_subquery(),
    )
)


def append(connection: sa.Connection, attempt_id: str, first_line: int, bodies: Sequence[bytes]) -> None:
    """`bodies`: encoded LogLines, the first of which is line number `first_line`."""
    tail = connection.execute(
        sa.select(log_chunks)
        .where(log_chunks.c.attempt_id == attempt_id)
        .order_by(log_chunks.c.first_line.desc())
        .limit(1)
    ).one_or_none()
    pending = list(bodies)
    if tail is not None and tail.raw_bytes < CHUNK and tail.lines < LINES:
        records, _ = split_records(zstandard.decompress(tail.data))
        first_line = tail.first_line
        pending = records + pending
        connection.execute(
            log_chunks.delete().where(log_chunks.c.attempt_id == attempt_id, log_chunks.c.first_line == first_line)
        )
    for start, part in _parts(pending):
        raw = b"".join(len(body).to_bytes(4, "little") + body for body in part)
        connection.execute(
            log_chunks.insert().values(
                attempt_id=attempt_id,
                first_line=first_line + start,
                lines=len(part),
                raw_bytes=len(raw),
                first_at=decode_line(part[0]).at,
                last_at=decode_line(part[-1]).at,
                data=zstandard.compress(raw, 3),
            )
        )


def read(connection: sa.Connection, attempt_id: str, *, after: int = 0) -> Iterator[tuple[int, LogLine]]:
    """Lines after number `after`, in order, a chunk at a time."""
    while True:
        chunk = _chunk_at(connection, attempt_id, after + 1)
        if chunk is None:
            return
        yield from _lines(chunk, after=after)
        after = chunk.first_line + chunk.lines - 1


def read_back(connection: sa.Connection, attempt_id: str) -> Iterator[tuple[int, LogLine]]:
    """All lines, newest first: the cost of a tail does not grow with the log."""
    below: int | None = None
    while True:
        query = sa.select(log_chunks).where(log_chunks.c.attempt_id == attempt_id)
        if below is not None:
            query = query.where(log_chunks.c.first_line < below)
        chunk = connection.execute(query.order_by(log_chunks.c.first_line.desc()).limit(1)).one_or_none()
        if chunk is None:
            return
        yield from reversed(list(_lines(chunk)))
        below = chunk.first_line


def sizes(connection: sa.Connection, attempt_ids: Collection[str]) -> dict[str, int]:
    """Lines by attempt, by the last chunk's key alone: no attempt's log is read for it."""
    return {
        row.attempt_id: row.first_line + row.lines - 1
        for row in connection.execute(_LAST_CHUNKS, {"attempt_ids": list(attempt_ids)})
    }


def _chunk_at(connection: sa.Connection, attempt_id: str, line: int) -> sa.Row[Any] | None:
    """The chunk that holds this line, or the next one after it: two steps down the key, however long the log is."""
    mine = sa.select(log_chunks).where(log_chunks.c.attempt_id == attempt_id)
    at = mine.where(log_chunks.c.first_line <= line).order_by(log_chunks.c.first_line.desc()).limit(1)
    found = connection.execute(at).one_or_none()
    if found is not None and found.first_line + found.lines > line:
        return found
    behind = mine.where(log_chunks.c.first_line > line).order_by(log_chunks.c.first_line).limit(1)
    return connection.execute(behind).one_or_none()


def _lines(chunk: sa.Row[Any], *, after: int = 0) -> Iterator[tuple[int, LogLine]]:
    """Only what is wanted is decoded: a tail asks for a few lines of a chunk of thousands, many times a second."""
    records, _ = split_records(zstandard.decompress(chunk.data))
    for index in range(max(0, after + 1 - chunk.first_line), len(records)):
        yield chunk.first_line + index, decode_line(records[index])


def _parts(bodies: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    part: list[bytes] = []
    start = size = 0
    for index, body in enumerate(bodies):
        part.append(body)
        size += len(body) + 4
        if size >= CHUNK or len(part) >= LINES:
            yield start, part
            start, part, size = index + 1, [], 0
    if part:
        yield start, part
