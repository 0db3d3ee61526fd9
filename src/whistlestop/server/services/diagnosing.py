"""A run is looked at: what is found is kept, what is gone is over, and its guards are asked. When, is in
scheduler/watching.py; what guards do is in guarding.py."""

import logging
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from whistlestop.diagnosis.evidence import Evidence
from whistlestop.diagnosis.findings import Cause, Finding
from whistlestop.diagnosis.judge import judge
from whistlestop.domain.errors import NoCheckpoint
from whistlestop.domain.guarding import GUARD
from whistlestop.domain.states import AttemptState
from whistlestop.server.services import cleaning, guarding, ingest, keeping
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.services.evidence import gather
from whistlestop.server.store import checkpoints, events, findings, phases, runs

log = logging.getLogger(__name__)
Row = sa.Row[Any]
OVER_AFTER = 60.0  # seconds: what comes and goes with the noise of a curve is one finding, not twenty
MOST_EVIDENCE = 20
MOST_GONE = 5  # removed checkpoints that turn out to be gone, until no other is tried
# What may be over while the attempt goes on; all others are about its end.
LIVE = frozenset(
    {
        Cause.NON_FINITE, Cause.DIVERGING, Cause.NOT_DECREASING, Cause.OVERFITTING, Cause.PLATEAUED, Cause.STUCK,
        Cause.SLOW_RANK, Cause.DATA_STARVED, Cause.THROTTLED, Cause.SAVES_FAIL,
    }
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """One phase as it was when it was looked at."""

    phase_id: str
    attempt: int
    ended: bool
    evidence: Evidence
    found: tuple[Finding, ...]


def due(context: Context) -> tuple[list[str], list[str]]:
    """Runs with an end that nobody has looked at, and runs that train."""
    with context.database.read() as connection:
        return findings.unjudged(connection), findings.training(connection)


def look(context: Context, run_id: str) -> None:
    with context.database.read() as connection:
        run = runs.by_id(connection, [run_id]).get(run_id)
        if run is None:
            return
        newest = phases.newest_attempts(connection, [run_id])
        rows = [row for row in phases.of_runs(connection, [run_id])[run_id] if _is_due(row, newest.get(row.id))]
        seen = [(row, newest[row.id], gather(context, connection, run, row)) for row in rows]
        news = {row.id: row.unjudged is not None or bool(findings.open_of_phase(connection, row.id)) for row in rows}
    for row, attempt, evidence in seen:
        found = judge(evidence)
        if found or news[row.id]:
            ended = attempt.state != AttemptState.STARTED
            _keep(context, run_id, Seen(row.id, attempt.number, ended, evidence, found))


def release(context: Context, run_id: str) -> None:
    """It could not be judged: what follows from its end is decided without."""
    with context.database.write() as connection:
        findings.release(connection, run_id)
    context.hub.changed(run_id)


def _is_due(phase: Row, attempt: Row | None) -> bool:
    """Before its program is up, the curves are those of the attempt before."""
    if attempt is None:
        return False
    trains = phase.kind == "train" and attempt.state == AttemptState.STARTED and attempt.up
    return trains or phase.unjudged is not None


def _keep(context: Context, run_id: str, seen: Seen) -> None:
    gone: frozenset[str] | None = frozenset()
    while True:
        try:
            return _keep_at_once(context, run_id, seen, gone)
        except guarding.Removed as needs:
            gone = _have_back(context, needs.checkpoint, gone or frozenset())


def _have_back(context: Context, checkpoint: Row, gone: frozenset[str]) -> frozenset[str] | None:
    """Those that a guard need not ask for again, for they are back or gone; None: it has to do without the others."""
    try:
        keeping.restore(context, checkpoint.run_id, checkpoint.id, Actor(GUARD, "admin"))
    except NoCheckpoint as error:
        log.warning("a guard does without a removed checkpoint: %s", error)
    except Exception as error:  # a storage's trouble must not keep a guard from acting
        log.warning("a guard does without a removed checkpoint: %s", error)
        with context.database.write() as connection:
            checkpoints.update(connection, checkpoint.id, pinned=True)  # it is had back once its storage answers
        return None
    gone |= {checkpoint.id}
    return gone if len(gone) < MOST_GONE else None


def _keep_at_once(context: Context, run_id: str, seen: Seen, gone: frozenset[str] | None) -> None:
    """All of it in one transaction."""
    orders: list[Any] = []
    with context.database.write() as connection:
        run = runs.by_id(connection, [run_id]).get(run_id)
        attempt = phases.newest_attempts(connection, [run_id]).get(seen.phase_id)
        if run is None or attempt is None:
            return
        phase = phases.get(connection, seen.phase_id)
        if phase.unjudged is not None and (seen.ended or phase.unjudged < attempt.number):
            phases.update(connection, phase.id, unjudged=None)
        acted = False
        if attempt.number == seen.attempt:  # else what was seen is old
            _write_down(context, connection, phase, seen)
            acted = guarding.act(context, connection, run, phase, attempt, seen.evidence, ended=seen.ended, gone=gone)
        if acted:
            # What was passed over does not count for its retention: the last good one is protected from now on.
            orders = ingest.standing_orders(connection, run_id, with_protected=True)
    for attempt_id, order in orders:
        context.hub.ordered(attempt_id, order)
    if acted or phase.unjudged is not None:
        context.hub.changed(run_id)
    else:
        context.hub.shown(run_id)


def _write_down(context: Context, connection: sa.Connection, phase: Row, seen: Seen) -> None:
    now = context.clock()
    known = {(row.cause, row.metric): row for row in findings.open_of_phase(connection, phase.id)}
    found = {(each.cause.value, cleaning.name(each.metric)): each for each in reversed(seen.found)}
    for key, row in known.items():
        if row.attempt != seen.attempt or key not in found:
            waits = row.attempt == seen.attempt and not seen.ended and row.cause != Cause.STUCK
            if not (waits and now - row.last_at < OVER_AFTER):
                _over(connection, phase, row, seen, now)
    for key in sorted(found, key=lambda key: seen.found.index(found[key])):
        before = known.get(key)
        values = _values(found[key]) | {"last_at": now}
        if before is not None and before.attempt == seen.attempt:
            findings.update(connection, before.id, **values)
        else:
            _new(connection, phase, found[key], seen, now, values)


def _values(found: Finding) -> dict[str, Any]:
    return {
        "confidence": float(found.confidence),
        "says": cleaning.text(found.says),
        "evidence": [cleaning.text(line, 8000) for line in found.evidence[:MOST_EVIDENCE]],
        "do": cleaning.text(found.what_to_do),
        "step": found.step,
        "rank": found.rank,
        "host": cleaning.text(found.host, 500),
    }


def _new(connection: sa.Connection, phase: Row, found: Finding, seen: Seen, now: float, values: dict[str, Any]) -> None:
    metric = cleaning.name(found.metric)
    findings.add(
        connection,
        run_id=phase.run_id,
        phase_id=phase.id,
        attempt=seen.attempt,
        cause=found.cause.value,
        metric=metric,
        first_at=now,
        **values,
    )
    data = {
        "cause": found.cause.value,
        "weight": found.weight.value,
        "confidence": values["confidence"],
        "metric": metric,
        "step": found.step,
        "rank": found.rank,
    }
    _tell(connection, phase, "finding", values["says"], seen.attempt, now, data)


def _over(connection: sa.Connection, phase: Row, row: Row, seen: Seen, now: float) -> None:
    findings.update(connection, row.id, over_at=now)
    if row.cause in LIVE:
        data = {"cause": row.cause, "metric": row.metric, "step": row.step, "rank": row.rank}
        with_it = "the attempt is over" if seen.ended else f"attempt {seen.attempt} goes on without it"
        text = f"over: {row.says}" if row.attempt == seen.attempt and not seen.ended else f"{with_it}: {row.says}"
        _tell(connection, phase, "finding_over", text, row.attempt, now, data)


def _tell(
    connection: sa.Connection, phase: Row, kind: str, text: str, attempt: int, now: float, data: dict[str, Any]
) -> None:
    events.add(
        connection,
        phase.run_id,
        kind,
        text,
        at=now,
        scope="instance",
        phase=phase.name,
        attempt=attempt,
        data=data,
    )
