"""How far each stream of an attempt has arrived. Written in the same transaction as the bytes themselves."""

from typing import Any

import sqlalchemy as sa

from whistlestop.server.store.schema import streams

ALL_METRICS = "metrics*"  # counts the records of all metric streams of an attempt: one cursor serves them all


def offsets(connection: sa.Connection, attempt_id: str) -> dict[str, int]:
    query = sa.select(streams.c.stream, streams.c.offset).where(
        streams.c.attempt_id == attempt_id, streams.c.stream != ALL_METRICS
    )
    return {row.stream: row.offset for row in connection.execute(query)}


def position(connection: sa.Connection, attempt_id: str, stream: str) -> tuple[int, int]:
    """Bytes and records so far."""
    row = connection.execute(
        sa.select(streams).where(streams.c.attempt_id == attempt_id, streams.c.stream == stream)
    ).one_or_none()
    return (0, 0) if row is None else (row.offset, row.records)


def lines(connection: sa.Connection, attempt_id: str) -> int:
    """Log lines so far, of all its nodes."""
    same = sa.or_(streams.c.stream == "logs", streams.c.stream.like("logs@%"))
    query = sa.select(sa.func.coalesce(sa.func.sum(streams.c.records), 0)).where(
        streams.c.attempt_id == attempt_id, same
    )
    return int(connection.scalar(query) or 0)


def advance(connection: sa.Connection, attempt_id: str, stream: str, *, offset: int, records: int) -> None:
    values: dict[str, Any] = {"offset": offset, "records": records}
    done = connection.execute(
        streams.update().where(streams.c.attempt_id == attempt_id, streams.c.stream == stream).values(**values)
    )
    if done.rowcount == 0:
        connection.execute(streams.insert().values(attempt_id=attempt_id, stream=stream, **values))
