"""What people do with single checkpoints: look into one, pin it, remove it, bring it back.

What the storage has to do is done with no transaction open. The row says first what is meant: a crash in between is
mended by asking again."""

from typing import Any

import sqlalchemy as sa

from whistlestop.blobs.manifest import Checkpoint, Damaged
from whistlestop.blobs.open import is_remote
from whistlestop.blobs.storage import DAY, Storage
from whistlestop.domain.clock import iso
from whistlestop.domain.errors import NoCheckpoint, NotFound, Refused, StorageUnreachable, WhistleError
from whistlestop.domain.states import RUN_ENDED, PhaseState
from whistlestop.server.services import checkpoint_views, cleaning, ingest, storages
from whistlestop.server.services.asking import named
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import checkpoints, events, phases, runs
from whistlestop.wire.api import CheckpointView
from whistlestop.wire.checkpoints import CheckpointDetail, CheckpointDone, FileView

Row = sa.Row[Any]


def look(connection: sa.Connection, reference: str, checkpoint_id: str) -> tuple[Row, Row]:
    """The run and the checkpoint."""
    run = runs.resolve(connection, reference)
    row = checkpoints.find(connection, run.id, checkpoint_id)
    if row is None:
        raise NotFound(
            f"{named(run)} has no checkpoint {checkpoint_id}",
            hint=f"it may have been removed for good; what it has: whistle checkpoints {run.number}",
        )
    return run, row


def view(connection: sa.Connection, run: Row, checkpoint_id: str) -> CheckpointView:
    rows = checkpoint_views.of_run(connection, run, trashed=True)
    found = next((each for each in rows if each.id == checkpoint_id), None)
    if found is None:
        raise NotFound(f"{named(run)} has no checkpoint {checkpoint_id} any more")
    return found


def manifest(context: Context, run: Row, row: Row) -> tuple[Storage, Checkpoint]:
    """From the storage itself."""
    storage = storages.of_run(context.settings, run)
    try:
        return storage, storages.find(storage, row)
    except Damaged as error:
        raise NoCheckpoint(f"the checkpoint {said(row)} of {named(run)} can't be read: {error.text}") from error
    except (WhistleError, OSError) as error:
        raise unreachable(run, error) from error


def detail(context: Context, reference: str, checkpoint_id: str) -> CheckpointDetail:
    with context.database.read() as connection:
        run, row = look(connection, reference, checkpoint_id)
        shown = view(connection, run, checkpoint_id)
    _, found = manifest(context, run, row)
    return CheckpointDetail(
        **shown.model_dump(),
        files=[
            FileView(name=cleaning.text(name), size=entry.size, sha256=entry.sha256)
            for name, entry in sorted(found.files.items())
        ],
        meta=cleaning.data(dict(found.meta)),
    )


def pin(context: Context, reference: str, checkpoint_id: str, actor: Actor, *, pinned: bool) -> CheckpointDone:
    with context.database.write() as connection:
        run, row = look(connection, reference, checkpoint_id)
        if pinned and row.trashed_until is not None:
            raise Refused(
                f"the checkpoint {said(row)} of {named(run)} was removed",
                hint=f"bring it back: whistle checkpoints {run.number} restore {row.id}",
            )
        changed = row.pinned != pinned
        word = "pinned" if pinned else "no longer pinned"
        if changed:
            checkpoints.update(connection, row.id, pinned=pinned)
            kind = "checkpoint_pinned" if pinned else "checkpoint_unpinned"
            _record(connection, run, row, kind, f"the checkpoint {said(row)} is {word}", actor, context.clock())
        orders = ingest.standing_orders(connection, run.id, with_protected=True) if changed else []
    for attempt_id, order in orders:  # its retention has to know
        context.hub.ordered(attempt_id, order)
    stays = ": nothing removes it but you" if pinned else ": the run's own rules decide how long it stays"
    text = f"the checkpoint {said(row)} of {named(run)} is {word}{'' if changed else ', as before'}{stays}"
    return _done(context, run, row, changed, text)


def remove(context: Context, reference: str, checkpoint_id: str, actor: Actor, *, force: bool) -> CheckpointDone:
    now = context.clock()
    with context.database.write() as connection:
        run, row = look(connection, reference, checkpoint_id)
        if row.trashed_until is None:
            _check_removable(context, connection, run, row, force)
            checkpoints.trash(connection, run.id, [row.id], now + DAY)
        meant = events.newest(connection)
    if row.trashed_until is not None:
        text = f"the checkpoint {said(row)} of {named(run)} was removed before; {_back(run, row)}"
        return _done(context, run, row, False, text)
    try:
        storage = storages.of_run(context.settings, run)
        storage.discard(storages.find_or_name(storage, row), now)
    except (WhistleError, OSError) as error:
        with context.database.write() as connection:
            if not _removed_since(connection, run, row, meant):
                checkpoints.update(connection, row.id, trashed_until=None, pinned=row.pinned)
        raise unreachable(run, error) from error
    with context.database.write() as connection:
        _record(connection, run, row, "checkpoint_removed", f"the checkpoint {said(row)} was removed", actor, now)
        orders = ingest.standing_orders(connection, run.id, with_protected=True)
    for attempt_id, order in orders:
        context.hub.ordered(attempt_id, order)
    text = f"the checkpoint {said(row)} of {named(run)} is removed; {_back(run, row)}"
    return _done(context, run, row, True, text)


