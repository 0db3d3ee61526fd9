"""Runs: made, found, listed, and changed under guard. A guarded write that touches no row says so: drop your result."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from whistlestop.domain import states
from whistlestop.domain.errors import Ambiguous, NotFound
from whistlestop.domain.states import RUN_ENDED, RUN_TRANSITIONS, RunState
from whistlestop.domain.stops import Stop
from whistlestop.server.store.schema import attempts, checkpoints, deleted_attempts, deleted_runs, events, phases, runs

Row = sa.Row[Any]

# As people look for them: what runs first, what is over last.
_ORDER = ("running", "starting", "queued", "waiting", "failed", "killed", "completed")
SORTS: dict[str, sa.ColumnElement[Any]] = {
    "created": runs.c.number,
    "priority": runs.c.priority,
    "name": sa.func.lower(runs.c.name),
    "status": sa.case({state: at for at, state in enumerate(_ORDER)}, value=runs.c.state, else_=len(_ORDER)),
    "started": runs.c.started_at,
    "ended": runs.c.ended_at,
    "by": runs.c.created_by,
}


# Built once: putting a statement together takes longer than running it, and these are on every request's way.
_BY_ID = sa.select(runs).where(runs.c.id == sa.bindparam("run"))
_BY_REFERENCE = (
    sa.select(runs).where(sa.or_(runs.c.id == sa.bindparam("word"), runs.c.name == sa.bindparam("word"))).limit(100)
)


@dataclass(frozen=True)
class Filter:
    status: tuple[str, ...] = ()
    project: str | None = None
    search: str | None = None  # in name and note
    workflow: str | None = None  # any version of it

    @property
    def empty(self) -> bool:
        return not (self.status or self.project or self.search or self.workflow)


def insert(connection: sa.Connection, **values: Any) -> Row:
    """The number is the next one; that of a deleted run is not given again."""
    highest = connection.scalar(sa.select(sa.func.max(runs.c.number))) or 0
    deleted = connection.scalar(sa.select(sa.func.max(deleted_runs.c.number))) or 0
    connection.execute(runs.insert().values(number=max(highest, deleted) + 1, **values))
    return get(connection, values["id"])


def get(connection: sa.Connection, run_id: str) -> Row:
    row = connection.execute(_BY_ID, {"run": run_id}).one_or_none()
    if row is None:
        raise NotFound(f"there is no run {run_id}", hint="whistle ls --all shows every run")
    return row


def by_key(connection: sa.Connection, key: str) -> Row | None:
    return connection.execute(sa.select(runs).where(runs.c.key == key)).one_or_none()


def resolve(connection: sa.Connection, reference: str) -> Row:
    """By id, by #number or number, or by a name that only one run has (among several, the only active one)."""
    number = reference.removeprefix("#")
    if number.isascii() and number.isdigit() and len(number) < 18:
        row = connection.execute(sa.select(runs).where(runs.c.number == int(number))).one_or_none()
        if row is not None:
            return row
    found = connection.execute(_BY_REFERENCE, {"word": reference}).all()
    if len(found) > 1:
        active = [row for row in found if row.state not in RUN_ENDED]
        if len(active) == 1:
            return active[0]
        numbers = ", ".join(f"#{row.number}" for row in found[:5])
        raise Ambiguous(f"{len(found)} runs are called {reference}", hint=f"say which one by its number: {numbers}")
    if not found:
        raise NotFound(f"there is no run {reference}", hint="whistle ls --all shows every run")
    return found[0]


def listing(
    connection: sa.Connection, wanted: Filter, *, sort: str = "-created", limit: int = 100, skip: int = 0
) -> Sequence[Row]:
    column = SORTS[sort.removeprefix("-")]
    order = column.desc() if sort.startswith("-") else column.asc()
    if sort.removeprefix("-") in ("started", "ended"):
        order = order.nulls_last()  # what has not happened yet is neither first nor newest
    query = _where(sa.select(runs), wanted).order_by(order, runs.c.number.desc()).limit(limit).offset(skip)
    return connection.execute(query).all()


def count(connection: sa.Connection, wanted: Filter) -> int:
    return int(connection.scalar(_where(sa.select(sa.func.count()).select_from(runs), wanted)) or 0)


