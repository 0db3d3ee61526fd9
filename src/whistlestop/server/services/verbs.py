"""What people ask of a run. Each verb records the request and answers; the scheduler and the runner carry it out.

A verb either raises before it writes anything, or writes all of it: many of them share one transaction in bulk.
"""

from collections.abc import Sequence
from typing import Any, Literal

import sqlalchemy as sa

from whistlestop.domain.errors import (
    BadRequest,
    NoCheckpoint,
    NotATrainPhase,
    NotFound,
    PhaseEnded,
    Refused,
    RunActive,
)
from whistlestop.domain.states import PHASE_ENDED, RUN_ENDED, AttemptState, PhaseState, RunState
from whistlestop.domain.stops import Stop
from whistlestop.server.services import budgets, ingest, views
from whistlestop.server.services.asking import Said, Verb, check_active, named, one, phase_named, record
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import admin, checkpoints, events, phases, runs
from whistlestop.wire.api import BulkBody, BulkDone, BulkItem, Done, KillBody, PauseBody, ResumeBody, RunView, StopBody
from whistlestop.wire.spec import PhaseKind

Row = sa.Row[Any]
SLICE = 50  # runs in one transaction of a bulk request


def stop(context: Context, reference: str, body: StopBody, actor: Actor) -> Done:
    return one(context, reference, actor, lambda *given: _stop(*given, body=body))


def pause(context: Context, reference: str, body: PauseBody, actor: Actor) -> Done:
    return one(context, reference, actor, lambda *given: _pause(*given, body=body))


def resume(context: Context, reference: str, body: ResumeBody, actor: Actor) -> Done:
    return one(context, reference, actor, lambda *given: _resume(*given, body=body))


def kill(context: Context, reference: str, body: KillBody, actor: Actor, *, discard: bool = False) -> Done:
    return one(context, reference, actor, lambda *given: _kill(*given, body=body, discard=discard))


def by_guard(context: Context, connection: sa.Connection, run: Row, by: str, verb: Literal["pause", "kill"]) -> Said:
    """In the transaction in which the guard has written down that it does so."""
    actor, now = Actor(by, "admin"), context.clock()
    if verb == "pause":
        return _pause(context, connection, run, actor, now, body=PauseBody())
    return _kill(context, connection, run, actor, now, body=KillBody())


def set_note(context: Context, reference: str, note: str, actor: Actor) -> RunView:
    with context.database.write() as connection:
        run = runs.resolve(connection, reference)
        runs.update(connection, run.id, note=note)
        events.add(connection, run.id, "note", "the note was changed", at=context.clock(), actor=actor.name)
        view = views.run_view(context, connection, runs.get(connection, run.id))
    context.hub.shown(run.id)
    return view


def delete(context: Context, reference: str, actor: Actor) -> Done:
    with context.database.write() as connection:
        run = runs.resolve(connection, reference)
        view = views.run_view(context, connection, run)
        _, text = _delete(context, connection, run, actor, context.clock())
    context.hub.changed(run.id)
    return Done(run=view, changed=True, text=text)


def bulk(context: Context, body: BulkBody, actor: Actor) -> BulkDone:
    """In slices: a thousand kills cost twenty commits, and nobody else's stop waits for more than one of them."""
    verbs: dict[str, Verb] = {
        "stop": lambda context, connection, run, actor, now: _stop(
            context, connection, run, actor, now, body=StopBody(phase=body.phases.get(run.id), note=body.note)
        ),
        "pause": lambda *given: _pause(*given, body=PauseBody(note=body.note)),
        "resume": lambda *given: _resume(*given, body=ResumeBody(note=body.note)),
        "kill": lambda *given: _kill(*given, body=KillBody(note=body.note)),
        "cancel": lambda *given: _kill(*given, body=KillBody(note=body.note), discard=True),
        "delete": _delete,
    }
    wanted = runs.Filter(tuple(body.status), body.project, body.search, body.workflow)
    if not body.runs and wanted.empty and not body.everything:
        raise Refused("no run was named and no filter given", hint="name runs, give a filter, or say --all")
    if body.runs and not wanted.empty:
        raise BadRequest("give either runs or a filter", hint="filter first (GET /runs), then name the ones you mean")
    check_phases(body)
    references = list(body.runs)
    if not references:
        with context.database.read() as connection:
            references += runs.ids(connection, wanted)
    references = list(dict.fromkeys(references))
    items: list[BulkItem] = []
    for start in range(0, len(references), SLICE):
        items += _slice(context, references[start : start + SLICE], actor, verbs[body.verb])
    return BulkDone(items=items)


