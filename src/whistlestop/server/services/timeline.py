"""A run's timeline: evaluations, ends of epochs, and the stages of every start. Read only, at a bounded cost."""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.clock import iso
from whistlestop.domain.states import AttemptState, PhaseState, RunState
from whistlestop.server.services import views
from whistlestop.server.services.context import Context
from whistlestop.server.store import marks, phases
from whistlestop.wire.spec import PhaseKind
from whistlestop.wire.timeline import PhaseTimelineView, StageName, StageView, TimelineView

Row = sa.Row[Any]
MOST_MARKS = 500  # a screen has no room for more
MOST_ATTEMPTS = 100  # of one phase that are looked at for marks: the newest ones
MOST_JUMPS = 20  # of these, attempts whose many marks are chosen evenly, at a few queries each
MOST_STARTS = 20  # of one phase whose stages are told: the newest ones
STAGE_EVENTS = {"preparing": "preparing", "program_started": "starting", "training": "training"}


def timeline(context: Context, connection: sa.Connection, run: Row) -> TimelineView:
    rows = phases.of_runs(connection, [run.id]).get(run.id, [])
    attempts = phases.attempts_of_runs(connection, [run.id]).get(run.id, [])
    by_phase = {row.id: [attempt for attempt in attempts if attempt.phase_id == row.id] for row in rows}
    resumes = marks.times(connection, run.id, "resume_requested")
    by_name = {row.name: row for row in rows}
    views_of_phases = []
    for row in rows:
        mine = by_phase[row.id]
        needed = [attempt for name in row.needs for attempt in by_phase[by_name[name].id]]
        begins = [run.created_at, *resumes, *_ends(needed), *_ends(mine)]
        ready = all(by_name[name].state == PhaseState.COMPLETED for name in row.needs)
        waits = row.state == PhaseState.PENDING and ready and run.state == RunState.QUEUED
        stages = _stages(connection, run, row, mine[-MOST_STARTS:], begins)
        if waits:
            stages.append(StageView(stage="queued", at=iso(max(begins))))
        views_of_phases.append(_phase(context, connection, run, row, mine, stages))
    return TimelineView(phases=views_of_phases)


def _phase(
    context: Context,
    connection: sa.Connection,
    run: Row,
    phase: Row,
    attempts: Sequence[Row],
    stages: list[StageView],
) -> PhaseTimelineView:
    said = [views.progress_of(context, attempt) for attempt in reversed(attempts[-MOST_ATTEMPTS:])]
    total = next((progress.total for progress in said if progress.total), None)
    per_epoch = next((progress.batches for progress in said if progress.batches), None)
    reached = said[0].step if said else 0
    began = _steps(connection, run.id, attempts, "epoch")
    return PhaseTimelineView(
        phase=phase.name,
        total=total,
        per_epoch=per_epoch,
        epochs=epoch_ends(began, per_epoch, total or reached),
        evaluations=thin(_steps(connection, run.id, attempts, "evaluation")),
        stages=stages,
    )


def _steps(connection: sa.Connection, run_id: str, attempts: Sequence[Row], kind: str) -> list[int]:
    """Where events of this kind lie. What an attempt did behind the step from which a later one resumed is left out."""
    kept: list[tuple[Row, float]] = []
    end = float("inf")
    for attempt in reversed(attempts[-MOST_ATTEMPTS:]):
        if attempt.up:
            kept.append((attempt, end))
            end = min(end, attempt.resumed_from or 0)
        if end <= 0:
            break
    found: set[int] = set()
    most = max(20, 2 * MOST_MARKS // max(1, len(kept)))
    several = marks.of_attempts(connection, run_id, [attempt.number for attempt, _ in kept], kind, most=most + 1)
    jumps = MOST_JUMPS
    for attempt, cut in kept:
        rows = several.get(attempt.number, [])
        if len(rows) > most and jumps:  # an older one then shows its first ones
            rows, jumps = marks.of_kind(connection, run_id, attempt.number, kind, most=most), jumps - 1
        for row in rows:
            step = row.data.get("step")
            if isinstance(step, int) and 0 <= step <= cut:
                found.add(step)
    return sorted(found)


def epoch_ends(began: Sequence[int], per_epoch: int | None, until: int) -> list[int]:
    """An epoch ends where the next one began, as the program said; behind that, and where it says nothing, by their
    length."""
    real = [step for step in began if step > 0]
    if not per_epoch:
        return thin(real)
    last = real[-1] if real else 0
    room = MOST_MARKS if not real else MOST_MARKS // 2
    count = max(0, (until - last) // per_epoch)
    every = -(-count // room) if count else 1  # of many, every third or tenth: what is left is still regular
    ahead = list(range(last + per_epoch * every, until + 1, per_epoch * every))
    return [*thin(real, MOST_MARKS - len(ahead)), *ahead]


def thin(steps: Sequence[int], most: int = MOST_MARKS) -> list[int]:
    """At most so many, evenly chosen, with the first and the last."""
    if len(steps) <= most:
        return list(steps)
    return [steps[at * (len(steps) - 1) // (most - 1)] for at in range(most)]


def _stages(
    connection: sa.Connection, run: Row, phase: Row, attempts: Sequence[Row], begins: Iterable[float]
) -> list[StageView]:
    if not attempts:
        return []
    said = marks.first_of_kinds(connection, run.id, STAGE_EVENTS, [attempt.number for attempt in attempts])
    known = sorted(begins)
    found: list[StageView] = []
    for attempt in attempts:
        queued = max((at for at in known if at <= attempt.started_at), default=attempt.started_at)
        times: list[tuple[StageName, float]] = [("queued", queued), ("allocating", attempt.started_at)]
        if (at := said.get((attempt.number, "preparing"))) is not None:
            times.append(("preparing", at))
        if (at := said.get((attempt.number, "program_started"))) is not None:
            times.append(("training" if phase.kind == PhaseKind.TASK else "starting", at))
        at = said.get((attempt.number, "training"))
        if at is not None and phase.kind != PhaseKind.TASK:
            times.append(("training", at))
        found += _lengths(attempt, times)
    return found


def _lengths(attempt: Row, times: Sequence[tuple[StageName, float]]) -> Iterable[StageView]:
    """Each stage lasts until the next one. The runner's clock may be another than ours: nothing lasts less than 0."""
    alive = attempt.state == AttemptState.STARTED
    ends = [at for _, at in times[1:]] + [None if alive else attempt.ended_at]
    for (stage, at), end in zip(times, ends, strict=True):
        seconds = None if end is None else round(max(0.0, end - at), 3)
        yield StageView(attempt=attempt.number, stage=stage, at=iso(at), seconds=seconds)


def _ends(attempts: Iterable[Row]) -> list[float]:
    return [attempt.ended_at for attempt in attempts if attempt.ended_at is not None]
