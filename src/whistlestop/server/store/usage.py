"""Sums over the ledger, made where it lies: a year of lines is never read into Python."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.ledger import DAY, Kind
from whistlestop.server.store.ledger import part
from whistlestop.server.store.schema import ledger

MANY_DAYS = 60
Rows = Sequence[sa.Row[*tuple[Any, ...]]]


def daily(connection: sa.Connection, *, since: float, until: float, project: str | None = None) -> Rows:
    """day (since 1970, UTC), pool, market, kind, credits, seconds (of slots): from these few follows all but who."""
    day = _day(connection)
    keys = (day, ledger.c.pool, ledger.c.market, ledger.c.kind)
    query = sa.select(day.label("day"), *keys[1:], *_sums(since, until))
    return connection.execute(_within(query, since, until, project).group_by(*keys)).all()


def groups(
    connection: sa.Connection,
    key: sa.ColumnElement[Any],
    *,
    since: float,
    until: float,
    project: str | None = None,
    limit: int | None = None,
    only: Collection[Any] | None = None,
) -> Rows:
    """The dearest `limit` of them: key, credits_KIND, seconds_KIND, name, number; `groups`: as many there are."""
    # First by key and kind, with two sums a line; then a row of each key out of few.
    named = (sa.func.max(ledger.c.run_name).label("name"), sa.func.max(ledger.c.number).label("number"))
    query = _within(sa.select(key.label("key"), ledger.c.kind, *_sums(since, until), *named), since, until, project)
    if only is not None:
        query = query.where(key.in_(only))
    by_kind = query.group_by(key, ledger.c.kind).subquery()
    wide = (
        sa.select(
            by_kind.c.key,
            *(_where(by_kind, "credits", kind) for kind in Kind),
            *(_where(by_kind, "seconds", kind) for kind in Kind),
            sa.func.max(by_kind.c.name).label("name"),
            sa.func.max(by_kind.c.number).label("number"),
            sa.func.count().over().label("groups"),
        )
        .group_by(by_kind.c.key)
        .order_by(sa.func.sum(by_kind.c.credits).desc(), by_kind.c.key)
    )
    return connection.execute(wide.limit(limit)).all()


def attempts(connection: sa.Connection, *, since: float, until: float, project: str | None = None) -> int:
    query = _within(sa.select(sa.func.count(ledger.c.attempt_id.distinct())), since, until, project)
    return int(connection.scalar(query) or 0)


def attempts_of(connection: sa.Connection, run_ids: Collection[str], *, since: float, until: float) -> dict[str, int]:
    query = sa.select(ledger.c.run_id, sa.func.count(ledger.c.attempt_id.distinct()).label("attempts"))
    query = _within(query, since, until, None).where(ledger.c.run_id.in_(run_ids)).group_by(ledger.c.run_id)
    return {row.run_id: row.attempts for row in connection.execute(query)}


def first(connection: sa.Connection, project: str | None = None) -> float | None:
    """When the oldest line begins, about: the one that ended first."""
    query = sa.select(ledger.c.since).order_by(ledger.c.until).limit(1)
    found: float | None = connection.scalar(query if project is None else query.where(ledger.c.project == project))
    return found


def _within(query: sa.Select[Any], since: float, until: float, project: str | None) -> sa.Select[Any]:
    # Through an index only where it leaves most lines out: to jump to each of them costs more than to read them all.
    ended = ledger.c.until if until - since < MANY_DAYS * DAY else ledger.c.until + 0.0
    query = query.where(ended > since, ledger.c.since < until)
    return query if project is None else query.where(ledger.c.project == project)


def _sums(since: float, until: float) -> tuple[sa.ColumnElement[Any], sa.ColumnElement[Any]]:
    seconds = (ledger.c.until - ledger.c.since) * ledger.c.slots
    return (
        sa.func.sum(_inside(ledger.c.credits, since, until)).label("credits"),
        sa.func.sum(_inside(seconds, since, until)).label("seconds"),
    )


def _inside(value: sa.ColumnElement[Any], since: float, until: float) -> sa.ColumnElement[Any]:
    """Its share of this time. Nearly every line lies in it as a whole."""
    whole = sa.and_(ledger.c.since >= since, ledger.c.until <= until)
    return sa.case((whole, value), else_=value * part(since, until))


def _day(connection: sa.Connection) -> sa.ColumnElement[Any]:
    """No line reaches over midnight."""
    days = ledger.c.since / sa.literal_column(str(DAY))  # no parameter: it is grouped by
    # SQLite cuts where PostgreSQL rounds, and need not know floor().
    return sa.cast(days if connection.dialect.name == "sqlite" else sa.func.floor(days), sa.Integer)


def _where(rows: sa.Subquery, name: str, kind: Kind) -> sa.ColumnElement[Any]:
    return sa.func.sum(sa.case((rows.c.kind == kind.value, rows.c[name]), else_=0.0)).label(f"{name}_{kind.value}")