def check_phases(body: BulkBody) -> None:
    if body.phases and body.verb != "stop":
        raise BadRequest("only a stop is about a phase", hint="leave `phases` out")


def _slice(context: Context, references: Sequence[str], actor: Actor, verb: Verb) -> list[BulkItem]:
    touched: list[Row] = []
    with context.database.write() as connection:
        items = [_try(context, connection, reference, actor, verb, touched) for reference in references]
        alive = [run for run in touched if run.state in (RunState.STARTING, RunState.RUNNING)]
        orders = [order for run in alive for order in ingest.standing_orders(connection, run.id)]
    for attempt_id, order in orders:
        context.hub.ordered(attempt_id, order)
    for run in touched:
        context.hub.changed(run.id)
    return items


def _try(
    context: Context, connection: sa.Connection, reference: str, actor: Actor, verb: Verb, touched: list[Row]
) -> BulkItem:
    try:
        run = runs.resolve(connection, reference)
    except (NotFound, Refused) as error:
        return BulkItem(run=reference, number=0, name=reference, ok=False, code=error.code, text=error.text)
    try:
        changed, text = verb(context, connection, run, actor, context.clock())
    except (NotFound, Refused) as error:
        return BulkItem(run=run.id, number=run.number, name=run.name, ok=False, code=error.code, text=error.text)
    if changed:
        touched.append(run)
    return BulkItem(run=run.id, number=run.number, name=run.name, ok=True, text=text)


def stoppable(connection: sa.Connection, run: Row, name: str | None, below: list[Row] | None = None) -> Row:
    """The phase that a stop would be about. Raise Refused if none can be stopped. `below`: its phases, if known."""
    check_active(run, "stopped")
    phase = _phase_to_stop(phases.of_runs(connection, [run.id])[run.id] if below is None else below, run, name)
    if phase.kind != PhaseKind.TRAIN:
        raise NotATrainPhase(
            f"phase {phase.name} of {named(run)} is a task: it has no step to stop at and no checkpoint to keep",
            hint=f"wait for it, or end the whole run: whistle kill {run.number}",
        )
    if phase.state in PHASE_ENDED:
        raise PhaseEnded(
            f"phase {phase.name} of {named(run)} has already {phase.state}",
            hint="a new run can go on from its checkpoint: whistle continue",
        )
    return phase


def _stop(context: Context, connection: sa.Connection, run: Row, actor: Actor, now: float, *, body: StopBody) -> Said:
    phase = stoppable(connection, run, body.phase)
    if not phases.ask_stop(connection, phase.id, by=actor.name, at=now):
        return False, f"phase {phase.name} of {named(run)} was already asked to stop"
    text = f"stop of phase {phase.name} requested"
    record(connection, run, "stop_requested", text, actor, now, body.note, phase=phase.name)
    if phase.state == PhaseState.RUNNING:
        return True, f"phase {phase.name} of {named(run)} stops at its next step and keeps its result"
    return True, _stops_later(connection, run, phase)


def _stops_later(connection: sa.Connection, run: Row, phase: Row) -> str:
    """The phase does not run now: where it stands, and what has to happen before the stop can be applied."""
    made = [row for row in phases.attempts_of_runs(connection, [run.id])[run.id] if row.phase_id == phase.id]
    steps = max((row.last_step or 0 for row in made), default=0)
    begun = f"stands at step {steps}" if steps else "has begun" if made else "has not begun"
    if run.state == RunState.WAITING:
        kept = "ends there with its result" if steps else "ends at its first step"
        return (
            f"{named(run)} is paused and phase {phase.name} {begun}: it {kept} as soon as the run is resumed; "
            f"do that with: whistle resume {run.number}"
        )
    if made:
        return f"phase {phase.name} of {named(run)} {begun} and waits for its next attempt; the stop is applied there"
    return f"phase {phase.name} of {named(run)} has not begun; the stop is applied as soon as it does"


