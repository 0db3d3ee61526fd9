"""Asking an attempt's runners where its program is. They answer by an event; nothing is stored of the question but that
it was asked."""

from typing import Any

import sqlalchemy as sa

from whistlestop.domain.errors import Refused
from whistlestop.domain.ids import new_id
from whistlestop.domain.states import AttemptState, PhaseState
from whistlestop.server.services.asking import check_active, named, phase_named
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import events, phases, runs
from whistlestop.wire.frames import Stacks
from whistlestop.wire.stacks import StacksAsked, StacksBody

Row = sa.Row[Any]


def ask(context: Context, reference: str, body: StacksBody, actor: Actor) -> StacksAsked:
    asked = new_id("k")
    with context.database.write() as connection:
        run = runs.resolve(connection, reference)
        check_active(run, "looked into")
        phase, attempt = _subject(connection, run, body.phase)
        if not context.hub.hears(attempt.id):
            raise Refused(f"the runner of {named(run)} can't be reached now", hint="try again once it is: whistle show")
        text = f"the stacks of attempt {attempt.number} were asked for"
        seq = events.add(connection, run.id, "stacks_requested", text, at=context.clock(), actor=actor.name,
                         phase=phase.name, attempt=attempt.number, data={"asked": asked})  # fmt: skip
    context.hub.ask_stacks(attempt.id, range(attempt.nodes), Stacks(asked))
    context.hub.shown(run.id)
    return StacksAsked(
        run=run.id,
        phase=phase.name,
        attempt=attempt.number,
        asked=asked,
        nodes=attempt.nodes,
        after=seq,
        text=f"{named(run)}: {text}",
    )


def _subject(connection: sa.Connection, run: Row, name: str | None) -> tuple[Row, Row]:
    rows = phases.of_runs(connection, [run.id])[run.id]
    newest = phases.newest_attempts(connection, [run.id])
    for phase in [phase_named(rows, run, name)] if name else rows:
        attempt = newest.get(phase.id)
        if phase.state == PhaseState.RUNNING and attempt is not None and attempt.state == AttemptState.STARTED:
            return phase, attempt
    raise Refused(
        f"phase {name} does not run now" if name else f"{named(run)} does not run now",
        hint=f"there are stacks while its program runs: whistle show {run.number}",
    )
