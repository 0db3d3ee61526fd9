"""What is read of runs that have to be done by some time."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.states import AttemptState, RunState
from whistlestop.domain.stops import Stop
from whistlestop.server.store.schema import attempts, pool_sizes, runs

Row = sa.Row[Any]

_ACTIVE = (
    sa.select(runs)
    .where(
        runs.c.state.in_((RunState.QUEUED, RunState.STARTING, RunState.RUNNING)),
        runs.c.deadline_at.is_not(None),
        runs.c.request == int(Stop.NONE),
        runs.c.attention.is_(None),
    )
    .order_by(runs.c.deadline_at)
)


def active(connection: sa.Connection) -> Sequence[Row]:
    """The most urgent first."""
    return connection.execute(_ACTIVE).all()


def attempts_of_runs(connection: sa.Connection, run_ids: Collection[str], *, newest: int) -> dict[str, list[Row]]:
    """By run, in order: of each phase the newest that came to steps, and the one that is alive. Who was preempted a
    thousand times costs no more than another."""
    rank = sa.func.row_number().over(partition_by=attempts.c.phase_id, order_by=attempts.c.number.desc())
    told = sa.or_(attempts.c.state == AttemptState.STARTED, attempts.c.loop_at.is_not(None), attempts.c.last_step > 0)
    ranked = sa.select(attempts.c.id, rank.label("rank")).where(attempts.c.run_id.in_(run_ids), told).subquery()
    query = sa.select(attempts).join(ranked, ranked.c.id == attempts.c.id).where(ranked.c.rank <= newest)
    found: dict[str, list[Row]] = defaultdict(list)
    for row in connection.execute(query.order_by(attempts.c.run_id, attempts.c.number)):
        found[row.run_id].append(row)
    return found


def starts(connection: sa.Connection, pools: Collection[str], *, limit: int) -> list[float]:
    """Seconds from placement to the loop, of the newest attempts in these pools."""
    query = (
        sa.select(attempts.c.loop_at - attempts.c.started_at)
        .where(attempts.c.pool.in_(pools), attempts.c.loop_at.is_not(None), attempts.c.ended_at.is_not(None))
        .order_by(attempts.c.ended_at.desc())
        .limit(limit)
    )
    return [float(seconds) for seconds in connection.scalars(query)]


def last_size(connection: sa.Connection) -> int:
    """Of all changes of a pool's size, the newest one's number."""
    return connection.scalar(sa.select(sa.func.max(pool_sizes.c.id))) or 0
