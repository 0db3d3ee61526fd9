"""What every request to a run has in common: it is judged and recorded in one transaction, then handed on."""

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.clock import iso
from whistlestop.domain.errors import NotFound, RunEnded
from whistlestop.domain.states import RUN_ENDED, RunState
from whistlestop.domain.stops import Stop
from whistlestop.server.services import ingest, views
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import events, runs
from whistlestop.wire.api import Done

Row = sa.Row[Any]
Said = tuple[bool, str]  # changed, sentence
Verb = Callable[[Context, sa.Connection, Row, Actor, float], Said]


def one(context: Context, reference: str, actor: Actor, verb: Verb) -> Done:
    """Recorded in one transaction, then handed on to the runners, then shown."""
    with context.database.write() as connection:
        run = runs.resolve(connection, reference)
        changed, text = verb(context, connection, run, actor, context.clock())
        orders = ingest.standing_orders(connection, run.id) if changed else []
    for attempt_id, order in orders:  # first of all: somebody's GPU waits for it
        context.hub.ordered(attempt_id, order)
    if changed:
        context.hub.changed(run.id)
    with context.database.read() as connection:
        view = views.run_view(context, connection, runs.get(connection, run.id))
    return Done(run=view, changed=changed, text=text)


def check_active(run: Row, verb: str) -> None:
    if run.state in RUN_ENDED:
        when = f" at {iso(run.ended_at)}" if run.ended_at else ""
        what = "was killed" if run.state == RunState.KILLED else f"has {run.state}"
        raise RunEnded(
            f"{named(run)} {what}{when}: it can't be {verb} any more",
            hint=f"a new run can go on from its checkpoint, if it has one (whistle continue {run.number}), "
            f"or from the start (whistle rerun {run.number})",
        )
    if run.request == Stop.KILL and verb != "killed":
        raise RunEnded(f"{named(run)} is being killed: it can't be {verb} any more")


def phase_named(rows: Sequence[Row], run: Row, name: str) -> Row:
    for row in rows:
        if row.name == name:
            return row
    near = difflib.get_close_matches(name, [row.name for row in rows], 1)
    hint = f"did you mean {near[0]}?" if near else f"its phases: {', '.join(row.name for row in rows)}"
    raise NotFound(f"{named(run)} has no phase {name}", hint=hint)


def record(
    connection: sa.Connection,
    run: Row,
    kind: str,
    text: str,
    actor: Actor,
    now: float,
    note: str,
    *,
    phase: str | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """The event, and the note with the run's own, where it can be searched and edited."""
    said = f"{text}: {note}" if note else text
    events.add(
        connection, run.id, kind, said, at=now, actor=actor.name, phase=phase, data={**(data or {}), "note": note}
    )
    note_run(connection, run, note)


def note_run(connection: sa.Connection, run: Row, note: str) -> None:
    if note:
        runs.update(connection, run.id, note=f"{run.note}\n{note}" if run.note else note)


def named(run: Row) -> str:
    return f"run #{run.number} ({run.name})"
