"""Phases and attempts: the rows below a run, and the facts that the lifecycle decides upon."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain import states
from whistlestop.domain.lifecycle import AttemptFacts, PhaseFacts, RunFacts, Verdict
from whistlestop.domain.reasons import OUTCOMES, EndReason, Retry
from whistlestop.domain.states import (
    ATTEMPT_TRANSITIONS,
    PHASE_ENDED,
    PHASE_TRANSITIONS,
    AttemptState,
    PhaseState,
    RunState,
)
from whistlestop.domain.stops import Stop
from whistlestop.server.store import checkpoints
from whistlestop.server.store.schema import attempts, deleted_attempts, phases, runs

Row = sa.Row[Any]
_MAY_REPEAT = frozenset(reason for reason, outcome in OUTCOMES.items() if outcome.retry is Retry.BUDGET)


_OF_RUNS = (
    sa.select(phases)
    .where(phases.c.run_id.in_(sa.bindparam("run_ids", expanding=True)))
    .order_by(phases.c.run_id, phases.c.ordinal)
)
_ATTEMPTS_OF_RUNS = (
    sa.select(attempts)
    .where(attempts.c.run_id.in_(sa.bindparam("run_ids", expanding=True)))
    .order_by(attempts.c.run_id, attempts.c.number)
)
_ASK_STOP = (
    phases.update()
    .where(phases.c.id == sa.bindparam("phase"), phases.c.stop_seq == 0, phases.c.state.not_in(PHASE_ENDED))
    .values(stop_seq=1, stop_by=sa.bindparam("by"), stop_at=sa.bindparam("asked_at"))
)


def insert(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    connection.execute(phases.insert(), list(rows))


def of_runs(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in connection.execute(_OF_RUNS, {"run_ids": list(run_ids)}):
        found[row.run_id].append(row)
    return found


def get(connection: sa.Connection, phase_id: str) -> Row:
    return connection.execute(sa.select(phases).where(phases.c.id == phase_id)).one()


def by_id(connection: sa.Connection, phase_ids: Collection[str]) -> dict[str, Row]:
    return {row.id: row for row in connection.execute(sa.select(phases).where(phases.c.id.in_(phase_ids)))}


def move(connection: sa.Connection, phase_id: str, state: PhaseState, **values: Any) -> bool:
    allowed = states.before(PHASE_TRANSITIONS, state)
    done = connection.execute(
        phases.update().where(phases.c.id == phase_id, phases.c.state.in_(allowed)).values(state=state, **values)
    )
    return done.rowcount == 1


def update(connection: sa.Connection, phase_id: str, **values: Any) -> None:
    connection.execute(phases.update().where(phases.c.id == phase_id).values(**values))


def ask_stop(connection: sa.Connection, phase_id: str, *, by: str, at: float) -> bool:
    """False: it was asked for already, or the phase has ended."""
    return connection.execute(_ASK_STOP, {"phase": phase_id, "by": by, "asked_at": at}).rowcount == 1


def add_attempt(connection: sa.Connection, **values: Any) -> None:
    connection.execute(attempts.insert().values(state=AttemptState.STARTED, **values))


def attempt(connection: sa.Connection, attempt_id: str) -> Row | None:
    return connection.execute(sa.select(attempts).where(attempts.c.id == attempt_id)).one_or_none()


def attempt_by_token(connection: sa.Connection, token_hash: str) -> Row | None:
    return connection.execute(sa.select(attempts).where(attempts.c.token_hash == token_hash)).one_or_none()


def was_deleted(connection: sa.Connection, token_hash: str) -> bool:
    query = sa.select(deleted_attempts.c.token_hash).where(deleted_attempts.c.token_hash == token_hash)
    return connection.scalar(query) is not None


def attempts_of_runs(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in connection.execute(_ATTEMPTS_OF_RUNS, {"run_ids": list(run_ids)}):
        found[row.run_id].append(row)
    return found


def live_attempts(connection: sa.Connection) -> Sequence[Row]:
    """With what is asked of their runs."""
    query = (
        sa.select(attempts, runs.c.request, runs.c.request_at, runs.c.kill_grace)
        .select_from(attempts.join(runs, runs.c.id == attempts.c.run_id))
        .where(attempts.c.state == AttemptState.STARTED)
    )
    return connection.execute(query).all()


def withdrawn(connection: sa.Connection, run_ids: Collection[str]) -> Sequence[Row]:
    """Attempts of these runs that nobody has heard of yet, and that are not to run any more; as live_attempts."""
    asked = sa.or_(runs.c.request.in_((Stop.PAUSE, Stop.KILL)), attempts.c.preempt_at.is_not(None))
    query = (
        sa.select(attempts, runs.c.request, runs.c.request_at, runs.c.kill_grace)
        .select_from(attempts.join(runs, runs.c.id == attempts.c.run_id))
        .where(attempts.c.state == AttemptState.STARTED, attempts.c.run_id.in_(run_ids))
        .where(attempts.c.seen_at.is_(None), asked)
    )
    return connection.execute(query).all()


def of_pool(connection: sa.Connection, pool: str, limit: int = 500) -> Sequence[Row]:
    """Those that run there, and the last ones that did."""
    live = sa.select(attempts).where(attempts.c.state == AttemptState.STARTED, attempts.c.pool == pool)
    ended = sa.select(attempts).where(attempts.c.pool == pool, attempts.c.ended_at.is_not(None))
    newest = ended.order_by(attempts.c.ended_at.desc()).limit(limit)
    return [*connection.execute(live), *connection.execute(newest)]


def unforgotten(connection: sa.Connection, limit: int = 200) -> Sequence[sa.Row[Any, Any]]:
    """Ended attempts of which the engine may still keep something: so many of each pool, the oldest first, so that
    those of a cluster that is away keep none of the others'."""
    place = sa.func.row_number().over(partition_by=attempts.c.pool, order_by=(attempts.c.ended_at, attempts.c.id))
    numbered = (
        sa.select(attempts.c.id, attempts.c.pool, place.label("place"))
        .where(attempts.c.forgotten.is_(sa.false()), attempts.c.state != AttemptState.STARTED)
        .subquery()
    )
    return connection.execute(sa.select(numbered.c.id, numbered.c.pool).where(numbered.c.place <= limit)).all()


