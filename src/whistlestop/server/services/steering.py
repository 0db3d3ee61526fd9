"""Requests to a train phase on its way: save now, more steps, another value of a declared parameter.

Each is recorded beside the phase before it is answered. The runner hands it to the program, which applies it at a step
boundary and tells at which one, so that a resume can do the same again.
"""

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from whistlestop.channel.layout import Loop
from whistlestop.domain.errors import BadRequest, NotATrainPhase, NotFound, PhaseEnded, Refused
from whistlestop.domain.states import PHASE_ENDED, AttemptState, PhaseState
from whistlestop.server.services import changes, views
from whistlestop.server.services.asking import Said, check_active, named, one, phase_named, record
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import checkpoints, phases
from whistlestop.wire.api import MOST_STEPS, Done, ExtendBody, ParamsBody, SaveBody
from whistlestop.wire.spec import PhaseKind

Row = sa.Row[Any]
MOST_CHANGES = 1000  # of one phase; every order carries all of them
BEHIND_LOOP = {Loop.FINISHED, Loop.STOPPED, Loop.LEFT}


def save(context: Context, reference: str, body: SaveBody, actor: Actor) -> Done:
    return one(context, reference, actor, lambda *given: _save(*given, body=body))


def extend(context: Context, reference: str, body: ExtendBody, actor: Actor) -> Done:
    if (body.steps is None) == (body.more is None):
        raise BadRequest("say how many steps in all, or how many more", hint="--steps 5000, or +500")
    return one(context, reference, actor, lambda *given: _extend(*given, body=body))


def set_params(context: Context, reference: str, body: ParamsBody, actor: Actor) -> Done:
    return one(context, reference, actor, lambda *given: _set(*given, body=body))


def _save(context: Context, connection: sa.Connection, run: Row, actor: Actor, now: float, *, body: SaveBody) -> Said:
    check_active(run, "saved")
    phase = _phase(connection, run, body.phase, "save")
    if phase.state != PhaseState.RUNNING:
        raise Refused(
            f"phase {phase.name} of {named(run)} is not running now: there is nothing to save",
            hint=f"what it could go on from: whistle checkpoints {run.number}",
        )
    _check_in_loop(context, _newest(connection, run, phase), phase, run)
    phases.update(connection, phase.id, save_seq=phase.save_seq + 1, save_at=now)
    text = f"save of phase {phase.name} requested"
    record(connection, run, "save_requested", text, actor, now, body.note, phase=phase.name,
           data={"seq": phase.save_seq + 1})  # fmt: skip
    return True, f"phase {phase.name} of {named(run)} saves at its next step and goes on"


def _extend(
    context: Context, connection: sa.Connection, run: Row, actor: Actor, now: float, *, body: ExtendBody
) -> Said:
    if (said := _said_before(connection, run, body.key)) is not None:
        return True, said
    check_active(run, "extended")
    phase = _phase(connection, run, body.phase, "extend")
    newest = _newest(connection, run, phase)
    _check_changeable(phase, run)
    _check_in_loop(context, newest, phase, run)
    progress = views.progress_of(context, newest)
    before = changes.wanted(phase.steering, changes.TOTAL)
    total: int | None = before["value"] if before is not None else progress.total
    steps = body.steps if body.steps is not None else _more(run, phase, total, body.more or 0)
    if steps <= (reached := _reached(context, connection, run, phase, newest)):
        raise Refused(
            f"phase {phase.name} of {named(run)} is at step {reached} already: it can't end at step {steps}",
            hint=f"end it at its next step and keep the result: whistle stop {run.number} --phase {phase.name}",
        )
    if steps == total:
        return False, f"phase {phase.name} of {named(run)} ends at step {steps} already"
    instead = f" instead of {total}" if total else ""
    said = f"phase {phase.name} of {named(run)} goes on to step {steps}{instead}{_when(phase)}"
    _add(connection, phase, {changes.TOTAL: steps}, actor, now, key=body.key, said=said)
    text = f"phase {phase.name} is to end at step {steps}"
    data = {"steps": steps, "before": total}
    record(connection, run, "extend_requested", text, actor, now, body.note, phase=phase.name, data=data)
    return True, said


