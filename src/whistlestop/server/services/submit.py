"""New runs: from a spec, from a workflow, from another run. Everything is judged before anything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.checkpoints import latest
from whistlestop.domain.errors import BadRequest, NoCheckpoint, NotFound, Problem, SpecInvalid
from whistlestop.domain.ids import new_id
from whistlestop.domain.states import PhaseState, RunState
from whistlestop.server.services import budgets, bundles, changes, fitting, ingest, receivers, storages, views
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import admin, checkpoints, events, phases, runs
from whistlestop.wire.api import ContinueBody, RerunBody, RunView, Submit
from whistlestop.wire.spec import PhaseKind, PhaseSpec, Secret, Spec
from whistlestop.wire.spec_edit import edit
from whistlestop.wire.spec_file import parse_spec

Row = sa.Row[Any]


@dataclass(frozen=True)
class Parent:
    run: Row
    relation: str
    phase: str | None = None
    step: int | None = None
    path: str | None = None


def submit(context: Context, body: Submit, actor: Actor) -> RunView:
    with context.database.read() as connection:
        if body.key is not None and (known := runs.by_key(connection, body.key)) is not None:
            return views.run_view(context, connection, known)
        text, workflow = _text(connection, body)
        code = _code(connection, body)
    _check_code(context, body)
    return _create(
        context,
        text,
        body.set,
        actor,
        note=body.note,
        force=body.force,
        values={
            **code,
            "workflow": workflow,
            "key": body.key,
        },
    )


def rerun(context: Context, reference: str, body: RerunBody, actor: Actor) -> RunView:
    """The same again, from the start, with the same code; or changed by --set."""
    with context.database.read() as connection:
        if body.key is not None and (known := runs.by_key(connection, body.key)) is not None:
            return views.run_view(context, connection, known)
        run = runs.resolve(connection, reference)
    values = {**_same(run), "key": body.key}
    parent = Parent(run, "rerun")
    return _create(context, run.spec, body.set, actor, note=body.note, force=body.force, values=values, parent=parent)


def continue_run(context: Context, reference: str, body: ContinueBody, actor: Actor) -> RunView:
    """A new run that goes on from a committed checkpoint of this one, also if this one was killed or stopped."""
    with context.database.read() as connection:
        if body.key is not None and (known := runs.by_key(connection, body.key)) is not None:
            return views.run_view(context, connection, known)
        run = runs.resolve(connection, reference)
        found = _checkpoint(connection, run, body)
    parent = Parent(run, "continue", found.phase, found.step, found.path)
    values = {**_same(run), "key": body.key}
    return _create(context, run.spec, body.set, actor, note=body.note, force=body.force, values=values, parent=parent)


def _checkpoint(connection: sa.Connection, run: Row, body: ContinueBody) -> Row:
    rows = checkpoints.of_run(connection, run.id, body.phase)
    if not rows:
        where = f"phase {body.phase} of run #{run.number}" if body.phase else f"run #{run.number}"
        raise NoCheckpoint(
            f"{where} has no committed checkpoint to continue from", hint=f"start it again: whistle rerun {run.number}"
        )
    if body.checkpoint is not None:
        if body.step is not None:
            raise BadRequest("give either the id of a checkpoint or a step")
        chosen = next((row for row in rows if row.id == body.checkpoint), None)
        if chosen is None:
            raise NoCheckpoint(
                f"run #{run.number} has no checkpoint {body.checkpoint}", hint="it may have been removed"
            )
        return _undamaged(run, chosen)
    if body.step is None:
        good = [row for row in rows if checkpoints.eligible(row)]
        if not good and any(row.healthy for row in rows):
            _undamaged(run, next(row for row in rows if row.healthy))
        newest = latest(good)
        if newest is None:
            steps = ", ".join(str(row.step) for row in rows[:8])
            raise NoCheckpoint(
                f"run #{run.number} has checkpoints only from after its training had gone wrong",
                hint=f"start it again: whistle rerun {run.number}; or name one if you mean it: --step {steps}",
            )
        return newest
    exact = [row for row in rows if row.step == body.step]
    if not exact:
        steps = ", ".join(str(row.step) for row in rows[:8])
        raise NoCheckpoint(
            f"run #{run.number} has no checkpoint at step {body.step}", hint=f"it has checkpoints at steps {steps}"
        )
    return _undamaged(run, exact[0])


def _undamaged(run: Row, row: Row) -> Row:
    if not row.verified:
        raise NoCheckpoint(
            f"the checkpoint of run #{run.number} at step {row.step} is damaged",
            hint=f"take another one; or put its files back and have it read again: "
            f"whistle checkpoints {run.number} verify --step {row.step}",
        )
    return row


def _text(connection: sa.Connection, body: Submit) -> tuple[str, str | None]:
    if (body.spec is None) == (body.workflow is None):
        raise BadRequest("give either a spec or the name of a workflow")
    if body.spec is not None:
        return body.spec, None
    assert body.workflow is not None
    name, _, version = body.workflow.partition("@")
    if version and not (version.isascii() and version.isdigit() and len(version) < 10):
        raise BadRequest(f"{version!r} is not a version number", hint="say NAME or NAME@3")
    row = admin.workflow(connection, name, int(version) if version else None)
    if row is None:
        known = ", ".join(other.name for other in admin.all_workflows(connection)[:10]) or "none is saved yet"
        raise NotFound(f"there is no workflow {body.workflow}", hint=f"workflows: {known}")
    return row.spec, f"{row.name}@{row.version}"


def _code(connection: sa.Connection, body: Submit) -> dict[str, Any]:
    own = {"bundle": body.bundle, "in_place": body.in_place, "commit": body.commit, "dirty": body.dirty}
    if body.code_of is None:
        return {**own, "env": body.env}
    if any(value is not None for value in own.values()) or body.env:
        raise BadRequest("code_of takes code and environment of another run: give nothing of them beside it")
    run = runs.resolve(connection, body.code_of)
    return {name: getattr(run, name) for name in (*own, "env")}


def _check_code(context: Context, body: Submit) -> None:
    if body.bundle is not None and body.in_place is not None:
        raise BadRequest("give either a bundle or a directory to run in place")
    if body.bundle is not None and not bundles.path_of(context.settings, body.bundle).exists():
        raise NotFound(f"there is no bundle {body.bundle[:12]}…", hint="upload it first: PUT /api/v1/bundles/HASH")
    if body.in_place is not None:
        try:
            usable = Path(body.in_place).is_absolute() and Path(body.in_place).is_dir()
        except (OSError, ValueError):
            usable = False
        if not usable:
            raise BadRequest(f"{body.in_place!r} is not a directory on the server's machine")
    bad = [name for name, value in body.env.items() if not name or "=" in name or "\0" in name + value]
    if bad:
        raise BadRequest(f"not usable as environment variables: {', '.join(map(repr, bad[:5]))}")


def _create(
    context: Context,
    text: str,
    sets: Sequence[str],
    actor: Actor,
    *,
    note: str,
    force: bool,
    values: Mapping[str, Any],
    parent: Parent | None = None,
) -> RunView:
    spec = parse_spec(text, sets) if sets else spec_of(text)  # mistakes name the lines of the text as it was sent
    exact = edit(text, sets)
    now, run_id = context.clock(), new_id("r")
    with context.database.write() as connection:
        if values.get("key") and (known := runs.by_key(connection, values["key"])) is not None:
            return views.run_view(context, connection, known)
        fitting.check(connection, spec)
        _check_secrets(connection, spec)
        receivers.check(connection, spec)
        _check_still_there(context, connection, values, parent)
        judged = budgets.check(context, connection, spec, workflow=values.get("workflow"), force=force)
        run = runs.insert(
            connection,
            id=run_id,
            name=spec.name,
            project=spec.project,
            priority=spec.priority,
            state=RunState.QUEUED,
            note=note,
            spec=exact,
            budget=spec.budget,
            estimate=judged.need,
            deadline_at=now + spec.deadline.total_seconds() if spec.deadline else None,
            created_by=actor.name,
            created_at=now,
            parent_run=parent.run.id if parent else None,
            parent_step=parent.step if parent else None,
            relation=parent.relation if parent else None,
            **storages.for_new_run(context.settings, run_id),
            **values,
        )
        phases.insert(connection, _phase_rows(connection, run_id, spec, parent, now))
        events.add(connection, run_id, "submitted", _said(spec, parent), at=now, actor=actor.name, data={"note": note})
        if judged.beyond is not None:
            text = f"{judged.beyond}; {actor.name} has it run all the same"
            events.add(connection, run_id, budgets.FORCED, text, at=now, actor=actor.name)
        orders = ingest.standing_orders(connection, parent.run.id, with_protected=True) if parent is not None else []
    for attempt_id, order in orders:  # its retention has to leave what the new run starts from
        context.hub.ordered(attempt_id, order)
    context.hub.changed(run_id)
    with context.database.read() as connection:
        return views.run_view(context, connection, runs.get(connection, run.id))


def _phase_rows(
    connection: sa.Connection, run_id: str, spec: Spec, parent: Parent | None, now: float
) -> list[dict[str, Any]]:
    carried = _carried(connection, spec, parent) if parent is not None and parent.phase is not None else {}
    steering, skips = (_steering(connection, parent), _skips(connection, parent)) if parent is not None else ([], [])
    rows = []
    for ordinal, phase in enumerate(spec.phases):
        own = parent is not None and parent.phase == phase.name
        done = phase.name in carried
        rows.append(
            {
                "id": f"{run_id}.{ordinal}",
                "run_id": run_id,
                "ordinal": ordinal,
                "name": phase.name,
                "kind": phase.kind.value,
                "state": PhaseState.COMPLETED if done else PhaseState.PENDING,
                "reason": f"carried over from run #{parent.run.number}" if done and parent else None,
                "needs": list(phase.needs),
                "slots": phase.all_slots,
                "retries": phase.retries,
                "stop_reasons": [],
                "restore_from": parent.path if own and parent else carried.get(phase.name),
                "steering": steering if own else [],
                "ready_at": now if not done and set(carried).issuperset(phase.needs) else None,
                "guarded": bool(phase.guards),
                "skips": skips if own else [],
            }
        )
    return rows


def _steering(connection: sa.Connection, parent: Parent) -> list[changes.Stored]:
    """What was changed on the way to the checkpoint is part of what it goes on from."""
    if parent.step is None:
        return []
    rows = phases.of_runs(connection, [parent.run.id])[parent.run.id]
    return next((changes.until(row.steering, parent.step) for row in rows if row.name == parent.phase), [])


def _skips(connection: sa.Connection, parent: Parent) -> list[list[int]]:
    """Batches that were passed over on the way stay so: by the step alone nobody could tell where its data is."""
    rows = phases.of_runs(connection, [parent.run.id])[parent.run.id]
    return next((list(row.skips) for row in rows if row.name == parent.phase), [])


def _carried(connection: sa.Connection, spec: Spec, parent: Parent) -> dict[str, str | None]:
    """Phases that the parent has completed and that do not build on the continued one: their results are taken over,
    nothing is trained twice."""
    if parent.phase not in {phase.name for phase in spec.phases}:
        raise NotFound(f"the spec has no phase {parent.phase} any more", hint="continue another phase: --phase NAME")
    done = {row.name: row for row in phases.of_runs(connection, [parent.run.id])[parent.run.id]}
    carried: dict[str, str | None] = {}
    above = {parent.phase}
    for phase in _in_order(spec):
        if phase.name == parent.phase or not above.isdisjoint(phase.needs):
            above.add(phase.name)
            continue
        row = done.get(phase.name)
        if row is not None and row.state == PhaseState.COMPLETED:
            newest = checkpoints.newest(connection, parent.run.id, phase.name)
            carried[phase.name] = newest.path if newest is not None else row.restore_from
        else:
            above.add(phase.name)  # it runs again, and so does what builds on it
    return carried


def _in_order(spec: Spec) -> list[PhaseSpec]:
    """Each phase behind those it needs."""
    left, order = list(spec.phases), list[PhaseSpec]()
    while left:
        done = {phase.name for phase in order}
        ready = [phase for phase in left if done.issuperset(phase.needs)]
        order += ready
        left = [phase for phase in left if phase not in ready]
    return order


def _check_secrets(connection: sa.Connection, spec: Spec) -> None:
    named = {value.name for phase in spec.phases for value in phase.env.values() if isinstance(value, Secret)}
    missing = sorted(named - set(admin.find_secrets(connection, named)))
    if missing:
        raise SpecInvalid(
            f"the spec names secrets that this server does not have: {', '.join(missing)}",
            hint=f"whistle secret set {missing[0]}",
            problems=[
                Problem("env", f"there is no secret {name}", hint=f"whistle secret set {name}") for name in missing
            ],
        )


def _check_still_there(
    context: Context, connection: sa.Connection, values: Mapping[str, Any], parent: Parent | None
) -> None:
    """Under the write lock: what is swept or deleted is so before or after, not in between."""
    bundle = values.get("bundle")
    if bundle and not bundles.path_of(context.settings, bundle).exists():
        raise NotFound(f"the code bundle {bundle[:12]}… is gone", hint="submit again from the directory")
    if parent is not None:
        rows = checkpoints.of_run(connection, runs.get(connection, parent.run.id).id)
        if parent.path is not None and parent.path not in {row.path for row in rows}:
            raise NoCheckpoint(f"the checkpoint at step {parent.step} was removed meanwhile", hint="take another one")


def _same(run: Row) -> dict[str, Any]:
    """Code and surroundings of another run."""
    return {name: getattr(run, name) for name in ("bundle", "in_place", "env", "commit", "dirty", "workflow")}


def _said(spec: Spec, parent: Parent | None) -> str:
    trains = sum(phase.kind is PhaseKind.TRAIN for phase in spec.phases)
    what = f"submitted: {len(spec.phases)} phase{'s' if len(spec.phases) != 1 else ''}, {trains} of them training"
    if parent is None:
        return what
    if parent.relation == "rerun":
        return f"{what}; run #{parent.run.number} again"
    return f"{what}; continues run #{parent.run.number}, phase {parent.phase}, from step {parent.step}"
