"""Checkpoints as people see them: which is the newest, which the best, and what is not in any of them yet."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.clock import iso
from whistlestop.domain.states import AttemptState, PhaseState
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import checkpoints
from whistlestop.wire.api import AtRiskView, CheckpointView
from whistlestop.wire.spec import CheckpointSpec, PhaseKind

Row = sa.Row[Any]


def of_run(connection: sa.Connection, run: Row, *, trashed: bool = False) -> list[CheckpointView]:
    rows = checkpoints.of_run(connection, run.id, trashed=trashed)
    newest, best = newest_ids(rows), best_ids(run, rows)
    return [view(row, newest=row.id in newest, best=row.id in best) for row in rows]


def view(row: Row, *, newest: bool = False, best: bool = False) -> CheckpointView:
    return CheckpointView(
        id=row.id,
        phase=row.phase,
        step=row.step,
        attempt=row.attempt,
        committed_at=iso(row.committed_at),
        bytes=row.bytes,
        verified=row.verified,
        verified_at=None if row.verified_at is None else iso(row.verified_at),
        pinned=row.pinned,
        healthy=row.healthy,
        newest=newest,
        best=best,
        trashed_until=None if row.trashed_until is None else iso(row.trashed_until),
        why=row.why,
        block_seconds=row.block_seconds,
        upload_seconds=row.upload_seconds,
        written=row.written,
        metrics=row.metrics,
        path=row.path,
    )


def newest_ids(rows: Iterable[Row]) -> set[str]:
    """Of each phase the one that a resume would take. `rows`: newest first."""
    found: dict[str, str] = {}
    for row in rows:
        if checkpoints.eligible(row):
            found.setdefault(row.phase, row.id)
    return set(found.values())


def best_ids(run: Row, rows: Sequence[Row]) -> set[str]:
    """By the metric that the spec names; none where it names none."""
    found = set[str]()
    specs = {phase.name: phase.checkpoint for phase in spec_of(run.spec).phases}
    for name in {row.phase for row in rows} & specs.keys():
        good = [row for row in rows if row.phase == name and checkpoints.eligible(row)]
        found |= {row.id for row in _best(specs[name], good)}
    return found


def _best(spec: CheckpointSpec, rows: Sequence[Row]) -> list[Row]:
    if not spec.by:
        return []
    sign = -1.0 if spec.mode == "max" else 1.0
    known = [(value, row) for row in rows if (value := _value(row.metrics, spec.by)) is not None]
    ranked = sorted(known, key=lambda pair: sign * pair[0])  # of equal ones the newest, as retention has it
    return [row for _, row in ranked[: max(1, spec.best)]]


def _value(metrics: Mapping[str, Any], name: str) -> float | None:
    value = metrics.get(name)
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable and value is not None else None


def at_risk(
    context: Context, phase: Row, attempt: Row | None, newest: Row | None, step: int, now: float
) -> AtRiskView | None:
    """What would be lost if the capacity went this moment. None where nothing trains."""
    if phase.kind != PhaseKind.TRAIN or phase.state != PhaseState.RUNNING:
        return None
    if attempt is None or attempt.state != AttemptState.STARTED:
        return None
    if newest is not None and attempt.fresh and newest.attempt < attempt.number:
        newest = None  # it began anew: what was saved before is not where it would go on
    said = context.hub.progress.get(attempt.id)
    began = said.loop_started_at if said is not None and said.loop_started_at else attempt.started_at
    from_step = newest.step if newest is not None else attempt.resumed_from or 0
    since = began
    if newest is not None and newest.attempt == attempt.number:
        # It holds what was done when it was taken, not when it had become durable.
        since = max(began, newest.committed_at - (newest.upload_seconds or 0.0))
    seconds = max(0.0, now - since)
    rate = len(attempt.slots) * attempt.price
    return AtRiskView(
        steps=max(0, step - from_step),
        seconds=round(seconds, 3),
        credits=seconds * rate / 3600.0,
        step=newest.step if newest is not None else None,
        from_step=from_step,
        since=iso(since),
        per_hour=rate,
    )