def _reached(context: Context, connection: sa.Connection, run: Row, phase: Row, newest: Row | None) -> int:
    """Right after a resume the live step is 0 for a moment: what it goes on from counts as well."""
    live = newest is not None and newest.state == AttemptState.STARTED
    kept = None if newest is not None and newest.fresh else checkpoints.newest(connection, run.id, phase.name)
    steps = [views.progress_of(context, newest).step]
    if newest is not None:
        steps += [newest.resumed_from or 0, newest.last_step or 0]
    if newest is not None and live:
        steps.append(int(_told(context, newest).get("resumed_step", 0)))
    if kept is not None:
        steps.append(kept.step)
    return max(steps)


def _more(run: Row, phase: Row, total: int | None, more: int) -> int:
    if total is None:
        raise Refused(
            f"nobody knows yet how many steps phase {phase.name} of {named(run)} makes: more than what?",
            hint=f"say how many in all: whistle extend {run.number} --steps N",
        )
    return min(total + more, MOST_STEPS)


def _set(context: Context, connection: sa.Connection, run: Row, actor: Actor, now: float, *, body: ParamsBody) -> Said:
    if (before := _said_before(connection, run, body.key)) is not None:
        return True, before
    check_active(run, "changed")
    phase = _phase(connection, run, body.phase, "change")
    newest = _newest(connection, run, phase)
    _check_changeable(phase, run)
    _check_in_loop(context, newest, phase, run)
    declared = changes.declared(phase.params)
    complete = _has_declared(context, newest, phase)
    for name, value in body.params.items():
        if name in declared:
            _check_value(name, value, declared[name])
        elif complete:
            raise _undeclared(phase, run, name, declared)
    new = {name: value for name, value in body.params.items() if not _is_so(phase, name, value)}
    wanted = ", ".join(f"{name} = {value!r}" for name, value in (new or body.params).items())
    if not new:
        return False, f"phase {phase.name} of {named(run)} has {wanted} already"
    unknown = [name for name in new if name not in declared]
    caution = f"; its program has not declared {', '.join(unknown)} yet, and may never do so" if unknown else ""
    said = f"phase {phase.name} of {named(run)} gets {wanted}{_when(phase)}{caution}"
    values = {changes.PARAM + name: value for name, value in new.items()}
    _add(connection, phase, values, actor, now, key=body.key, said=said)
    record(connection, run, "set_requested", f"{wanted} requested for phase {phase.name}", actor, now, body.note,
           phase=phase.name, data={"params": new})  # fmt: skip
    return True, said


def _said_before(connection: sa.Connection, run: Row, key: str | None) -> str | None:
    """The answer to the same request, if it was made before, whatever has become of the run since."""
    if key is None:
        return None
    found = (changes.answered(row.steering, key) for row in phases.of_runs(connection, [run.id])[run.id])
    return next((said for said in found if said is not None), None)


def _phase(connection: sa.Connection, run: Row, name: str | None, to: str) -> Row:
    """The train phase that is meant, still to run or running."""
    rows = phases.of_runs(connection, [run.id])[run.id]
    if name is not None:
        phase = phase_named(rows, run, name)
        if phase.kind != PhaseKind.TRAIN:
            raise NotATrainPhase(
                f"phase {name} of {named(run)} is a task: it has no steps, so there is nothing to {to}"
            )
        if phase.state in PHASE_ENDED:
            raise PhaseEnded(
                f"phase {name} of {named(run)} has already {phase.state}",
                hint=f"a new run can go on from its checkpoint: whistle continue {run.number} --phase {name}",
            )
        return phase
    trains = [row for row in rows if row.kind == PhaseKind.TRAIN]
    if not trains:
        raise NotATrainPhase(f"{named(run)} has no train phase: there is nothing to {to}")
    left = [row for row in trains if row.state not in PHASE_ENDED]
    if not left:
        raise PhaseEnded(
            f"{named(run)} has no train phase left to {to}",
            hint=f"a new run can go on from its checkpoint: whistle continue {run.number}",
        )
    for candidates in ([row for row in left if row.state == PhaseState.RUNNING], left):
        if len(candidates) == 1:
            return candidates[0]
    raise Refused(
        f"{named(run)} has several train phases that could be meant",
        hint=f"say which one: --phase {' | '.join(row.name for row in left)}",
    )


