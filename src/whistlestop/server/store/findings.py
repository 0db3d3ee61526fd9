"""What a diagnosis has found, a row for as long as it holds in one attempt; and what guards have done about it."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.states import AttemptState
from whistlestop.server.store.schema import attempts, findings, guard_acts, phases

Row = sa.Row[Any]


def open_of_phase(connection: sa.Connection, phase_id: str) -> Sequence[Row]:
    """Those that hold, the oldest first."""
    query = sa.select(findings).where(findings.c.phase_id == phase_id, findings.c.over_at.is_(None))
    return connection.execute(query.order_by(findings.c.id)).all()


def open_of_runs(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, list[Row]]:
    """By phase: those that hold."""
    found: dict[str, list[Row]] = defaultdict(list)
    query = sa.select(findings).where(findings.c.run_id.in_(run_ids), findings.c.over_at.is_(None))
    for row in connection.execute(query.order_by(findings.c.id)):
        found[row.phase_id].append(row)
    return found


def add(connection: sa.Connection, **values: Any) -> int:
    done = connection.execute(findings.insert().values(**values))
    assert done.inserted_primary_key is not None
    return int(done.inserted_primary_key[0])


def update(connection: sa.Connection, finding_id: int, **values: Any) -> None:
    connection.execute(findings.update().where(findings.c.id == finding_id).values(**values))


def unjudged(connection: sa.Connection) -> list[str]:
    """Runs in which an attempt ended badly, and has not been looked at yet; those first that are held until then."""
    held = sa.func.max(sa.cast(phases.c.guarded, sa.Integer))  # PostgreSQL knows no greater one of two booleans
    query = sa.select(phases.c.run_id).where(phases.c.unjudged.is_not(None)).group_by(phases.c.run_id)
    return list(connection.scalars(query.order_by(held.desc(), phases.c.run_id)))


def training(connection: sa.Connection) -> list[str]:
    """Runs whose program trains."""
    query = (
        sa.select(attempts.c.run_id)
        .select_from(attempts.join(phases, phases.c.id == attempts.c.phase_id))
        .where(attempts.c.state == AttemptState.STARTED, attempts.c.up.is_(sa.true()), phases.c.kind == "train")
    )
    return list(connection.scalars(query.distinct()))


def release(connection: sa.Connection, run_id: str) -> None:
    """Nothing of it waits to be judged any more."""
    connection.execute(phases.update().where(phases.c.run_id == run_id).values(unjudged=None))


def acts(connection: sa.Connection, phase_id: str) -> Sequence[Row]:
    query = sa.select(guard_acts).where(guard_acts.c.phase_id == phase_id)
    return connection.execute(query.order_by(guard_acts.c.id)).all()


def acted(connection: sa.Connection, **values: Any) -> bool:
    """False: it is written down already."""
    same = [guard_acts.c[name] == values[name] for name in ("phase_id", "guard", "finding")]
    if connection.scalar(sa.select(guard_acts.c.id).where(*same)) is not None:
        return False
    connection.execute(guard_acts.insert().values(**values))
    return True


def last_words(connection: sa.Connection, phase_id: str) -> str:
    """Of the last guard that really did something."""
    query = sa.select(guard_acts.c.text).where(guard_acts.c.phase_id == phase_id, guard_acts.c.dry.is_(sa.false()))
    return connection.scalar(query.order_by(guard_acts.c.id.desc()).limit(1)) or ""
