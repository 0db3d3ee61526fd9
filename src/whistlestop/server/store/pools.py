"""Pools and hosts: the capacity there is, what people have said of it, and what is held of it."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.reasons import EndReason
from whistlestop.domain.states import AttemptState
from whistlestop.server.store.schema import attempts, hosts, phases, pool_sizes, pools, runs

Row = sa.Row[Any]


def all_pools(connection: sa.Connection) -> Sequence[Row]:
    return connection.execute(sa.select(pools).order_by(pools.c.rank, pools.c.name)).all()


def get(connection: sa.Connection, name: str) -> Row | None:
    return connection.execute(sa.select(pools).where(pools.c.name == name)).one_or_none()


def put(connection: sa.Connection, name: str, *, at: float, **values: Any) -> None:
    """A change of its size is remembered: from it follows how long capacity stays and stays away."""
    before = get(connection, name)
    if before is None:
        connection.execute(pools.insert().values(name=name, **values))
    elif values:
        connection.execute(pools.update().where(pools.c.name == name).values(**values))
    slots = values.get("slots")
    if slots is not None and (before is None or before.slots != slots):
        connection.execute(pool_sizes.insert().values(pool=name, at=at, slots=slots))


def remove(connection: sa.Connection, name: str, *, at: float) -> bool:
    """What runs there runs on."""
    if connection.execute(pools.delete().where(pools.c.name == name)).rowcount != 1:
        return False
    connection.execute(pool_sizes.insert().values(pool=name, at=at, slots=0))
    return True


def sizes(connection: sa.Connection, name: str, *, since: float = 0.0, newest: int | None = None) -> Sequence[Row]:
    """In their order. `newest`: so many of them at most."""
    query = sa.select(pool_sizes).where(pool_sizes.c.pool == name, pool_sizes.c.at >= since)
    query = query.order_by(pool_sizes.c.at.desc(), pool_sizes.c.id.desc()).limit(newest)
    return connection.execute(query).all()[::-1]


def taken_slots(connection: sa.Connection) -> dict[str, frozenset[int]]:
    """By pool. Slots stay taken until the attempt's end is proven."""
    query = sa.select(attempts.c.pool, attempts.c.slots).where(attempts.c.state == AttemptState.STARTED)
    found: dict[str, set[int]] = defaultdict(set)
    for row in connection.execute(query):
        found[row.pool].update(row.slots)
    return {name: frozenset(slots) for name, slots in found.items()}


def holders(connection: sa.Connection) -> dict[str, list[Row]]:
    """By pool: the attempts that hold its slots, with their runs."""
    query = (
        sa.select(attempts, runs.c.number.label("run_number"), runs.c.name.label("run_name"), runs.c.project)
        .add_columns(phases.c.name.label("phase"))
        .join(runs, runs.c.id == attempts.c.run_id)
        .join(phases, phases.c.id == attempts.c.phase_id)
        .where(attempts.c.state == AttemptState.STARTED)
        .order_by(attempts.c.started_at)
    )
    found: dict[str, list[Row]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.pool].append(row)
    return found


def record(connection: sa.Connection, name: str, *, since: float) -> tuple[int, float]:
    """How often a pool took capacity back by itself since then, and for how many seconds those who left had it."""
    taken = sa.and_(
        attempts.c.reason.in_((EndReason.PREEMPTED, EndReason.HOST_LOST)), attempts.c.preempt_asked_at.is_(None)
    )
    begun = sa.case((attempts.c.started_at > since, attempts.c.started_at), else_=since)
    query = sa.select(
        sa.func.coalesce(sa.func.sum(sa.case((taken, 1), else_=0)), 0),
        sa.func.coalesce(sa.func.sum(attempts.c.ended_at - begun), 0.0),
    ).where(attempts.c.pool == name, attempts.c.ended_at > since)
    reclaims, seconds = connection.execute(query).one()
    return int(reclaims), float(seconds)


def ended_on_hosts(connection: sa.Connection, name: str, *, since: float) -> dict[str, int]:
    """By host: how many attempts have ended there since then."""
    query = (
        sa.select(attempts.c.host, sa.func.count())
        .where(attempts.c.pool == name, attempts.c.ended_at > since)
        .where(attempts.c.host.is_not(None), attempts.c.host != "")
        .group_by(attempts.c.host)
    )
    return {row[0]: int(row[1]) for row in connection.execute(query)}


def all_hosts(connection: sa.Connection) -> dict[tuple[str, str], Row]:
    """Those of which somebody has said something."""
    return {(row.pool, row.name): row for row in connection.execute(sa.select(hosts))}


def put_host(connection: sa.Connection, pool: str, name: str, **values: Any) -> None:
    same = sa.and_(hosts.c.pool == pool, hosts.c.name == name)
    if connection.execute(hosts.update().where(same).values(**values)).rowcount == 0:
        connection.execute(hosts.insert().values(pool=pool, name=name, **values))