def _check_changeable(phase: Row, run: Row) -> None:
    if phase.stop_seq:
        raise Refused(
            f"phase {phase.name} of {named(run)} was asked to stop: nothing of it can be changed any more",
            hint=f"a new run can go on from its checkpoint: whistle continue {run.number} --phase {phase.name}",
        )


def _check_in_loop(context: Context, attempt: Row | None, phase: Row, run: Row) -> None:
    if attempt is None or attempt.state != AttemptState.STARTED:
        return  # another attempt comes, with a loop of its own
    if _told(context, attempt).get("loop") in BEHIND_LOOP:
        raise Refused(
            f"phase {phase.name} of {named(run)} has left its loop: there is no step left to do it at",
            hint=f"a new run can go on from its checkpoint: whistle continue {run.number} --phase {phase.name}",
        )


def _undeclared(phase: Row, run: Row, name: str, declared: Mapping[str, Any]) -> NotFound:
    if not declared:
        return NotFound(
            f"the program of phase {phase.name} of {named(run)} has declared no parameter",
            hint=f'declare it where it is used: {name} = run.param("{name}", 0.1)',
        )
    near = difflib.get_close_matches(name, list(declared), 1)
    hint = f"did you mean {near[0]}?" if near else f"it has declared: {', '.join(sorted(declared)[:20])}"
    return NotFound(f"the program of phase {phase.name} of {named(run)} has no parameter {name}", hint=hint)


def _check_value(name: str, value: bool | int | float | str, declared: Mapping[str, Any]) -> None:
    example = declared["default"] if declared["default"] is not None else declared["value"]
    if example is not None and _kind(value) != _kind(example):
        raise BadRequest(f"{name} is a {_kind(example)}, for example {example!r}; {value!r} is a {_kind(value)}")
    if isinstance(value, str | bool):
        return
    low, high = declared["low"], declared["high"]
    if low is not None and value < low:
        raise BadRequest(f"{name} = {value!r} is too low: the program takes {low!r} at least")
    if high is not None and value > high:
        raise BadRequest(f"{name} = {value!r} is too high: the program takes {high!r} at most")


def _kind(value: object) -> str:
    return "truth value" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "text"


def _is_so(phase: Row, name: str, value: object) -> bool:
    """Asked for already, or never changed from it."""
    before = changes.wanted(phase.steering, changes.PARAM + name)
    now = before["value"] if before is not None else changes.declared(phase.params).get(name, {}).get("value")
    return now == value and type(now) is type(value)


def _add(
    connection: sa.Connection,
    phase: Row,
    new: Mapping[str, Any],
    actor: Actor,
    now: float,
    *,
    key: str | None,
    said: str,
) -> None:
    if len(phase.steering) + len(new) > MOST_CHANGES:
        raise Refused(
            f"phase {phase.name} has been changed {len(phase.steering)} times; {MOST_CHANGES} is the limit",
            hint="let the program itself follow a schedule",
        )
    stored = phase.steering
    for name, value in new.items():
        stored = changes.added(stored, name, value, actor=actor.name, at=now, key=key, said=said)
    phases.update(connection, phase.id, steering=stored)


def _newest(connection: sa.Connection, run: Row, phase: Row) -> Row | None:
    made = phases.attempts_of_runs(connection, [run.id])[run.id]
    return next((row for row in reversed(made) if row.phase_id == phase.id), None)


def _told(context: Context, attempt: Row) -> Mapping[str, Any]:
    """The attempt's progress as its runner told it last."""
    fresh = context.hub.progress.get(attempt.id)
    return msgspec.structs.asdict(fresh) if fresh is not None else attempt.progress or {}


def _has_declared(context: Context, attempt: Row | None, phase: Row) -> bool:
    """Whether the present attempt has declared all it has: it has told of it, and has done a step, as many programs
    declare in their loop. Its words come on another way than its progress, so that either may be first."""
    if attempt is None or changes.heard(phase.params) < attempt.number:
        return False
    told = _told(context, attempt)
    return attempt.state != AttemptState.STARTED or int(told.get("step", 0)) > int(told.get("resumed_step", 0))


def _when(phase: Row) -> str:
    return ", from its next step on" if phase.state == PhaseState.RUNNING else ", as soon as it runs"
