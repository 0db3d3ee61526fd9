"""How an attempt spends its time, by what its runner told: written into the ledger with its end, worked out before."""

from typing import Any

import sqlalchemy as sa

from whistlestop.domain import ledger as domain
from whistlestop.domain.clock import measured
from whistlestop.domain.ledger import Facts, Piece, Save
from whistlestop.domain.reasons import OUTCOMES, EndReason
from whistlestop.domain.states import Stage
from whistlestop.domain.stops import Stop
from whistlestop.server.services.context import Context
from whistlestop.server.store import ledger
from whistlestop.wire.frames import Progress
from whistlestop.wire.spec import PhaseKind

Row = sa.Row[Any]
IMPORTING = 60.0  # who has run for so long without the SDK has no loop that could be seen
BUSY = frozenset({Stage.SAVING.value, Stage.EVALUATING.value})
SLICE = 200  # old attempts written down at a time


def close(connection: sa.Connection, attempt_id: str) -> None:
    """It has ended: its lines are written, in the same transaction."""
    row = ledger.attempt(connection, attempt_id)
    ledger.write(connection, row, pieces(connection, row, None, row.ended_at))


def catch_up(context: Context) -> int:
    """Attempts that ended before there was a ledger; what is not known of them counts as starting."""
    written, last = 0, ""
    while True:
        with context.database.read() as connection:
            found = ledger.unwritten(connection, SLICE, after=last)
        if not found:
            return written
        with context.database.write() as connection:
            for attempt_id in found:
                close(connection, attempt_id)
        written, last = written + len(found), found[-1]


def spent_on(context: Context, connection: sa.Connection, run_id: str) -> dict[str, float]:
    """Credits of one run by kind of time, with what runs up to now."""
    found = ledger.of_run(connection, run_id)
    for row in ledger.live(connection, run_id=run_id):
        for piece in pieces(connection, row, context.hub.progress.get(row.id), context.clock()):
            line = ledger.line(row, piece)
            found[piece.kind] = found.get(piece.kind, 0.0) + line["credits"]
    return {kind.value: found[kind] for kind in domain.Kind if found.get(kind)}


def pieces(connection: sa.Connection, row: Row, newest: Progress | None, now: float) -> list[Piece]:
    """`row`: from ledger.attempt or ledger.live; `newest`: what it said last, if it was not written down yet."""
    return domain.split(_facts(connection, row, newest, now))


def _facts(connection: sa.Connection, row: Row, newest: Progress | None, now: float) -> Facts:
    said = row.progress or {} if newest is None else {name: getattr(newest, name) for name in newest.__struct_fields__}
    seen = ledger.seen(connection, row.run_id, row.number)
    ended = row.ended_at if row.ended_at is not None else now
    completes = row.reason is not None and OUTCOMES[EndReason(row.reason)].completes
    program = next((each.at for each in seen if each.kind == "program_started"), None)
    attached = any(each.kind == "attached" for each in seen)
    # A program without the SDK has no loop that we could see; one that is still being imported will have.
    plain = not attached and program is not None and not row.loop_at and (completes or ended - program > IMPORTING)
    counts = row.kind == PhaseKind.TRAIN and not plain
    first = row.resumed_from if row.resumed_from is not None else int(said.get("resumed_step") or 0)
    last = max(row.last_step or 0, int(said.get("step") or 0))
    known = ledger.steps_before(connection, row.phase_id, row.number) if row.number > 1 and last > first else 0
    return Facts(
        started_at=row.started_at,
        ended_at=ended,
        queued_at=row.queued_at,
        loop_at=row.loop_at or said.get("loop_started_at") or None if counts else program,
        counts=counts,
        steps=last - first,
        known_steps=known - first,
        progress_at=said.get("progress_at") or None,
        busy=completes or said.get("stage") in BUSY,
        saves=[
            Save(each.at - (measured(each.upload) or 0.0), block)
            for each in seen
            if each.kind == "checkpoint" and (block := measured(each.block)) is not None
        ],
        stopping_at=_stopping_at(row),
    )


def _stopping_at(row: Row) -> float | None:
    """The first that was asked of it, or that it heard of."""
    asked = [row.stopping_at, row.preempt_asked_at]
    if row.request > Stop.NONE:
        asked.append(row.request_at)
    if row.stop_seq:
        asked.append(row.stop_at)
    return min((at for at in asked if at is not None and at >= row.started_at), default=None)
