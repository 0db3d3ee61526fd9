"""The ledger: how the time of every ended attempt was spent, and what it cost. Rows are added and never changed."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.ledger import Kind, Piece, by_day
from whistlestop.domain.states import AttemptState, RunState
from whistlestop.server.store.schema import attempts, budgets, events, ledger, phases, pools, runs

Row = sa.Row[Any]
Rows = Sequence[sa.Row[*tuple[Any, ...]]]

# An attempt with all that its lines say of it.
_ATTEMPTS = (
    sa.select(
        attempts,
        runs.c.number.label("run_number"),
        runs.c.name.label("run_name"),
        runs.c.project,
        runs.c.workflow,
        runs.c.request,
        runs.c.request_at,
        phases.c.name.label("phase"),
        phases.c.kind,
        phases.c.stop_seq,
        phases.c.stop_at,
        sa.func.coalesce(attempts.c.market, pools.c.market, "on_demand").label("charged_market"),
    )
    .select_from(
        attempts.join(runs, runs.c.id == attempts.c.run_id)
        .join(phases, phases.c.id == attempts.c.phase_id)
        .outerjoin(pools, pools.c.name == attempts.c.pool)
    )
)  # fmt: skip
_ONE = _ATTEMPTS.where(attempts.c.id == sa.bindparam("attempt"))
_SEEN = (
    sa.select(
        events.c.kind,
        events.c.at,
        events.c.data["block_seconds"].label("block"),  # as it was said: no number, perhaps
        events.c.data["upload_seconds"].label("upload"),
    )
    .where(
        events.c.run_id == sa.bindparam("run"),
        events.c.kind.in_(("program_started", "attached", "checkpoint")),
        events.c.attempt == sa.bindparam("number"),
    )
    .order_by(events.c.seq)
)
_BEFORE = sa.select(sa.func.max(attempts.c.last_step)).where(
    attempts.c.phase_id == sa.bindparam("phase"), attempts.c.number < sa.bindparam("number")
)


def attempt(connection: sa.Connection, attempt_id: str) -> Row:
    return connection.execute(_ONE, {"attempt": attempt_id}).one()


def live(connection: sa.Connection, *, project: str | None = None, run_id: str | None = None) -> Sequence[Row]:
    query = _ATTEMPTS.where(attempts.c.state == AttemptState.STARTED)
    if project is not None:
        query = query.where(runs.c.project == project)
    if run_id is not None:
        query = query.where(attempts.c.run_id == run_id)
    return connection.execute(query).all()


def meters(connection: sa.Connection, project: str) -> Rows:
    """What costs now: run_id, slots, price, started_at of the project's live attempts."""
    query = (
        sa.select(attempts.c.run_id, attempts.c.slots, attempts.c.price, attempts.c.started_at)
        .join(runs, runs.c.id == attempts.c.run_id)
        .where(attempts.c.state == AttemptState.STARTED, runs.c.project == project)
    )
    return connection.execute(query).all()


def unwritten(connection: sa.Connection, limit: int, *, after: str = "") -> list[str]:
    """Attempts that cost something and ended before there was a ledger, by their ids."""
    written = sa.exists().where(ledger.c.attempt_id == attempts.c.id)
    query = sa.select(attempts.c.id).where(
        attempts.c.id > after, attempts.c.ended_at > attempts.c.started_at, sa.not_(written)
    )
    return list(connection.scalars(query.order_by(attempts.c.id).limit(limit)))


def seen(connection: sa.Connection, run_id: str, number: int) -> Rows:
    """What its runner told of its start and of its saves."""
    return connection.execute(_SEEN, {"run": run_id, "number": number}).all()


def steps_before(connection: sa.Connection, phase_id: str, number: int) -> int:
    """How far the earlier attempts of the phase had come."""
    return int(connection.scalar(_BEFORE, {"phase": phase_id, "number": number}) or 0)


def write(connection: sa.Connection, row: Row, pieces: Sequence[Piece]) -> None:
    lines = [line(row, piece) for piece in by_day(pieces)]
    if lines:
        connection.execute(ledger.insert(), lines)


def line(row: Row, piece: Piece) -> dict[str, Any]:
    slots = len(row.slots)
    price = 0.0 if piece.kind is Kind.QUEUED else row.price
    return {
        "attempt_id": row.id,
        "run_id": row.run_id,
        "number": row.run_number,
        "run_name": row.run_name,
        "project": row.project,
        "workflow": row.workflow,
        "phase": row.phase,
        "attempt": row.number,
        "pool": row.pool,
        "market": row.charged_market,
        "kind": piece.kind.value,
        "since": piece.since,
        "until": piece.until,
        "slots": slots,
        "price": price,
        "credits": piece.seconds * slots * price / 3600.0,
    }


def of_run(connection: sa.Connection, run_id: str) -> dict[str, float]:
    """Credits by kind of time."""
    query = sa.select(ledger.c.kind, sa.func.sum(ledger.c.credits)).where(ledger.c.run_id == run_id)
    return {kind: float(credits) for kind, credits in connection.execute(query.group_by(ledger.c.kind))}


