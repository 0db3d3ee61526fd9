"""Capacity that we take back ourselves: a person rehearses it, a deadline or a run that matters more asks for it.

The attempt hears of it as of any pool's notice: it saves, leaves, and its phase goes back to the queue. Nothing of it
counts against anybody's retries. Who calls `ask` in a transaction of its own hands the orders on after the commit.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.clock import iso
from whistlestop.domain.errors import NotFound, Refused
from whistlestop.domain.states import AttemptState, RunState
from whistlestop.domain.stops import Stop
from whistlestop.server.services import ingest
from whistlestop.server.services.asking import Said, check_active, named, note_run, one
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import events, phases, pools, runs
from whistlestop.wire.api import BulkDone, BulkItem, Done
from whistlestop.wire.rehearsal import PreemptBody
from whistlestop.wire.spec import PhaseKind

Row = sa.Row[Any]


def ask(context: Context, connection: sa.Connection, attempt: Row, *, notice: float, by: str, why: str) -> bool:
    """False: it is over, or has to leave as soon as that already."""
    now = context.clock()
    until = now + notice
    if not phases.ask_preempt(connection, attempt.id, until=until, by=by, why=why, at=now):
        return False
    phase = phases.get(connection, attempt.phase_id)
    when = f"within {notice:g} s" if notice else "at once"
    events.add(
        connection,
        attempt.run_id,
        "preempt_requested",
        f"attempt {attempt.number} has to leave {_place(attempt)} {when}: {why}",
        at=now,
        actor=by,
        phase=phase.name,
        attempt=attempt.number,
        data={"notice_s": notice, "until": iso(until), "why": why, "pool": attempt.pool, "host": attempt.host},
    )
    return True


def ask_all(context: Context, asked: Sequence[tuple[str, str]], *, notice: float, by: str) -> list[str]:
    """Attempts by id, each with its why: recorded in one transaction, then handed on. Those that have to leave now."""
    done: list[Row] = []
    with context.database.write() as connection:
        for attempt_id, why in asked:
            attempt = phases.attempt(connection, attempt_id)
            if attempt is not None and ask(context, connection, attempt, notice=notice, by=by, why=why):
                done.append(attempt)
        orders = _orders(connection, done)
    _hand_on(context, done, orders)
    return [attempt.id for attempt in done]


def goes(context: Context, attempt_id: str, *, until: float, why: str) -> None:
    """Its cluster takes it back, and has told us rather than the runner: nobody has asked for that."""
    now = context.clock()
    with context.database.write() as connection:
        attempt = phases.attempt(connection, attempt_id)
        if attempt is None or not phases.notice(connection, attempt_id, until=until, why=why):
            return
        phase = phases.get(connection, attempt.phase_id)
        text = f"attempt {attempt.number} has to leave {_place(attempt)} by {iso(until)}: {why}"
        events.add(
            connection, attempt.run_id, "notice", text, at=now, scope="instance",
            phase=phase.name, attempt=attempt.number, data={"until": iso(until), "why": why},
        )  # fmt: skip
        orders = _orders(connection, [attempt])
    _hand_on(context, [attempt], orders)


def preempt(context: Context, reference: str, body: PreemptBody, actor: Actor) -> Done:
    return one(context, reference, actor, lambda *given: _preempt(*given, body=body))


def preempt_host(context: Context, pool: str, host: str, body: PreemptBody, actor: Actor) -> BulkDone:
    """Everything that runs there."""
    items: list[BulkItem] = []
    with context.database.write() as connection:
        here = _living_on(connection, pool, host)
        asked = [
            attempt
            for attempt in here
            if ask(context, connection, attempt, notice=body.notice_s, by=actor.name, why=_why(actor, body.note))
        ]
        for attempt in here:
            run = runs.get(connection, attempt.run_id)
            text = f"{named(run)} " + (_leaves(body.notice_s) if attempt in asked else "has to leave already")
            items.append(BulkItem(run=run.id, number=run.number, name=run.name, ok=True, text=text))
        orders = _orders(connection, asked)
    context.hub.goes((pool, host), context.clock() + body.notice_s)
    _hand_on(context, asked, orders)
    return BulkDone(items=items)


def _preempt(
    context: Context, connection: sa.Connection, run: Row, actor: Actor, now: float, *, body: PreemptBody
) -> Said:
    check_active(run, "preempted")
    if run.request == Stop.PAUSE:
        return False, f"{named(run)} is {'paused' if run.state == RunState.WAITING else 'pausing'} already"
    made = phases.attempts_of_runs(connection, [run.id])[run.id]
    meant = [attempt for attempt in made if not body.attempts or attempt.number in body.attempts]
    live = [attempt for attempt in meant if attempt.state == AttemptState.STARTED]
    if not live and body.attempts and meant:
        return False, f"attempt {meant[-1].number} of {named(run)} has left already"
    if not live:
        raise Refused(
            f"{named(run)} is {run.state}: it holds no capacity that could be taken back",
            hint=f"wait until it runs: whistle show {run.number}",
        )
    why = _why(actor, body.note)
    asked = [ask(context, connection, each, notice=body.notice_s, by=actor.name, why=why) for each in live]
    if not any(asked):
        return False, f"{named(run)} has to leave already, at {iso(min(each.preempt_at for each in live))}"
    note_run(connection, run, body.note)
    return True, f"{named(run)} {_leaves(body.notice_s)}{_starts_over(connection, run, live)}"


def _leaves(notice: float) -> str:
    if not notice:
        return "loses its capacity now, and goes back to the queue from its newest checkpoint"
    return f"has {notice:g} s to save and leave, and goes back to the queue"


def _starts_over(connection: sa.Connection, run: Row, live: Sequence[Row]) -> str:
    rows = {row.id: row for row in phases.of_runs(connection, [run.id])[run.id]}
    tasks = [rows[each.phase_id].name for each in live if rows[each.phase_id].kind == PhaseKind.TASK]
    return f"; its task {' and '.join(tasks)} can't save and starts again from its beginning" if tasks else ""


def _why(actor: Actor, note: str) -> str:
    return f"preempted by {actor.name}: {note}" if note else f"preempted by {actor.name}"


def _living_on(connection: sa.Connection, pool: str, host: str) -> Sequence[Row]:
    row = pools.get(connection, pool)
    if row is None:
        raise NotFound(f"there is no pool {pool}", hint="whistle pools shows them")
    here = [attempt for attempt in phases.of_pool(connection, pool) if attempt.host == host]
    if not here and host not in {str(each["name"]) for each in row.hosts}:
        raise NotFound(f"pool {pool} has no host {host}", hint="whistle hosts shows them")
    return [attempt for attempt in here if attempt.state == AttemptState.STARTED]


def _place(attempt: Row) -> str:
    return f"pool {attempt.pool}, host {attempt.host}" if attempt.host else f"pool {attempt.pool}"


def _orders(connection: sa.Connection, asked: Sequence[Row]) -> list[Any]:
    found = {attempt.run_id for attempt in asked}
    return [order for run_id in sorted(found) for order in ingest.standing_orders(connection, run_id)]


def _hand_on(context: Context, asked: Sequence[Row], orders: list[Any]) -> None:
    for attempt_id, order in orders:
        context.hub.ordered(attempt_id, order)
    for run_id in {attempt.run_id for attempt in asked}:
        context.hub.changed(run_id)
