"""What an operator asks of the whole server: by indexes and over what is alive, never over the history."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.states import AttemptState, PhaseState, RunState
from whistlestop.server.store.schema import attempts, checkpoints, ledger, phases, pools, runs

Row = sa.Row[Any]
Rows = Sequence[sa.Row[*tuple[Any, ...]]]
ACTIVE = (RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.WAITING)


def active(connection: sa.Connection) -> Rows:
    """project, state, amount."""
    query = sa.select(runs.c.project, runs.c.state, sa.func.count().label("amount")).where(runs.c.state.in_(ACTIVE))
    return connection.execute(query.group_by(runs.c.project, runs.c.state)).all()


def queue(connection: sa.Connection) -> tuple[int, float | None]:
    """How many phases wait for capacity, and since when the first of them does."""
    waits = sa.and_(phases.c.state == PhaseState.PENDING, phases.c.ready_at.is_not(None))
    query = sa.select(sa.func.count(), sa.func.min(phases.c.ready_at)).select_from(phases).where(waits)
    length, since = connection.execute(query).one()
    return int(length), since


def sizes(connection: sa.Connection) -> Rows:
    """name, slots."""
    return connection.execute(sa.select(pools.c.name, pools.c.slots)).all()


def live(connection: sa.Connection) -> Rows:
    """pool, slots, price, started_at, project of what holds slots."""
    query = (
        sa.select(attempts.c.pool, attempts.c.slots, attempts.c.price, attempts.c.started_at, runs.c.project)
        .join(runs, runs.c.id == attempts.c.run_id)
        .where(attempts.c.state == AttemptState.STARTED)
    )
    return connection.execute(query).all()


def oldest_checkpoint(connection: sa.Connection) -> float | None:
    """Of what trains: since when the one that has saved last the longest ago has not; from its loop on, if never."""
    saved = (
        sa.select(sa.func.max(checkpoints.c.committed_at))
        .where(checkpoints.c.run_id == attempts.c.run_id, checkpoints.c.phase == phases.c.name)
        .scalar_subquery()
    )
    since = sa.case((saved > attempts.c.loop_at, saved), else_=attempts.c.loop_at)
    query = (
        sa.select(sa.func.min(since))
        .select_from(attempts.join(phases, phases.c.id == attempts.c.phase_id))
        .where(attempts.c.state == AttemptState.STARTED, attempts.c.loop_at.is_not(None), phases.c.kind == "train")
    )
    found: float | None = connection.scalar(query)
    return found


def spent(connection: sa.Connection, after: int) -> tuple[int, Rows]:
    """project and credits of the lines of the ledger behind that one, and the last of them: never an earlier one."""
    top = max(after, int(connection.scalar(sa.select(sa.func.max(ledger.c.id))) or 0))
    query = sa.select(ledger.c.project, sa.func.sum(ledger.c.credits).label("credits"))
    query = query.where(ledger.c.id > after, ledger.c.id <= top)
    return top, connection.execute(query.group_by(ledger.c.project)).all()


def size(connection: sa.Connection) -> int:
    """Of the database, in bytes."""
    if connection.dialect.name == "sqlite":
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        return int(pages) * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())
    return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())


def projects(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, str]:
    query = sa.select(runs.c.id, runs.c.project).where(runs.c.id.in_(run_ids))
    return {row.id: row.project for row in connection.execute(query)}


def ends(connection: sa.Connection, wanted: Collection[tuple[str, int]]) -> dict[tuple[str, int], Row]:
    """Attempts that have ended, by run and number."""
    mine = sa.tuple_(attempts.c.run_id, attempts.c.number).in_(wanted)
    query = sa.select(attempts).where(mine, attempts.c.ended_at.is_not(None))
    return {(row.run_id, row.number): row for row in connection.execute(query)}
