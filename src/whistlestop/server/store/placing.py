"""What the scheduler reads at every pass: few columns, few queries, and of the queue no more than it needs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.reasons import EndReason
from whistlestop.domain.states import RUN_ENDED, AttemptState, PhaseState, RunState
from whistlestop.domain.stops import Stop
from whistlestop.server.store.schema import attempts, phases, runs

Row = Any  # of the columns that each query names
PAGE = 256
_ACTIVE = (RunState.QUEUED, RunState.STARTING, RunState.RUNNING)

_QUEUE = (
    sa.select(
        runs.c.id.label("run_id"),
        phases.c.id.label("phase_id"),
        phases.c.name,
        phases.c.slots,
        runs.c.priority,
        runs.c.attempts,
    )
    .select_from(runs.join(phases, phases.c.run_id == runs.c.id))
    .where(
        phases.c.state == PhaseState.PENDING,
        phases.c.ready_at.is_not(None),
        phases.c.not_before <= sa.bindparam("now"),
        runs.c.state.in_(_ACTIVE),
        runs.c.request == int(Stop.NONE),
        runs.c.attention.is_(None),
    )
    .order_by(runs.c.priority.desc(), runs.c.number, phases.c.ordinal)
)
_LIVE = (
    sa.select(
        attempts.c.id,
        attempts.c.run_id,
        attempts.c.phase_id,
        attempts.c.pool,
        attempts.c.slots,
        attempts.c.started_at,
        attempts.c.preempt_at,
        attempts.c.committed_at,
        attempts.c.fresh,
        runs.c.priority,
        runs.c.request,
        runs.c.deadline_at,
        phases.c.name,
        phases.c.kind,
        phases.c.stop_seq,
    )
    .select_from(attempts.join(runs, runs.c.id == attempts.c.run_id).join(phases, phases.c.id == attempts.c.phase_id))
    .where(attempts.c.state == AttemptState.STARTED)
)
_PHASE = phases.alias()


def _phase(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """A phase of the run is like that. By the run: the index of states would go through the whole queue."""
    return sa.exists().where(_PHASE.c.run_id == runs.c.id, *conditions)


_FIRST_QUEUED = (
    sa.select(runs.c.priority).where(runs.c.state == RunState.QUEUED).order_by(runs.c.priority.desc()).limit(1)
)
_FIRST_BESIDE = sa.select(sa.func.max(runs.c.priority)).where(
    runs.c.state.in_((RunState.STARTING, RunState.RUNNING)),
    _phase(sa.func.lower(_PHASE.c.state) == PhaseState.PENDING, _PHASE.c.ready_at.is_not(None)),
)
_UNSETTLED = sa.select(runs.c.id).where(
    runs.c.state.not_in(RUN_ENDED),
    sa.not_(
        sa.and_(
            runs.c.state == RunState.QUEUED,
            runs.c.request == int(Stop.NONE),
            runs.c.attention.is_(None),
            _phase(sa.func.lower(_PHASE.c.state) == PhaseState.PENDING, _PHASE.c.ready_at.is_not(None)),
            sa.not_(_phase(sa.func.lower(_PHASE.c.state) == PhaseState.RUNNING)),
        )
    ),
)
_START_PHASE = (
    phases.update()
    .where(phases.c.id == sa.bindparam("phase"))
    .values(state=PhaseState.RUNNING, reason=None, ready_at=None, from_start=False)
)
_QUEUED_ONE = runs.c.state == RunState.QUEUED
_START_RUN = (
    runs.update()
    .where(runs.c.id == sa.bindparam("run"))
    .values(
        attempts=sa.bindparam("last"),
        started_at=sa.func.coalesce(runs.c.started_at, sa.bindparam("now")),
        recovering=sa.case((_QUEUED_ONE, sa.false()), else_=runs.c.recovering),
        reason=sa.case((_QUEUED_ONE, sa.null()), else_=runs.c.reason),
        state=sa.case((_QUEUED_ONE, RunState.STARTING), else_=runs.c.state),
    )
)
_ADD_ATTEMPT = attempts.insert()
_ENDS = (
    attempts.c.id,
    attempts.c.run_id,
    attempts.c.phase_id,
    attempts.c.number,
    attempts.c.pool,
    attempts.c.host,
    attempts.c.state,
    attempts.c.reason,
    attempts.c.started_at,
    attempts.c.ended_at,
    attempts.c.preempt_by,
    attempts.c.preempt_asked_at,
    attempts.c.last_step,
)


def queue(connection: sa.Connection, now: float) -> Iterator[Sequence[Row]]:
    """Phases that wait for capacity, in the queue's order, page by page."""
    found = connection.execute(_QUEUE, {"now": now}, execution_options={"yield_per": PAGE})
    try:
        yield from found.partitions(PAGE)
    finally:
        found.close()