def live_of_run(connection: sa.Connection, run_id: str) -> Sequence[Row]:
    query = sa.select(attempts).where(attempts.c.run_id == run_id, attempts.c.state == AttemptState.STARTED)
    return connection.execute(query).all()


_LIVE_WITH_REQUESTS = (
    sa.select(
        attempts.c.id,
        attempts.c.nodes,
        attempts.c.preempt_at,
        attempts.c.preempt_why,
        runs.c.request,
        runs.c.request_seq,
        runs.c.request_latest,
        runs.c.request_by,
        runs.c.kill_grace,
        phases.c.stop_seq,
        phases.c.stop_by,
        phases.c.save_seq,
        phases.c.saves_done,
        phases.c.steering,
    )
    .select_from(attempts.join(runs, runs.c.id == attempts.c.run_id).join(phases, phases.c.id == attempts.c.phase_id))
    .where(attempts.c.run_id == sa.bindparam("run"), attempts.c.state == AttemptState.STARTED)
)


def live_with_requests(connection: sa.Connection, run_id: str) -> Sequence[sa.Row[*tuple[Any, ...]]]:
    """The live attempts of a run, with what is asked of them."""
    return connection.execute(_LIVE_WITH_REQUESTS, {"run": run_id}).all()


def end_attempt(connection: sa.Connection, attempt_id: str, state: AttemptState, **values: Any) -> bool:
    """Ends are absorbing: the first one counts."""
    allowed = states.before(ATTEMPT_TRANSITIONS, state)
    done = connection.execute(
        attempts.update()
        .where(attempts.c.id == attempt_id, attempts.c.state.in_(allowed))
        .values(state=state, **values)
    )
    return done.rowcount == 1


def ask_preempt(connection: sa.Connection, attempt_id: str, *, until: float, by: str, why: str, at: float) -> bool:
    """The first one counts, unless a later one leaves less time. False: it is over, or asked for already."""
    sooner = sa.or_(attempts.c.preempt_at.is_(None), attempts.c.preempt_at > until)
    done = connection.execute(
        attempts.update()
        .where(attempts.c.id == attempt_id, attempts.c.state == AttemptState.STARTED, sooner)
        .values(preempt_at=until, preempt_asked_at=at, preempt_by=by, preempt_why=why)
    )
    return done.rowcount == 1