def by_project(connection: sa.Connection) -> Sequence[sa.Row[*tuple[Any, ...]]]:
    """project, state, how many, newest change: one pass over the table."""
    newest = sa.func.max(sa.func.coalesce(runs.c.ended_at, runs.c.started_at, runs.c.created_at))
    query = sa.select(runs.c.project, runs.c.state, sa.func.count().label("runs"), newest.label("last_at"))
    return connection.execute(query.group_by(runs.c.project, runs.c.state)).all()


def credits_by_project(connection: sa.Connection, now: float) -> dict[str, float]:
    """The ledger, summed where it lies: slot-seconds of attempts × price."""
    seconds = sa.func.coalesce(attempts.c.ended_at, now) - attempts.c.started_at
    spent = seconds * sa.func.json_array_length(attempts.c.slots) * attempts.c.price / 3600.0
    query = (
        sa.select(runs.c.project, sa.func.sum(spent))
        .select_from(attempts.join(runs, runs.c.id == attempts.c.run_id))
        .group_by(runs.c.project)
    )
    return {project: float(used or 0.0) for project, used in connection.execute(query)}


def of_workflows(connection: sa.Connection) -> Sequence[sa.Row[*tuple[Any, ...]]]:
    """Of each version of a workflow: how many runs, and the number of the newest."""
    query = sa.select(
        runs.c.workflow, runs.c.project, sa.func.count().label("runs"), sa.func.max(runs.c.number).label("newest")
    )
    return connection.execute(query.where(runs.c.workflow.is_not(None)).group_by(runs.c.workflow, runs.c.project)).all()


def by_id(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, Row]:
    return {row.id: row for row in connection.execute(sa.select(runs).where(runs.c.id.in_(run_ids)))}


def by_number(connection: sa.Connection, numbers: Collection[int]) -> dict[int, Row]:
    query = sa.select(runs).where(runs.c.number.in_(numbers))
    return {row.number: row for row in connection.execute(query)}


def ids(connection: sa.Connection, wanted: Filter) -> list[str]:
    return list(connection.scalars(_where(sa.select(runs.c.id), wanted).order_by(runs.c.number)))


def changed_since(connection: sa.Connection, seq: int, limit: int = 500) -> Sequence[Row]:
    return connection.execute(sa.select(runs).where(runs.c.changed > seq).order_by(runs.c.changed).limit(limit)).all()


def deleted_since(connection: sa.Connection, seq: int, limit: int = 500) -> Sequence[sa.Row[*tuple[Any, ...]]]:
    """What a list has to take out: a deleted run has no row that could have changed."""
    deleted = events.c.kind == sa.literal_column("'deleted'")  # as the index has it: a parameter could be any kind
    query = sa.select(events.c.seq, events.c.run_id).where(events.c.seq > seq, deleted)
    return connection.execute(query.order_by(events.c.seq).limit(limit)).all()


def numbers(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, int]:
    if not run_ids:
        return {}
    query = sa.select(runs.c.id, runs.c.number).where(runs.c.id.in_(run_ids))
    return {row.id: row.number for row in connection.execute(query)}


def positions(connection: sa.Connection, rows: Sequence[Row]) -> list[int]:
    """Where each of these queued runs stands, from 1: counted for a few, in one pass over the queue for many."""
    if len(rows) <= 3:
        return [1 + _ahead(connection, row) for row in rows]
    query = sa.select(runs.c.id).where(runs.c.state == RunState.QUEUED).order_by(runs.c.priority.desc(), runs.c.number)
    order = {run_id: index for index, run_id in enumerate(connection.scalars(query), 1)}
    return [order.get(row.id, 1) for row in rows]


def _ahead(connection: sa.Connection, row: Row) -> int:
    before = sa.or_(
        runs.c.priority > row.priority, sa.and_(runs.c.priority == row.priority, runs.c.number < row.number)
    )
    query = sa.select(sa.func.count()).select_from(runs).where(runs.c.state == RunState.QUEUED, before)
    return int(connection.scalar(query) or 0)


def next_retry(connection: sa.Connection, now: float) -> float | None:
    """When the next phase's back-off is over."""
    soonest: float | None = connection.scalar(
        sa.select(sa.func.min(phases.c.not_before)).where(
            phases.c.state == states.PhaseState.PENDING, phases.c.not_before > now
        )
    )
    return soonest


