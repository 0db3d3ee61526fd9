"""Events: what happened, to which run, by whom. Their number is the clock of everything live."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from whistlestop.server.store.schema import events, runs

Row = sa.Row[Any]
SYSTEM = "whistlestop"

# Built once: putting a statement together takes longer than running it, and these are on every request's way.
_INSERT = events.insert()
_TOUCH_ALL = (
    runs.update()
    .where(runs.c.id.in_(sa.bindparam("runs", expanding=True)))
    .values(changed=sa.select(sa.func.max(events.c.seq)).where(events.c.run_id == runs.c.id).scalar_subquery())
)
_TOUCH = runs.update().where(runs.c.id == sa.bindparam("run")).values(changed=sa.bindparam("seq"))


def add(
    connection: sa.Connection,
    run_id: str,
    kind: str,
    text: str,
    *,
    at: float,
    actor: str = SYSTEM,
    scope: str = "run",
    phase: str | None = None,
    attempt: int | None = None,
    data: Mapping[str, Any] | None = None,
) -> int:
    values = {
        "run_id": run_id,
        "at": at,
        "scope": scope,
        "kind": kind,
        "actor": actor,
        "text": text,
        "phase": phase,
        "attempt": attempt,
        "data": dict(data or {}),
    }
    done = connection.execute(_INSERT, values)
    assert done.inserted_primary_key is not None
    seq = int(done.inserted_primary_key[0])
    connection.execute(_TOUCH, {"run": run_id, "seq": seq})
    return seq


def add_all(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Of many runs at once, by the system: run_id, at, kind, text, phase, attempt and data of each."""
    connection.execute(_INSERT, [{"scope": "run", "actor": SYSTEM, **row} for row in rows])
    connection.execute(_TOUCH_ALL, {"runs": list({row["run_id"] for row in rows})})


def of_run(
    connection: sa.Connection,
    run_id: str,
    *,
    after: int = 0,
    before: int | None = None,
    newest: bool = False,
    limit: int = 500,
    scope: str | None = None,
    search: str | None = None,
    kinds: Collection[str] = (),
    without: Collection[str] = (),
) -> Sequence[Row]:
    """Always in their order: the first `limit` behind `after`, or with `newest` the last ones before `before`."""
    query = sa.select(events).where(events.c.run_id == run_id, events.c.seq > after)
    if before is not None:
        query = query.where(events.c.seq < before)
    if scope:
        query = query.where(events.c.scope == scope)
    if kinds:
        query = query.where(events.c.kind.in_(kinds))
    if without:
        query = query.where(events.c.kind.not_in(without))
    if search:
        words = sa.func.lower(events.c.text + " " + events.c.kind + " " + events.c.actor)
        query = query.where(words.contains(search.lower(), autoescape=True))
    found = connection.execute(query.order_by(events.c.seq.desc() if newest else events.c.seq).limit(limit)).all()
    return found[::-1] if newest else found


def last_of_kinds(connection: sa.Connection, run_id: str, kinds: tuple[str, ...], limit: int) -> Sequence[Row]:
    """The last ones of a few kinds, in their order, without a look at any of the others: those are many."""
    return connection.execute(_last_of_kinds(kinds), {"run": run_id, "most": limit}).all()[::-1]


@cache
def _last_of_kinds(kinds: tuple[str, ...]) -> sa.Select[Any]:
    """Each kind from the end of its part of the index, in the index's own order: attempts come one after the other. By
    `seq` alone, SQLite reads all that the run has ever told, and PostgreSQL all that it has told of that kind."""
    most = sa.bindparam("most", type_=sa.Integer)

    def last(kind: str) -> sa.Select[Any]:
        mine = sa.select(events).where(events.c.run_id == sa.bindparam("run"), events.c.kind == kind)
        return sa.select(mine.order_by(events.c.attempt.desc(), events.c.seq.desc()).limit(most).subquery())

    found = sa.union_all(*map(last, kinds)).subquery()
    return sa.select(found).order_by(found.c.seq.desc()).limit(most)


def newest(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(sa.func.max(events.c.seq))) or 0)


def forget(connection: sa.Connection, run_id: str) -> None:
    connection.execute(events.delete().where(events.c.run_id == run_id))