def _pause(context: Context, connection: sa.Connection, run: Row, actor: Actor, now: float, *, body: PauseBody) -> Said:
    check_active(run, "paused")
    if run.state == RunState.WAITING or run.request == Stop.PAUSE:
        return False, f"{named(run)} is {'paused' if run.state == RunState.WAITING else 'pausing'} already"
    latest = body.checkpoint == "latest"
    loses = _losses(context, connection, run) if latest else ""
    runs.ask(connection, run.id, Stop.PAUSE, request_latest=latest, request_by=actor.name, request_at=now)
    text = "pause requested" + (" from the last checkpoint" if latest else "")
    record(connection, run, "pause_requested", text, actor, now, body.note, data={"checkpoint": body.checkpoint})
    if run.state == RunState.QUEUED:
        return True, f"{named(run)} leaves the queue and waits; bring it back with: whistle resume {run.number}"
    how = f"leaves at once{loses}" if latest else "saves at its next step and leaves"
    rows = {row.id: row for row in phases.of_runs(connection, [run.id])[run.id]}
    tasks = [rows[row.phase_id].name for row in phases.live_of_run(connection, run.id)
             if rows[row.phase_id].kind == PhaseKind.TASK]  # fmt: skip
    if tasks:
        how = f"leaves; its task {' and '.join(tasks)} can't save and will start again from its beginning"
    return True, f"{named(run)} {how}; bring it back with: whistle resume {run.number}"


def _losses(context: Context, connection: sa.Connection, run: Row) -> str:
    """What a pause without saving throws away. Without any checkpoint that would be everything: refused."""
    texts = []
    rows = {row.id: row for row in phases.of_runs(connection, [run.id])[run.id]}
    for attempt in phases.live_of_run(connection, run.id):
        phase = rows[attempt.phase_id]
        if phase.kind != PhaseKind.TRAIN:
            continue
        step = views.progress_of(context, attempt).step
        newest = checkpoints.newest(connection, run.id, phase.name)
        if newest is None:
            raise NoCheckpoint(
                f"phase {phase.name} of {named(run)} has no committed checkpoint: "
                f"leaving now would lose all {step} steps",
                hint=f"let it save first: whistle pause {run.number} --checkpoint save",
            )
        texts.append(f"{max(0, step - newest.step)} steps since the checkpoint at step {newest.step} are lost")
    return f" ({'; '.join(texts)})" if texts else ""


def _resume(
    context: Context, connection: sa.Connection, run: Row, actor: Actor, now: float, *, body: ResumeBody
) -> Said:
    if not resumable(connection, run, body.from_start):
        return False, f"{named(run)} is not paused"
    budgets.check_resume(context, connection, run)
    for phase in phases.of_runs(connection, [run.id])[run.id]:
        # Only where nothing can be resumed: a checkpoint that loads is never thrown away by this.
        bare = checkpoints.newest(connection, run.id, phase.name) is None
        if body.from_start and phase.state == PhaseState.PENDING and (bare or run.attention):
            phases.update(connection, phase.id, from_start=True)
    runs.unpause(connection, run.id)
    record(connection, run, "resume_requested", "resume requested", actor, now, body.note)
    return True, f"{named(run)} is back in the queue"


def resumable(connection: sa.Connection, run: Row, from_start: bool, below: list[Row] | None = None) -> bool:
    """False: it is not paused. Raise Refused if it can't be resumed. `below`: its phases, if known."""
    check_active(run, "resumed")
    if run.state != RunState.WAITING:
        if run.request == Stop.PAUSE:
            raise Refused(f"{named(run)} is still pausing", hint="resume it once it is shown as waiting")
        return False
    for phase in phases.of_runs(connection, [run.id])[run.id] if below is None else below:
        _check_resumable(connection, run, phase, from_start)
    return True