def move(connection: sa.Connection, run_id: str, state: RunState, **values: Any) -> bool:
    """Only along the table: a run that is elsewhere by now is left alone."""
    allowed = states.before(RUN_TRANSITIONS, state) | {state} - RUN_ENDED
    done = connection.execute(
        runs.update().where(runs.c.id == run_id, runs.c.state.in_(allowed)).values(state=state, **values)
    )
    return done.rowcount == 1


def update(connection: sa.Connection, run_id: str, **values: Any) -> None:
    connection.execute(runs.update().where(runs.c.id == run_id).values(**values))


def ask(connection: sa.Connection, run_id: str, level: Stop, **values: Any) -> bool:
    """Raise the request; one that is already as high, or an ended run, is left alone."""
    done = connection.execute(
        runs.update()
        .where(runs.c.id == run_id, runs.c.request < int(level), runs.c.state.not_in(RUN_ENDED))
        .values(request=int(level), request_seq=runs.c.request_seq + 1, **values)
    )
    return done.rowcount == 1


def unpause(connection: sa.Connection, run_id: str) -> bool:
    done = connection.execute(
        runs.update()
        .where(runs.c.id == run_id, runs.c.state == RunState.WAITING, runs.c.request < int(Stop.KILL))
        .values(
            state=RunState.QUEUED,  # at once: a pause that follows must find a run that is not paused any more
            reason=None,
            request=int(Stop.NONE),
            request_seq=runs.c.request_seq + 1,
            request_latest=False,
            attention=None,
        )
    )
    return done.rowcount == 1


def delete(connection: sa.Connection, run_id: str) -> None:
    """With everything that hangs on it, by the database's own cascade. Its number stays taken."""
    number = connection.scalar(sa.select(runs.c.number).where(runs.c.id == run_id))
    connection.execute(deleted_runs.insert().values(run_id=run_id, number=number))
    hashes = sa.select(attempts.c.token_hash).where(attempts.c.run_id == run_id)
    connection.execute(deleted_attempts.insert().from_select(["token_hash"], hashes))
    connection.execute(runs.delete().where(runs.c.id == run_id))


def next_attempt(connection: sa.Connection, run_id: str) -> int:
    connection.execute(runs.update().where(runs.c.id == run_id).values(attempts=runs.c.attempts + 1))
    return int(connection.execute(sa.select(runs.c.attempts).where(runs.c.id == run_id)).scalar_one())


def uses_bundle(connection: sa.Connection, bundle: str) -> bool:
    return connection.scalar(sa.select(runs.c.id).where(runs.c.bundle == bundle).limit(1)) is not None


def stored_below(connection: sa.Connection, where: str) -> bool:
    """Some run keeps its checkpoints there."""
    start = f"{where}/"
    query = sa.select(runs.c.id).where(sa.func.substr(runs.c.storage, 1, len(start)) == start)
    return connection.scalar(query.limit(1)) is not None


def children_using(connection: sa.Connection, paths: Collection[str]) -> int:
    """Active runs that continue from one of these checkpoint directories."""
    if not paths:
        return 0
    query = (
        sa.select(sa.func.count())
        .select_from(phases.join(runs, runs.c.id == phases.c.run_id))
        .where(phases.c.restore_from.in_(paths), runs.c.state.not_in(RUN_ENDED))
    )
    return int(connection.scalar(query) or 0)


def continued(connection: sa.Connection) -> set[str]:
    """Runs from whose checkpoints an active run goes on."""
    query = (
        sa.select(checkpoints.c.run_id)
        .select_from(
            runs.join(phases, phases.c.run_id == runs.c.id).join(
                checkpoints, checkpoints.c.path == phases.c.restore_from
            )
        )
        .where(runs.c.state.not_in(RUN_ENDED))
    )
    return set(connection.scalars(query))


def _where(query: sa.Select[Any], wanted: Filter) -> sa.Select[Any]:
    if wanted.status:
        query = query.where(runs.c.state.in_(wanted.status))
    if wanted.project:
        query = query.where(runs.c.project == wanted.project)
    if wanted.workflow:
        start = wanted.workflow + "@"  # compared, not LIKE: SQLite's LIKE takes a for A
        query = query.where(sa.func.substr(runs.c.workflow, 1, len(start)) == start)
    if wanted.search:
        pattern = "%" + wanted.search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        query = query.where(sa.or_(runs.c.name.ilike(pattern, escape="\\"), runs.c.note.ilike(pattern, escape="\\")))
    return query