def live(connection: sa.Connection) -> Sequence[Row]:
    """Attempts that hold slots, with what bounds them."""
    return connection.execute(_LIVE).all()


def unsettled(connection: sa.Connection) -> list[str]:
    """Active runs of which something may have to be decided: all but those that just wait for capacity."""
    return list(connection.scalars(_UNSETTLED))


def begin(connection: sa.Connection, made: Sequence[Mapping[str, Any]], now: float) -> None:
    """Attempts that were not there, of phases that wait: both were looked at in this transaction."""
    connection.execute(_START_PHASE, [{"phase": each["phase_id"]} for each in made])
    connection.execute(_ADD_ATTEMPT, [{"state": AttemptState.STARTED, **each} for each in made])
    last = {each["run_id"]: each["number"] for each in made}  # of several of one run the last
    connection.execute(_START_RUN, [{"run": run, "last": number, "now": now} for run, number in last.items()])


def first_in_queue(connection: sa.Connection) -> int | None:
    """The highest priority of what waits; None: nothing does. However long the queue is: of queued runs by the index
    alone, and there are no more active ones than slots."""
    found = [connection.scalar(_FIRST_QUEUED), connection.scalar(_FIRST_BESIDE)]
    return max((each for each in found if each is not None), default=None)


def specs(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, str]:
    query = sa.select(runs.c.id, runs.c.spec).where(runs.c.id.in_(run_ids))
    return {row.id: row.spec for row in connection.execute(query)}


def ends_of_phases(connection: sa.Connection, phase_ids: Collection[str], *, since: float) -> Sequence[Row]:
    """The ended attempts of these phases since then, in order."""
    query = sa.select(*_ENDS).where(attempts.c.phase_id.in_(phase_ids), attempts.c.ended_at > since)
    return connection.execute(query.order_by(attempts.c.number)).all()


def ends_in_pool(connection: sa.Connection, pool: str, *, since: float, limit: int) -> Sequence[Row]:
    """The newest ends there."""
    query = sa.select(*_ENDS).where(attempts.c.pool == pool, attempts.c.ended_at > since)
    return connection.execute(query.order_by(attempts.c.ended_at.desc()).limit(limit)).all()


def last_ends(
    connection: sa.Connection, places: Mapping[tuple[str, str], float], reasons: Collection[EndReason]
) -> dict[tuple[str, str], float]:
    """By pool and host: the last end for one of these reasons since the time that is given."""
    found = {}
    for (pool, host), since in places.items():
        query = sa.select(attempts.c.ended_at).where(
            attempts.c.host == host,
            attempts.c.ended_at > since,
            attempts.c.pool + "" == pool,  # by the host's own index
            attempts.c.reason.in_(reasons),
            attempts.c.preempt_asked_at.is_(None),
        )
        last = connection.scalar(query.order_by(attempts.c.ended_at.desc()).limit(1))
        if last is not None:
            found[pool, host] = float(last)
    return found


def ends_on_hosts(
    connection: sa.Connection, pools: Collection[str], reasons: Collection[EndReason], *, since: float, limit: int
) -> Sequence[Row]:
    """Ends for these reasons on hosts of these pools, the newest first, with their runs; none that was asked for."""
    query = (
        sa.select(*_ENDS, runs.c.number.label("run_number"), runs.c.name.label("run_name"))
        .select_from(attempts.join(runs, runs.c.id == attempts.c.run_id))
        .where(
            attempts.c.reason.in_(reasons),
            attempts.c.ended_at > since,
            attempts.c.pool.in_(pools),
            attempts.c.host.is_not(None),
            attempts.c.preempt_asked_at.is_(None),  # we asked for it, or somebody rehearsed it
        )
        .order_by(attempts.c.ended_at.desc())
        .limit(limit)
    )
    return connection.execute(query).all()


def ends_beside(
    connection: sa.Connection, hosts: Collection[str], *, without: str, since: float, limit: int
) -> Sequence[Row]:
    """How attempts of other runs than this one ended on these hosts since then, the newest first; none that was asked
    for."""
    query = sa.select(*_ENDS).where(
        attempts.c.host.in_(hosts),
        attempts.c.ended_at > since,
        attempts.c.run_id != without,
        attempts.c.preempt_asked_at.is_(None),
    )
    return connection.execute(query.order_by(attempts.c.ended_at.desc()).limit(limit)).all()