def runs_with_company(connection: sa.Connection) -> Sequence[Row]:
    """Runs with a budget of which an attempt is alive that has, or had, another one beside it: its runner does not know
    what that one has spent."""
    other = attempts.alias("other")
    beside = sa.exists().where(
        other.c.run_id == attempts.c.run_id,
        other.c.id != attempts.c.id,
        sa.or_(other.c.ended_at.is_(None), other.c.ended_at > attempts.c.started_at),
    )
    live = (
        sa.select(attempts.c.run_id)
        .join(runs, runs.c.id == attempts.c.run_id)
        .where(attempts.c.state == AttemptState.STARTED, runs.c.budget.is_not(None), beside)
    )
    return connection.execute(sa.select(runs).where(runs.c.id.in_(live))).all()


def promised(connection: sa.Connection, project: str, *, forced: str) -> Rows:
    """Runs that wait for slots or run, and of which it was said what they need: id, need, spent (by ended attempts)."""
    need = sa.func.coalesce(runs.c.budget, runs.c.estimate)
    spent = sa.select(sa.func.sum(ledger.c.credits)).where(ledger.c.run_id == runs.c.id).scalar_subquery()
    is_forced = sa.exists().where(events.c.run_id == runs.c.id, events.c.kind == forced)
    active = (RunState.QUEUED, RunState.STARTING, RunState.RUNNING)
    query = sa.select(runs.c.id, need.label("need"), sa.func.coalesce(spent, 0.0).label("spent")).where(
        runs.c.project == project, runs.c.state.in_(active), need.is_not(None), sa.not_(is_forced)
    )
    return connection.execute(query).all()


def of_workflow(connection: sa.Connection, name: str, newest: int = 20) -> list[float]:
    """What its last completed runs have cost, of any version."""
    start = f"{name}@"  # compared, not LIKE: SQLite's LIKE takes a for A
    last = (
        sa.select(runs.c.id)
        .where(sa.func.substr(runs.c.workflow, 1, len(start)) == start, runs.c.state == RunState.COMPLETED)
        .order_by(runs.c.number.desc())
        .limit(newest)
        .subquery()
    )
    query = sa.select(sa.func.sum(ledger.c.credits)).join(last, last.c.id == ledger.c.run_id).group_by(ledger.c.run_id)
    return [float(credits) for credits in connection.scalars(query)]


def all_budgets(connection: sa.Connection, project: str | None = None) -> Sequence[Row]:
    query = sa.select(budgets).order_by(budgets.c.project)
    return connection.execute(query if project is None else query.where(budgets.c.project == project)).all()


def put_budget(connection: sa.Connection, project: str, *, credits: float, since: float, by: str) -> None:
    values = {"credits": credits, "since": since, "by": by}
    if connection.execute(budgets.update().where(budgets.c.project == project).values(**values)).rowcount == 0:
        connection.execute(budgets.insert().values(project=project, **values))


def remove_budget(connection: sa.Connection, project: str) -> bool:
    return connection.execute(budgets.delete().where(budgets.c.project == project)).rowcount == 1


def _share(since: float, until: float | None) -> sa.ColumnElement[Any]:
    """The credits of a line that fall into this time."""
    return ledger.c.credits * part(since, until)


def part(since: float, until: float | None) -> sa.ColumnElement[Any]:
    """How much of a line falls into this time, 0 to 1. No line is empty."""
    begin = sa.case((ledger.c.since < since, since), else_=ledger.c.since)
    end = ledger.c.until if until is None else sa.case((ledger.c.until > until, until), else_=ledger.c.until)
    return (end - begin) / (ledger.c.until - ledger.c.since)


class Spendings:
    """What a project has spent since some time. The sum over old lines is kept: a long history is read once.

    Lines are only added, one transaction at a time. Not the newest ones, though: one that is not committed yet may be
    taken back.
    """

    def __init__(self, newest: int = 10_000) -> None:
        self._newest = newest
        self._known: dict[tuple[str, float], tuple[int, float]] = {}  # project and since -> up to which line, credits

    def since(self, connection: sa.Connection, project: str, since: float) -> float:
        top = int(connection.scalar(sa.select(sa.func.max(ledger.c.id))) or 0)
        upto, sum_before = self._known.get((project, since), (0, 0.0))
        if top - upto > 2 * self._newest:
            old = top - self._newest
            sum_before += self._between(connection, project, since, upto, old)
            upto = old
            self._known = {**self._known, (project, since): (upto, sum_before)}
        return sum_before + self._between(connection, project, since, upto, top)

    @staticmethod
    def _between(connection: sa.Connection, project: str, since: float, after: int, upto: int) -> float:
        # By the lines alone: through the index of projects SQLite would read all that the project ever spent.
        mine, late = ledger.c.project + "" == project, ledger.c.until + 0.0 > since
        query = sa.select(sa.func.sum(_share(since, None))).where(mine, late)
        return float(connection.scalar(query.where(ledger.c.id > after, ledger.c.id <= upto)) or 0.0)
