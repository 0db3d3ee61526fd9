"""When a phase saves next, and whether its last save failed: from what its spec says and what its saves have cost."""

import math
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.clock import iso
from whistlestop.domain.states import AttemptState, PhaseState
from whistlestop.sdk.cadence import read_cadence
from whistlestop.sdk.costs import Measured
from whistlestop.server.services.context import Context
from whistlestop.server.services.launches import preemption_rate
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import checkpoints, events, phases
from whistlestop.wire.checkpoints import FailedSave, NextSave, SavingView
from whistlestop.wire.frames import Progress
from whistlestop.wire.spec import PhaseKind

Row = sa.Row[Any]
LOOK_BACK = 200  # events


def of_run(context: Context, connection: sa.Connection, run: Row) -> list[SavingView]:
    """Of each phase that trains, or has a save that failed and that none has followed."""
    rows = [row for row in phases.of_runs(connection, [run.id])[run.id] if row.kind == PhaseKind.TRAIN]
    attempts = phases.attempts_of_runs(connection, [run.id]).get(run.id, [])
    failed = _failed(connection, run.id)
    found = []
    for row in rows:
        own = [attempt for attempt in attempts if attempt.phase_id == row.id]
        coming = _next(context, connection, run, row, own[-1]) if own else None
        if coming is not None or row.name in failed:
            found.append(SavingView(phase=row.name, next=coming, failed=failed.get(row.name)))
    return found


def _failed(connection: sa.Connection, run_id: str) -> dict[str, FailedSave]:
    told = events.of_run(connection, run_id, kinds=["save_failed", "checkpoint"], newest=True, limit=LOOK_BACK)
    found: dict[str, FailedSave] = {}
    for event in told:
        if event.kind == "checkpoint":
            found.pop(event.phase, None)
        else:
            step = event.data.get("step")
            found[event.phase] = FailedSave(
                at=iso(event.at), step=step if isinstance(step, int) else None, text=event.text
            )
    return found


def _next(context: Context, connection: sa.Connection, run: Row, phase: Row, attempt: Row) -> NextSave | None:
    said = context.hub.progress.get(attempt.id)
    training = phase.state == PhaseState.RUNNING and attempt.state == AttemptState.STARTED
    if said is None or not said.loop_started_at or not training:
        return None
    every = spec_of(run.spec).phase(phase.name).checkpoint.every
    if not every:
        return None  # the program's own word counts, if it has one
    saved = checkpoints.of_run(connection, run.id, phase.name, trashed=True)
    rate = preemption_rate(phases.of_pool(connection, attempt.pool), context.clock())
    return due(every, said, saved, attempt.number, rate, context.clock())


def due(
    every: Sequence[str], said: Progress, saved: Sequence[Row], attempt: int, rate: float, now: float
) -> NextSave | None:
    """`saved`: the checkpoints of the phase, removed ones too."""
    cadence = read_cadence(every)
    measured = Measured(rate)
    began = said.loop_started_at
    for row in sorted(saved, key=lambda row: float(row.committed_at)):
        if row.block_seconds is not None:
            measured.saved(row.step, row.block_seconds)
        if row.upload_seconds is not None:
            measured.durable(row.step, row.upload_seconds)
        if row.attempt == attempt:  # the next one is due so long after this one was taken
            began = max(began, row.committed_at - (row.upload_seconds or 0.0))
    costs = measured.costs(age=max(0.0, now - said.loop_started_at))
    step = cadence.next_step(said.step, per_epoch=said.batches or None)
    at = cadence.next_time(began, costs=costs)
    if math.isinf(step) and math.isinf(at):
        return None
    interval = cadence.interval(costs)
    why = interval.why if interval is not None else f"every {' or '.join(every)}"
    return NextSave(
        step=None if math.isinf(step) else int(min(step, said.total or step)),
        at=None if math.isinf(at) else iso(at),
        why=why,
    )
