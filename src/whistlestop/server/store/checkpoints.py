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
    """Of those that a run may resume from."""
    return next((row for row in of_run(connection, run_id, phase) if row.healthy), None)


def protected(connection: sa.Connection, run_id: str) -> list[str]:
    """Those that retention must leave: pinned, what another active run starts from, and where a phase has gone wrong,
    the last one from before."""
    used = (
        sa.select(phases.c.restore_from)
        .select_from(phases.join(runs, runs.c.id == phases.c.run_id))
        .where(phases.c.restore_from.is_not(None), runs.c.state.not_in(RUN_ENDED))
    )
    query = sa.select(checkpoints.c.id).where(
        checkpoints.c.run_id == run_id, sa.or_(checkpoints.c.pinned, checkpoints.c.path.in_(used))
    )
    return sorted({*connection.scalars(query), *_last_good(connection, run_id)})


def _last_good(connection: sa.Connection, run_id: str) -> set[str]:
    """Only where newer ones are unhealthy: otherwise the newest is kept anyway."""
    wrong, found = set[str](), dict[str, str]()
    for row in of_run(connection, run_id):
        if not row.healthy and row.phase not in found:
            wrong.add(row.phase)
        elif row.healthy:
            found.setdefault(row.phase, row.id)
    return {found[phase] for phase in wrong & found.keys()}


def remove(connection: sa.Connection, run_id: str, ids: Collection[str]) -> None:
    connection.execute(checkpoints.delete().where(checkpoints.c.run_id == run_id, checkpoints.c.id.in_(ids)))


def remove_all(connection: sa.Connection, run_id: str) -> int:
    return connection.execute(checkpoints.delete().where(checkpoints.c.run_id == run_id)).rowcount
