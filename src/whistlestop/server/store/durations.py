"""How long stops, pauses and kills have taken, by the rows: from the request to the proven end of the attempt."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.reasons import EndReason
from whistlestop.server.store.schema import attempts, events, phases, runs

MOST = 200  # the newest ones: a faster disk should show
Row = sa.Row[*tuple[Any, ...]]


def stops(connection: sa.Connection) -> Sequence[Row]:
    """Of phases that were running when they were asked."""
    return _measured(connection, phases.c.stop_at, EndReason.STOPPED)


def kills(connection: sa.Connection) -> Sequence[Row]:
    return _measured(connection, runs.c.request_at, EndReason.KILLED)


def pauses(connection: sa.Connection) -> Sequence[Row]:
    asked = (
        sa.select(sa.func.max(events.c.at))
        .where(
            events.c.run_id == attempts.c.run_id,
            events.c.kind == "pause_requested",
            events.c.at <= attempts.c.ended_at,
        )
        .scalar_subquery()
    )
    return _measured(connection, asked, EndReason.PAUSED)


def _measured(connection: sa.Connection, asked: sa.ColumnElement[Any], reason: EndReason) -> Sequence[Row]:
    query = (
        sa.select(
            (attempts.c.ended_at - asked).label("seconds"),
            attempts.c.pool,
            phases.c.name.label("phase"),
            runs.c.id.label("run_id"),
            runs.c.name.label("run"),
            runs.c.project,
            runs.c.workflow,
        )
        .select_from(
            attempts.join(phases, phases.c.id == attempts.c.phase_id).join(runs, runs.c.id == attempts.c.run_id)
        )
        .where(attempts.c.reason == reason, asked >= attempts.c.started_at, asked <= attempts.c.ended_at)
        .order_by(attempts.c.ended_at.desc())
        .limit(MOST)
    )
    return connection.execute(query).all()
