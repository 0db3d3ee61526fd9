"""Points that an earlier version has stored get their series and their pyramid when the server starts."""

from typing import Any

import sqlalchemy as sa

from whistlestop.server.store import metrics, rollups, series
from whistlestop.server.store.schema import metric_chunks, metric_series, metric_shapes

AT_ONCE = 64  # chunks in memory


def missing(connection: sa.Connection) -> int:
    """Builds what is missing; the answer: for how many series. Nothing is, after the first start."""
    here = sa.and_(
        metric_series.c.attempt_id == metric_chunks.c.attempt_id, metric_series.c.name == metric_chunks.c.name
    )
    query = (
        sa.select(metric_chunks.c.attempt_id, metric_chunks.c.name)
        .where(~sa.exists().where(here))
        .distinct()
        .order_by(metric_chunks.c.attempt_id, metric_chunks.c.name)
    )
    found = connection.execute(query).all()
    for row in found:
        _build(connection, row.attempt_id, row.name)
    return len(found)


def _build(connection: sa.Connection, attempt_id: str, name: str) -> None:
    kind, after = _kind(connection, attempt_id, name), -1
    while rows := _chunks(connection, attempt_id, name, after):
        points = metrics.join([metrics.unpack(row.data) for row in rows])
        full = [row for row in rows if not row.open]
        rest = rows[-1].first_record if rows[-1].open else None
        place = series.add(connection, attempt_id, [series.Added(name, kind, points, len(full), rest)])
        if full:
            whole = metrics.join([metrics.unpack(row.data) for row in full])
            rollups.grow(connection, [metrics.grown(*place[name], whole)])
        after = rows[-1].first_record


def _chunks(connection: sa.Connection, attempt_id: str, name: str, after: int) -> list[sa.Row[Any]]:
    query = (
        sa.select(metric_chunks)
        .where(
            metric_chunks.c.attempt_id == attempt_id,
            metric_chunks.c.name == name,
            metric_chunks.c.first_record > after,
        )
        .order_by(metric_chunks.c.first_record)
        .limit(AT_ONCE)
    )
    return list(connection.execute(query))


def _kind(connection: sa.Connection, attempt_id: str, name: str) -> str:
    query = sa.select(metric_shapes.c.stream, metric_shapes.c.names).where(metric_shapes.c.attempt_id == attempt_id)
    streams = {row.stream for row in connection.execute(query) if name in row.names}
    if "metrics-0" in streams:
        return "program"
    return "system" if "metrics-sys" in streams else "rank" if "@" in name else "program"
