"""A bulk request judged without being done: which runs it would touch, and which would be refused, with why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.errors import NotFound, Refused
from whistlestop.domain.states import RunState
from whistlestop.domain.stops import Stop
from whistlestop.server.services import verbs
from whistlestop.server.services.asking import check_active
from whistlestop.server.services.context import Context
from whistlestop.server.store import phases, runs
from whistlestop.wire.api import BulkBody
from whistlestop.wire.pages import JudgedItem, Preview

Row = sa.Row[Any]
MOST = 500  # judged one by one; the rest is only counted


@dataclass(frozen=True)
class Known:
    """Read at once for all: five hundred runs are a few queries."""

    rows: Mapping[str, Row]  # by reference
    phases: Mapping[str, list[Row]]
    continued: frozenset[str]  # active runs go on from these


def preview(context: Context, body: BulkBody) -> Preview:
    wanted = runs.Filter(tuple(body.status), body.project, body.search, body.workflow)
    if not body.runs and wanted.empty and not body.everything:
        raise Refused("no run was named and no filter given", hint="name runs, give a filter, or say everything")
    verbs.check_phases(body)
    with context.database.read() as connection:
        references = list(dict.fromkeys(body.runs)) if body.runs else runs.ids(connection, wanted)
        judged = references[:MOST]
        rows = runs.by_id(connection, judged)
        below = phases.of_runs(connection, list(rows)) if body.verb in ("stop", "resume") else {}
        known = Known(rows, below, frozenset(runs.continued(connection) if body.verb == "delete" else ()))
        items = [_judged(connection, reference, body, known) for reference in judged]
    return Preview(items=items, total=len(references), refused=sum(not item.ok for item in items))


def _judged(connection: sa.Connection, reference: str, body: BulkBody, known: Known) -> JudgedItem:
    try:
        run = known.rows.get(reference) or runs.resolve(connection, reference)
    except (NotFound, Refused) as error:
        return JudgedItem(run=reference, number=0, name=reference, ok=False, code=error.code, text=error.text)
    phase: Row | None = None
    try:
        if body.verb == "stop":
            phase = verbs.stoppable(connection, run, body.phases.get(run.id), known.phases.get(run.id))
            text = f"phase {phase.name} was already asked to stop" if phase.stop_seq else f"stops phase {phase.name}"
        else:
            text = _would(connection, run, body.verb, known)
    except (NotFound, Refused) as error:
        return JudgedItem(run=run.id, number=run.number, name=run.name, ok=False, code=error.code, text=error.text)
    about = phase.name if phase is not None else None
    return JudgedItem(run=run.id, number=run.number, name=run.name, ok=True, text=text, phase=about)


def _would(connection: sa.Connection, run: Row, verb: str, known: Known) -> str:
    if verb == "delete":
        verbs.deletable(connection, run, continued=run.id in known.continued)
        return "is deleted with all it stored"
    if verb == "resume":
        return (
            "goes back into the queue"
            if verbs.resumable(connection, run, False, known.phases.get(run.id))
            else "is not paused"
        )
    check_active(run, "paused" if verb == "pause" else "killed")
    if verb == "pause":
        paused = run.state == RunState.WAITING or run.request == Stop.PAUSE
        return "is paused already" if paused else "saves and leaves its slots"
    if run.request == Stop.KILL:
        return "is being killed already"
    return "is killed; its checkpoints go, too" if verb == "cancel" else "is killed; its checkpoints stay"