def _check_resumable(connection: sa.Connection, run: Row, phase: Row, from_start: bool) -> None:
    if phase.kind != PhaseKind.TRAIN or phase.state != PhaseState.PENDING or from_start:
        return
    made = [row for row in phases.attempts_of_runs(connection, [run.id])[run.id] if row.phase_id == phase.id]
    steps = max((row.last_step or 0 for row in made), default=0)
    ran = any(row.state != AttemptState.STARTED for row in made)
    if ran and checkpoints.newest(connection, run.id, phase.name) is None and phase.restore_from is None:
        done = f"made {steps} steps and " if steps else ""
        raise NoCheckpoint(
            f"phase {phase.name} of {named(run)} {done}left no checkpoint: it would start at step 0",
            hint=f"if that is what you want: whistle resume {run.number} --from-start",
        )


def _kill(
    context: Context,
    connection: sa.Connection,
    run: Row,
    actor: Actor,
    now: float,
    *,
    body: KillBody,
    discard: bool = False,
) -> Said:
    check_active(run, "killed")
    if run.request == Stop.KILL:
        if discard and not run.discard:
            runs.update(connection, run.id, discard=True)
            record(connection, run, "cancel_requested", "its checkpoints go too", actor, now, body.note)
            return True, f"{named(run)} is being killed; its checkpoints go too"
        return False, f"{named(run)} is being killed already"
    attempts = phases.attempts_of_runs(connection, [run.id]).get(run.id, []) if run.attempts else []
    cost = views.credits_of(context, run, attempts, now)
    runs.ask(
        connection,
        run.id,
        Stop.KILL,
        request_by=actor.name,
        request_at=now,
        kill_grace=body.grace_s,
        discard=discard,
        estimate=cost.estimated,
    )
    kind, word = ("cancel_requested", "cancel") if discard else ("kill_requested", "kill")
    record(connection, run, kind, f"{word} requested", actor, now, body.note, data={"credits_used": cost.used})
    goes = "; its checkpoints go too" if discard else ""
    return True, f"{named(run)} is being killed{goes}"


def deletable(connection: sa.Connection, run: Row, *, continued: bool = True) -> None:
    """Raise Refused if it can't be deleted. `continued`: another one may go on from it, so that has to be looked up."""
    if run.state not in RUN_ENDED:
        raise RunActive(f"{named(run)} is {run.state}: kill it first", hint=f"whistle kill {run.number}")
    paths = [row.path for row in checkpoints.of_run(connection, run.id)] if continued else []
    if children := runs.children_using(connection, paths):
        raise Refused(
            f"{children} active run{'s' if children > 1 else ''} continue{'' if children > 1 else 's'} from "
            f"{named(run)}: its checkpoints are in use",
            hint="delete it once they have ended",
        )


def _delete(context: Context, connection: sa.Connection, run: Row, actor: Actor, now: float) -> Said:
    deletable(connection, run)
    attempts = phases.attempts_of_runs(connection, [run.id]).get(run.id, [])
    rubbish = [str(context.settings.run_directory(run.id))]
    rubbish += [str(context.settings.attempts / attempt.id) for attempt in attempts]
    if run.storage is not None:
        admin.discard(connection, [run.storage], now, run.storage_options)
    runs.delete(connection, run.id)
    if run.bundle and not runs.uses_bundle(connection, run.bundle):
        rubbish.append(str(context.settings.bundles / f"{run.bundle}.tar"))
    admin.discard(connection, rubbish, now)
    events.forget(connection, run.id)
    events.add(connection, run.id, "deleted", f"{named(run)} was deleted", at=now, actor=actor.name)
    return True, f"{named(run)} and all it stored are deleted"


def _phase_to_stop(rows: list[Row], run: Row, name: str | None) -> Row:
    if name is not None:
        return phase_named(rows, run, name)
    running = [row for row in rows if row.state == PhaseState.RUNNING]
    for candidates in ([row for row in running if row.kind == PhaseKind.TRAIN], running):
        if len(candidates) == 1:
            return candidates[0]
    left = [row for row in rows if row.kind == PhaseKind.TRAIN and row.state not in PHASE_ENDED]
    if len(left) == 1:
        return left[0]
    if not left:
        raise PhaseEnded(f"{named(run)} has no train phase left to stop")
    raise Refused(
        f"{named(run)} has several train phases that could be stopped",
        hint=f"say which one: --phase {' | '.join(row.name for row in left)}",
    )