def notice(connection: sa.Connection, attempt_id: str, *, until: float, why: str) -> bool:
    """Its pool takes it back, as one of its nodes was told; nobody has asked for that. False: it is known."""
    sooner = sa.or_(attempts.c.preempt_at.is_(None), attempts.c.preempt_at > until)
    done = connection.execute(
        attempts.update()
        .where(attempts.c.id == attempt_id, attempts.c.state == AttemptState.STARTED, sooner)
        .values(preempt_at=until, preempt_why=why)
    )
    return done.rowcount == 1


def update_attempt(connection: sa.Connection, attempt_id: str, **values: Any) -> None:
    connection.execute(attempts.update().where(attempts.c.id == attempt_id).values(**values))


def mark(connection: sa.Connection, attempt_id: str, column: str, at: float) -> None:
    """When it happened for the first time; later ones are left out."""
    unset = attempts.c[column].is_(None)
    connection.execute(attempts.update().where(attempts.c.id == attempt_id, unset).values({column: at}))


def facts(connection: sa.Connection, run_ids: Collection[str]) -> list[RunFacts]:
    """Three queries for any number of runs, and one more if some of them failed; those that are gone are left out."""
    rows = connection.execute(sa.select(runs).where(runs.c.id.in_(run_ids))).all()
    below, tries = of_runs(connection, run_ids), newest_attempts(connection, run_ids)
    failed = {row.run_id for row in tries.values() if row.reason in _MAY_REPEAT}
    saved = checkpoints.newest_of_runs(connection, failed) if failed else {}
    vain = {row.phase_id: _in_vain(connection, row.phase_id) for row in tries.values() if _was_in_vain(row)}
    return [_run_facts(row, below.get(row.id, []), tries, saved, vain) for row in rows]


def newest_attempts(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, Row]:
    """By phase. A run with a thousand attempts costs no more than one with two."""
    last = (
        sa.select(sa.func.max(attempts.c.number).label("number"), attempts.c.run_id, attempts.c.phase_id)
        .where(attempts.c.run_id.in_(run_ids))
        .group_by(attempts.c.run_id, attempts.c.phase_id)
        .subquery()
    )
    same = sa.and_(attempts.c.run_id == last.c.run_id, attempts.c.number == last.c.number)
    return {row.phase_id: row for row in connection.execute(sa.select(attempts).join(last, same))}


def _run_facts(
    run: Row,
    rows: Sequence[Row],
    newest: Mapping[str, Row],
    saved: Mapping[tuple[str, str], Row],
    vain: Mapping[str, int],
) -> RunFacts:
    return RunFacts(
        id=run.id,
        state=RunState(run.state),
        request=Stop(run.request),
        request_by=run.request_by,
        attention=run.attention,
        reason=run.reason,
        recovering=run.recovering,
        phases=tuple(
            _phase_facts(row, newest.get(row.id), saved.get((run.id, row.name)), vain.get(row.id, 0)) for row in rows
        ),
    )


def _was_in_vain(row: Row) -> bool:
    """It lost its capacity before it made a step of its own."""
    made = (row.last_step or 0) - (row.resumed_from or 0)
    return row.reason in (EndReason.PREEMPTED, EndReason.HOST_LOST) and made <= 0


def _in_vain(connection: sa.Connection, phase_id: str) -> int:
    """How many of the newest attempts in a row were; ten are enough to know."""
    made = sa.select(attempts).where(attempts.c.phase_id == phase_id).order_by(attempts.c.number.desc()).limit(10)
    return sum(1 for _ in itertools.takewhile(_was_in_vain, connection.execute(made)))


def _phase_facts(row: Row, newest: Row | None, saved: Row | None, in_vain: int) -> PhaseFacts:
    return PhaseFacts(
        id=row.id,
        name=row.name,
        state=PhaseState(row.state),
        needs=tuple(row.needs),
        reason=row.reason,
        retries=row.retries,
        errors_used=row.errors_used,
        faults=row.faults,
        fault_step=row.fault_step,
        waits=row.ready_at is not None,
        trains=row.kind == "train",
        saved_step=saved.step if saved is not None else None,
        failure=row.failure,
        failure_step=row.failure_step,
        held=row.guarded and row.unjudged is not None,
        verdict=Verdict(**row.verdict) if row.verdict else None,
        attempt=None
        if newest is None
        else AttemptFacts(
            id=newest.id,
            number=newest.number,
            state=AttemptState(newest.state),
            up=newest.up,
            reason=EndReason(newest.reason) if newest.reason else None,
            text=newest.text,
            last_step=newest.last_step or 0,
            exit_code=newest.exit_code,
            signal=newest.signal,
            in_vain=in_vain,
        ),
    )
