"""Checkpoints that count: complete, verified, reported by the attempt that made them."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.states import RUN_ENDED
from whistlestop.server.store.schema import checkpoints, phases, runs

Row = sa.Row[Any]


def add(connection: sa.Connection, **values: Any) -> bool:
    """False: it is known already."""
    known = connection.scalar(sa.select(checkpoints.c.id).where(checkpoints.c.id == values["id"]))
    if known is None:
        connection.execute(checkpoints.insert().values(**values))
    return known is None


def of_run(connection: sa.Connection, run_id: str, phase: str | None = None) -> Sequence[Row]:
    """Newest first."""
    query = sa.select(checkpoints).where(checkpoints.c.run_id == run_id)
    if phase is not None:
        query = query.where(checkpoints.c.phase == phase)
    return connection.execute(query.order_by(checkpoints.c.step.desc(), checkpoints.c.attempt.desc())).all()


def newest(connection: sa.Connection, run_id: str, phase: str) -> Row | None:
    return next(iter(of_run(connection, run_id, phase)), None)


def protected(connection: sa.Connection, run_id: str) -> list[str]:
    """Those that retention must leave: pinned, or what another active run starts from."""
    used = (
        sa.select(phases.c.restore_from)
        .select_from(phases.join(runs, runs.c.id == phases.c.run_id))
        .where(phases.c.restore_from.is_not(None), runs.c.state.not_in(RUN_ENDED))
    )
    query = sa.select(checkpoints.c.id).where(
        checkpoints.c.run_id == run_id, sa.or_(checkpoints.c.pinned, checkpoints.c.path.in_(used))
    )
    return sorted(connection.scalars(query))


def remove(connection: sa.Connection, run_id: str, ids: Collection[str]) -> None:
    connection.execute(checkpoints.delete().where(checkpoints.c.run_id == run_id, checkpoints.c.id.in_(ids)))


def remove_all(connection: sa.Connection, run_id: str) -> int:
    return connection.execute(checkpoints.delete().where(checkpoints.c.run_id == run_id)).rowcount