def restore(context: Context, reference: str, checkpoint_id: str, actor: Actor) -> CheckpointDone:
    now = context.clock()
    with context.database.read() as connection:
        run, row = look(connection, reference, checkpoint_id)
    if row.trashed_until is None:
        return _done(context, run, row, False, f"the checkpoint {said(row)} of {named(run)} was not removed")
    if row.trashed_until <= now:
        raise NoCheckpoint(
            f"the checkpoint {said(row)} of {named(run)} could be had back until {iso(row.trashed_until)}"
        )
    try:
        storage = storages.of_run(context.settings, run)
        storage.recover(storages.find_or_name(storage, row))
    except Damaged as error:
        raise NoCheckpoint(f"the checkpoint {said(row)} of {named(run)} is gone: {error.text}") from error
    except (WhistleError, OSError) as error:
        raise unreachable(run, error) from error
    with context.database.write() as connection:
        # Pinned: the rule that removed it would do so again.
        checkpoints.update(connection, row.id, trashed_until=None, pinned=True)
        _record(connection, run, row, "checkpoint_restored", f"the checkpoint {said(row)} is back, pinned", actor, now)
        orders = ingest.standing_orders(connection, run.id, with_protected=True)
    for attempt_id, order in orders:
        context.hub.ordered(attempt_id, order)
    return _done(context, run, row, True, f"the checkpoint {said(row)} of {named(run)} is back, and pinned")


def said(row: Row) -> str:
    return f"of phase {row.phase} at step {row.step:,}"


def unreachable(run: Row, error: Exception) -> StorageUnreachable:
    text = error.text if isinstance(error, WhistleError) else str(error)
    return StorageUnreachable(
        f"the storage of {named(run)} did not do it: {text}", hint="nothing was changed; try again in a moment"
    )


def _removed_since(connection: sa.Connection, run: Row, row: Row, seq: int) -> bool:
    """By its runner, which has rules of its own to go by."""
    told = events.of_run(connection, run.id, after=seq, kinds=["checkpoints_removed"])
    return any(row.id in event.data.get("ids", ()) for event in told)


def _check_removable(context: Context, connection: sa.Connection, run: Row, row: Row, force: bool) -> None:
    if runs.children_using(connection, [row.path]):
        raise Refused(
            f"the checkpoint {said(row)} of {named(run)} is in use: an active run starts from it",
            hint="remove it once that run has ended",
        )
    rows = checkpoints.of_run(connection, run.id)
    good = [each.id for each in rows if each.phase == row.phase and checkpoints.eligible(each)]
    if run.state not in RUN_ENDED and good == [row.id]:
        # Else a lost machine would mean step 0, or a later phase without what it builds on.
        raise Refused(
            f"the checkpoint {said(row)} of {named(run)} is the only one that this active run has of that phase",
            hint=f"let it save another one first (whistle save {run.number}), or end the run",
        )
    in_place = not is_remote(storages.root(context.settings, run))  # from a bucket a phase has a copy of its own
    reader = _reader(connection, run, row.phase)
    if in_place and reader is not None and row.id in checkpoint_views.newest_ids(rows):
        raise Refused(
            f"the checkpoint {said(row)} of {named(run)} is in use: the phase {reader} reads it",
            hint="remove it once that phase has ended",
        )
    if force:
        return
    why = [
        word
        for word, so in (
            ("the newest: a resume would take it", row.id in checkpoint_views.newest_ids(rows)),
            ("the best by the metric that the spec names", row.id in checkpoint_views.best_ids(run, rows)),
            ("pinned", row.pinned),
        )
        if so
    ]
    if why:
        raise Refused(
            f"the checkpoint {said(row)} of {named(run)} is {' and '.join(why)}",
            hint="if you mean it: --force; it can be had back for a day",
        )


def _reader(connection: sa.Connection, run: Row, phase: str) -> str | None:
    """A phase that runs and builds upon this one."""
    rows = phases.of_runs(connection, [run.id])[run.id]
    above = {phase}
    while more := {row.name for row in rows if above & set(row.needs)} - above:
        above |= more
    running = (row.name for row in rows if row.state == PhaseState.RUNNING and row.name in above - {phase})
    return next(running, None)


def _back(run: Row, row: Row) -> str:
    return f"whistle checkpoints {run.number} restore --step {row.step} brings it back, for a day"


def _record(
    connection: sa.Connection, run: Row, row: Row, kind: str, text: str, actor: Actor, now: float, **data: Any
) -> None:
    values = {"id": row.id, "step": row.step, **data}
    events.add(connection, run.id, kind, text, at=now, actor=actor.name, phase=row.phase, data=values)


def _done(context: Context, run: Row, row: Row, changed: bool, text: str) -> CheckpointDone:
    if changed:
        context.hub.shown(run.id)
    with context.database.read() as connection:
        return CheckpointDone(checkpoint=view(connection, run, row.id), changed=changed, text=text)
