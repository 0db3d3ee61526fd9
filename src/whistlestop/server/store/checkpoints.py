"""Checkpoints that count: complete, verified, reported by the attempt that made them."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.states import RUN_ENDED
from whistlestop.server.store.schema import checkpoints, phases, runs

Row = sa.Row[Any]
# Of two that one attempt has saved at the same step, the later counts.
_NEWEST_FIRST = (checkpoints.c.step.desc(), checkpoints.c.attempt.desc(), checkpoints.c.committed_at.desc())


def add(connection: sa.Connection, **values: Any) -> bool:
    """False: it is known already."""
    known = connection.scalar(sa.select(checkpoints.c.id).where(checkpoints.c.id == values["id"]))
    if known is None:
        connection.execute(checkpoints.insert().values(**values))
    return known is None


def of_run(connection: sa.Connection, run_id: str, phase: str | None = None, *, trashed: bool = False) -> Sequence[Row]:
    """Newest first. `trashed`: with those that were removed and can be had back."""
    query = sa.select(checkpoints).where(checkpoints.c.run_id == run_id)
    if not trashed:
        query = query.where(checkpoints.c.trashed_until.is_(None))
    if phase is not None:
        query = query.where(checkpoints.c.phase == phase)
    return connection.execute(query.order_by(*_NEWEST_FIRST)).all()


def newest(connection: sa.Connection, run_id: str, phase: str) -> Row | None:
    """What a run would resume from. Where all are damaged: the newest of them, for its files may have been put back,
    and its runner reads them again before it trusts them."""
    rows = of_run(connection, run_id, phase)
    good = next((row for row in rows if eligible(row)), None)
    return good or next((row for row in rows if row.healthy), None)


def last_step(connection: sa.Connection, run_id: str, attempt: int) -> int | None:
    """Of all that an attempt has committed; attempts are numbered over the whole run."""
    mine = sa.and_(checkpoints.c.run_id == run_id, checkpoints.c.attempt == attempt)
    return connection.execute(sa.select(sa.func.max(checkpoints.c.step)).where(mine)).scalar()


def eligible(row: Row) -> bool:
    """A run may resume from it by itself."""
    return bool(row.healthy and row.verified and row.trashed_until is None)


def pass_over(connection: sa.Connection, run_id: str, phase: str, *, attempt: int, step: int) -> int:
    """No run resumes from these by itself any more. How many they are that could have been."""
    query = checkpoints.update().where(
        checkpoints.c.run_id == run_id,
        checkpoints.c.phase == phase,
        checkpoints.c.attempt <= attempt,
        checkpoints.c.step >= step,
        checkpoints.c.healthy,
    )
    return connection.execute(query.values(healthy=False)).rowcount


def newest_of_runs(connection: sa.Connection, run_ids: Collection[str]) -> dict[tuple[str, str], Row]:
    """By run and phase: what each would resume from."""
    rank = sa.func.row_number().over(
        partition_by=(checkpoints.c.run_id, checkpoints.c.phase),
        order_by=_NEWEST_FIRST,
    )
    ranked = (
        sa.select(checkpoints, rank.label("rank"))
        .where(
            checkpoints.c.run_id.in_(run_ids),
            checkpoints.c.trashed_until.is_(None),
            checkpoints.c.healthy,
            checkpoints.c.verified,
        )
        .subquery()
    )
    rows = connection.execute(sa.select(ranked).where(ranked.c.rank == 1))
    return {(row.run_id, row.phase): row for row in rows}


def protected(connection: sa.Connection, run_id: str) -> list[str]:
    """Those that retention must leave: pinned, what another active run starts from, and where a phase has gone wrong,
    the last one from before."""
    used = (
        sa.select(phases.c.restore_from)
        .select_from(phases.join(runs, runs.c.id == phases.c.run_id))
        .where(phases.c.restore_from.is_not(None), runs.c.state.not_in(RUN_ENDED))
    )
    query = sa.select(checkpoints.c.id).where(
        checkpoints.c.run_id == run_id,
        checkpoints.c.trashed_until.is_(None),
        sa.or_(checkpoints.c.pinned, checkpoints.c.path.in_(used)),
    )
    return sorted({*connection.scalars(query), *_last_good(connection, run_id)})


def _last_good(connection: sa.Connection, run_id: str) -> set[str]:
    """Only where newer ones are unhealthy or damaged: otherwise the newest is kept anyway."""
    wrong, found = set[str](), dict[str, str]()
    for row in of_run(connection, run_id):
        if eligible(row):
            found.setdefault(row.phase, row.id)
        elif row.phase not in found:
            wrong.add(row.phase)
    return {found[phase] for phase in wrong & found.keys()}


def find(connection: sa.Connection, run_id: str, checkpoint_id: str) -> Row | None:
    query = sa.select(checkpoints).where(checkpoints.c.run_id == run_id, checkpoints.c.id == checkpoint_id)
    return connection.execute(query).one_or_none()


def update(connection: sa.Connection, checkpoint_id: str, **values: Any) -> bool:
    """False: it is not known any more."""
    query = checkpoints.update().where(checkpoints.c.id == checkpoint_id).values(**values)
    return connection.execute(query).rowcount == 1


def judge(connection: sa.Connection, run_id: str, path: str, *, verified: bool, at: float) -> None:
    """What somebody found who has read it back. One that was set aside for its values is not damaged."""
    query = checkpoints.update().where(
        checkpoints.c.run_id == run_id, checkpoints.c.path == path, checkpoints.c.healthy
    )
    connection.execute(query.values(verified=verified, verified_at=at))


def trash(connection: sa.Connection, run_id: str, ids: Collection[str], until: float) -> None:
    """They count no more. Who was removed before keeps the earlier time."""
    query = checkpoints.update().where(
        checkpoints.c.run_id == run_id, checkpoints.c.id.in_(ids), checkpoints.c.trashed_until.is_(None)
    )
    connection.execute(query.values(trashed_until=until, pinned=False))


def pinned_in_trash(connection: sa.Connection) -> Sequence[Row]:
    """Removed by a runner that had not heard of the pin."""
    query = sa.select(checkpoints).where(checkpoints.c.trashed_until.is_not(None), checkpoints.c.pinned)
    return connection.execute(query.order_by(checkpoints.c.trashed_until)).all()


def over(connection: sa.Connection, now: float, limit: int = 500) -> Sequence[Row]:
    """Those that can't be had back any more: so many of each run, so that those of a storage that is away keep none of
    the others'."""
    gone = checkpoints.c.trashed_until <= now
    place = sa.func.row_number().over(partition_by=checkpoints.c.run_id, order_by=checkpoints.c.trashed_until)
    numbered = sa.select(checkpoints.c.id, place.label("place")).where(gone).subquery()
    query = sa.select(checkpoints).join(numbered, numbered.c.id == checkpoints.c.id).where(numbered.c.place <= limit)
    return connection.execute(query.order_by(checkpoints.c.trashed_until)).all()


def remove(connection: sa.Connection, run_id: str, ids: Collection[str]) -> None:
    connection.execute(checkpoints.delete().where(checkpoints.c.run_id == run_id, checkpoints.c.id.in_(ids)))


def remove_all(connection: sa.Connection, run_id: str) -> int:
    return connection.execute(checkpoints.delete().where(checkpoints.c.run_id == run_id)).rowcount
