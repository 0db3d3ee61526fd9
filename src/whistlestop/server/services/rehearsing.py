"""Losses on purpose: recorded, handed to the runner of one attempt, and done by it. Nobody else is touched.

What is lost this way is the run's own work; it counts neither against its retries nor against the host it was on.
"""

from typing import Any

import sqlalchemy as sa

from whistlestop.domain.errors import Forbidden, Refused
from whistlestop.domain.states import AttemptState, PhaseState
from whistlestop.domain.stops import Stop
from whistlestop.server.services import views
from whistlestop.server.services.asking import check_active, named, phase_named
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import events, phases, runs
from whistlestop.wire.frames import Fault, Rehearse
from whistlestop.wire.rehearsal import Rehearsal, RehearseBody
from whistlestop.wire.spec import PhaseKind

Row = sa.Row[Any]
WHY = "a rehearsal"
SAYS = {
    Fault.PROGRAM: "its program is killed",
    Fault.HOST: "its program and its runner are killed, as if the host were lost",
    Fault.LINK: "its runner can't reach the server for {:g} s",
    Fault.STORAGE: "its storage takes {:g} s longer for the next save",
    Fault.SAVE: "its saves fail for {:g} s, from the next one on",
}
ENDS = frozenset({Fault.PROGRAM, Fault.HOST})  # the attempt


def rehearse(context: Context, reference: str, body: RehearseBody, actor: Actor) -> Rehearsal:
    fault, now = Fault(body.fault), context.clock()
    says = SAYS[fault].format(body.seconds)
    with context.database.write() as connection:
        run = runs.resolve(connection, reference)
        _check(run, actor)
        phase, attempt = _subject(connection, run, body)
        if not context.hub.hears(attempt.id):
            raise Refused(f"the runner of {named(run)} can't be reached now", hint="try again once it is: whistle show")
        warning = _spare(connection, phase, attempt, fault, actor, now)
        text = f"a rehearsal: attempt {attempt.number}: {says}"
        data = {"fault": fault.value, "seconds": body.seconds}
        events.add(connection, run.id, "rehearsal_requested", text, at=now, actor=actor.name, phase=phase.name,
                   attempt=attempt.number, data=data)  # fmt: skip
        step = views.progress_of(context, attempt).step
    context.hub.rehearse(attempt.id, Rehearse(fault.value, body.seconds))
    context.hub.shown(run.id)
    return Rehearsal(
        run=run.id,
        phase=phase.name,
        attempt=attempt.number,
        fault=fault.value,
        step=step,
        text=f"{named(run)}: {says}",
        warning=warning,
    )


def _check(run: Row, actor: Actor) -> None:
    if actor.role != "admin" and actor.name != run.created_by:
        raise Forbidden(
            f"{named(run)} is {run.created_by}'s: only they and administrators rehearse losses of it",
            hint="members may take its capacity back with notice: whistle preempt",
        )
    check_active(run, "struck")
    if run.request == Stop.PAUSE:
        raise Refused(f"{named(run)} is pausing: there is nothing to rehearse", hint=f"whistle resume {run.number}")


def _subject(connection: sa.Connection, run: Row, body: RehearseBody) -> tuple[Row, Row]:
    rows = phases.of_runs(connection, [run.id])[run.id]
    chosen = (
        [phase_named(rows, run, body.phase)] if body.phase else [row for row in rows if row.kind == PhaseKind.TRAIN]
    )
    newest = phases.newest_attempts(connection, [run.id])
    for phase in chosen:
        attempt = newest.get(phase.id)
        if phase.state != PhaseState.RUNNING or attempt is None or attempt.state != AttemptState.STARTED:
            continue
        if body.attempt is None or body.attempt == attempt.number:
            return phase, attempt
    raise Refused(
        f"{named(run)} has no train phase that runs now" if not body.phase else f"phase {body.phase} does not run now",
        hint=f"a loss is rehearsed while it trains: whistle show {run.number}",
    )


def _spare(connection: sa.Connection, phase: Row, attempt: Row, fault: Fault, actor: Actor, now: float) -> str | None:
    """It costs neither a retry nor the host's good name. What it would have cost for real is the answer."""
    if fault in ENDS:
        phases.update_attempt(connection, attempt.id, preempt_asked_at=now, preempt_by=actor.name, preempt_why=WHY)
    if fault is not Fault.PROGRAM:
        return None
    left = phase.retries - phase.errors_used
    phases.update(connection, phase.id, retries=phase.retries + 1, failure=None)
    if left > 0:
        return None
    spent = "retries is 0" if not phase.retries else f"its {phase.retries} retries are used up"
    return f"{spent}: if the program dies by itself, the run fails"
