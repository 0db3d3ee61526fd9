"""Rows turned into what people see. Nothing here changes anything."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.capacity.choose import Candidate, Wants, candidates
from whistlestop.capacity.pools import Market, Pool, hosts_of
from whistlestop.capacity.room import Room
from whistlestop.capacity.waits import explain
from whistlestop.domain import credits, estimates
from whistlestop.domain.clock import iso
from whistlestop.domain.credits import Charge
from whistlestop.domain.estimates import Left, Pace
from whistlestop.domain.ledger import Kind
from whistlestop.domain.reasons import OUTCOMES, STOP_SAYS, EndReason, StopReason
from whistlestop.domain.states import RUN_ENDED, AttemptState, PhaseState, RunState
from whistlestop.domain.stops import Stop
from whistlestop.server.services import accounting, changes, checkpoint_views, demands, finding_views
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import checkpoints, phases, pools, runs
from whistlestop.wire.api import (
    AttemptView,
    ChangeView,
    CodeView,
    CreditsView,
    EventView,
    FindingView,
    LadderView,
    ParamView,
    ParentView,
    PhaseView,
    ProgressView,
    QueueView,
    RunView,
    SavesView,
    StopReasonView,
)

Row = sa.Row[Any]
CUT_SHORT = (StopReason.TIME_LIMIT, StopReason.BUDGET, StopReason.DEADLINE)


def run_views(
    context: Context, connection: sa.Connection, rows: Sequence[Row], *, whole: bool = False, queue: bool = True
) -> list[RunView]:
    """A few queries for any number of runs. `whole` adds the spec's text."""
    ids = [row.id for row in rows]
    phase_rows, attempt_rows = phases.of_runs(connection, ids), phases.attempts_of_runs(connection, ids)
    places = _places(context, connection, rows) if queue else {}
    parents = runs.numbers(connection, {row.parent_run for row in rows if row.parent_run})
    running = [row.id for row in rows if row.state == RunState.RUNNING]
    saved = checkpoints.newest_of_runs(connection, running) if running else {}
    found = finding_views.of_runs(connection, ids, whole=whole)
    return [
        _run_view(
            context,
            row,
            phase_rows.get(row.id, []),
            attempt_rows.get(row.id, []),
            saved,
            places.get(row.id),
            _parent(row, parents),
            found,
            whole,
        )
        for row in rows
    ]


def run_view(context: Context, connection: sa.Connection, row: Row, *, whole: bool = True) -> RunView:
    return run_views(context, connection, [row], whole=whole)[0]


def event_view(row: Row) -> EventView:
    return EventView(
        seq=row.seq,
        at=iso(row.at),
        scope=row.scope,
        kind=row.kind,
        actor=row.actor,
        text=row.text,
        run=row.run_id,
        phase=row.phase,
        attempt=row.attempt,
        data=row.data,
    )


def pool_facts(connection: sa.Connection, live: Sequence[Row] | None = None) -> list[Pool]:
    """`live`: the attempts that hold slots, where they are known already."""
    taken = pools.taken_slots(connection) if live is None else _taken(live)
    return [
        Pool(
            row.name,
            row.slots,
            row.price,
            frozenset(taken.get(row.name, ())),
            engine=row.engine,
            provider=row.provider,
            region=row.region,
            kind=row.kind,
            market=Market(row.market),
            rank=row.rank,
            hosts=hosts_of(row.hosts, row.slots),
        )
        for row in pools.all_pools(connection)
    ]


def _taken(live: Sequence[Row]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for row in live:
        found[row.pool].update(row.slots)
    return found


def progress_of(context: Context, attempt: Row | None) -> ProgressView:
    """What the runner said last: from memory while it is connected, else as it was stored."""
    if attempt is None:
        return ProgressView()
    fresh = context.hub.progress.get(attempt.id) if attempt.state == AttemptState.STARTED else None
    said = {field: getattr(fresh, field) for field in fresh.__struct_fields__} if fresh else (attempt.progress or {})
    step, total = int(said.get("step", 0)), int(said.get("total", 0)) or None
    if attempt.last_step is not None and attempt.last_step > step:
        step = attempt.last_step
    return ProgressView(
        step=step,
        total=total,
        epoch=int(said.get("epoch", 0)),
        batch=int(said.get("batch", 0)),
        batches=int(said.get("batches", 0)) or None,
        fraction=min(1.0, step / total) if total else None,
        stage=str(said.get("stage") or attempt.stage) if attempt.state == AttemptState.STARTED else None,
    )


def seconds_left(context: Context, attempt: Row | None) -> float | None:
    left = left_of(context, attempt)
    return left.likely if left is not None else None


def left_of(context: Context, attempt: Row | None) -> Left | None:
    """Seconds by the pace of this attempt's own loop."""
    if attempt is None or attempt.state != AttemptState.STARTED:
        return None
    said = context.hub.progress.get(attempt.id)
    if said is None or not said.total or not said.loop_started_at:
        return None
    return estimates.seconds_left(pace_of(context, attempt.id), said.total - said.step)


def pace_of(context: Context, attempt_id: str) -> Pace | None:
    """As this server has seen it, from the begin of its loop on."""
    known, said = context.hub.paces.get(attempt_id), context.hub.progress.get(attempt_id)
    if known is not None or said is None or not said.loop_started_at:
        return known
    return Pace().told(said.resumed_step, said.loop_started_at).told(said.step, said.progress_at)


def charges(attempts: Iterable[Row]) -> list[Charge]:
    return [Charge(len(row.slots), row.price, row.started_at, row.ended_at) for row in attempts]


def credits_of(context: Context, run: Row, attempts: Sequence[Row], now: float) -> CreditsView:
    spent = credits.used(charges(attempts), now)
    if run.state == RunState.KILLED:
        return CreditsView(used=spent, estimated=run.estimate, saved=credits.saved(run.estimate, spent))
    live = [row for row in attempts if row.state == AttemptState.STARTED]
    if not live:
        return CreditsView(used=spent, estimated=spent if run.ended_at is not None else None)
    rates = [len(row.slots) * row.price for row in live]
    lefts = [left_of(context, row) for row in live]
    paired = list(zip(rates, lefts, strict=True))
    return CreditsView(
        used=spent,
        estimated=credits.estimated(spent, [(rate, left.likely if left else None) for rate, left in paired]),
        low=credits.estimated(spent, [(rate, left.low if left else None) for rate, left in paired]),
        high=credits.estimated(spent, [(rate, left.high if left else None) for rate, left in paired]),
    )


def with_kinds(context: Context, connection: sa.Connection, view: RunView) -> RunView:
    """Where the credits went: the lines of what has ended, and what runs as it stands now. Not on a verb's way: of a
    live attempt every save is looked at."""
    found = accounting.spent_on(context, connection, view.id)
    cost = view.credits.model_copy(update={"redone": found.get(Kind.REDONE, 0.0), "kinds": found})
    return view.model_copy(update={"credits": cost})


def elapsed(attempts: Iterable[Row], now: float) -> float:
    """Seconds in which at least one attempt was alive."""
    total, reached = 0.0, 0.0
    for row in sorted(attempts, key=lambda row: row.started_at):
        end = now if row.ended_at is None else row.ended_at
        total += max(0.0, end - max(row.started_at, reached))
        reached = max(reached, end)
    return total


def _run_view(
    context: Context,
    run: Row,
    rows: list[Row],
    attempts: list[Row],
    saved: Mapping[tuple[str, str], Row],
    place: QueueView | None,
    parent: ParentView | None,
    found: Mapping[str, list[FindingView]],
    whole: bool,
) -> RunView:
    now = context.clock()
    by_phase = {row.id: [attempt for attempt in attempts if attempt.phase_id == row.id] for row in rows}
    current = current_phase(rows)
    newest = by_phase[current.id][-1] if current is not None and by_phase[current.id] else None
    return RunView(
        id=run.id,
        number=run.number,
        name=run.name,
        project=run.project,
        status=run.state,
        reason=run.reason or _cut_short(run, rows),
        recovering=run.recovering,
        requested=_requested(run),
        phase=current.name if current is not None else None,
        progress=progress_of(context, newest),
        elapsed_s=round(elapsed(attempts, now), 3),
        eta_s=seconds_left(context, newest),
        credits=credits_of(context, run, attempts, now),
        priority=run.priority,
        created_at=iso(run.created_at),
        started_at=_maybe(run.started_at),
        ended_at=_maybe(run.ended_at),
        created_by=run.created_by,
        note=run.note,
        parent=parent,
        queue=place,
        workflow=run.workflow,
        code=CodeView(bundle=run.bundle, in_place=run.in_place, commit=run.commit, dirty=run.dirty),
        phases=[
            _phase_view(context, row, by_phase[row.id], saved.get((run.id, row.name)), found.get(row.id, []), now)
            for row in rows
        ],
        cause=finding_views.headline(found.get(current.id, [])) if run.state == RunState.FAILED and current else None,
        spec=run.spec if whole else None,
        environment=_environment(run) if whole else {},
    )


def _cut_short(run: Row, rows: Sequence[Row]) -> str | None:
    """A completed run whose result is not what it was meant to be: a success to the pipeline, and to be told apart."""
    if run.state != RunState.COMPLETED:
        return None
    said = [each for row in rows for each in row.stop_reasons if each.get("decisive")]
    return next((STOP_SAYS[StopReason(each["reason"])] for each in said if each["reason"] in CUT_SHORT), None)


def _environment(run: Row) -> dict[str, list[str]]:
    """Names only: values may be nobody's business."""
    names = {phase.name: sorted(phase.env) for phase in spec_of(run.spec).phases}
    return {"": sorted(run.env), **{name: found for name, found in names.items() if found}}


def _phase_view(
    context: Context, row: Row, attempts: list[Row], saved: Row | None, found: list[FindingView], now: float
) -> PhaseView:
    newest = attempts[-1] if attempts else None
    progress = progress_of(context, newest)
    alive = newest is not None and newest.state == AttemptState.STARTED
    return PhaseView(
        name=row.name,
        kind=row.kind,
        status=row.state,
        reason=row.reason,
        needs=row.needs,
        stop_requested=row.stop_seq > 0,
        stop_reasons=[_stop_reason(said) for said in row.stop_reasons],
        elapsed_s=round(elapsed(attempts, now), 3),
        epoch=progress.epoch,
        progress=progress,
        ladder=LadderView(**newest.ladder) if newest is not None and alive and newest.ladder else None,
        retry_at=iso(row.not_before) if row.state == PhaseState.PENDING and row.not_before > now else None,
        attempts=[_attempt_view(context, attempt, now) for attempt in attempts],
        params={name: ParamView(**said) for name, said in changes.declared(row.params).items()},
        steering=[_change_view(said) for said in row.steering],
        saves=SavesView(requested=row.save_seq, done=row.saves_done, step=row.saved_step),
        at_risk=checkpoint_views.at_risk(context, row, newest, saved, progress.step, now),
        findings=found,
    )


def _change_view(said: dict[str, Any]) -> ChangeView:
    shown = {name: value for name, value in said.items() if name in ChangeView.model_fields}
    return ChangeView(**{**shown, "at": iso(said["at"])})


def _attempt_view(context: Context, row: Row, now: float) -> AttemptView:
    alive = row.state == AttemptState.STARTED
    fresh = context.hub.progress.get(row.id) if alive else None
    heard = max(row.seen_at or row.started_at, fresh.at if fresh else 0.0)
    waits = row.pending if alive and row.seen_at is None else ""
    return AttemptView(
        id=row.id,
        number=row.number,
        status=row.state,
        reason=row.reason,
        text=row.text or (OUTCOMES[EndReason(row.reason)].says if row.reason else None),
        pool=row.pool,
        host=row.host,
        slots=row.slots,
        stage=(fresh.stage if fresh else row.stage) if alive else None,
        started_at=iso(row.started_at),
        ended_at=_maybe(row.ended_at),
        up=row.up,
        resumed_from=row.resumed_from,
        last_step=progress_of(context, row).step if alive else row.last_step,
        exit_code=row.exit_code,
        signal=row.signal,
        credits=credits.used(charges([row]), now),
        reachable=not alive or bool(waits) or now - heard <= context.settings.unreachable_after,
        heard_at=iso(heard) if alive else None,
        why_here=row.why_here,
        leaves_at=_maybe(row.preempt_at) if alive else None,
        leaves_why=row.preempt_why if alive else "",
        waits_for=waits,
    )


def _stop_reason(said: dict[str, Any]) -> StopReasonView:
    reason = StopReason(said["reason"])
    return StopReasonView(
        reason=reason, decisive=bool(said.get("decisive")), text=said.get("text") or STOP_SAYS[reason]
    )


def _places(context: Context, connection: sa.Connection, rows: Sequence[Row]) -> dict[str, QueueView]:
    waiting = [row for row in rows if row.state == RunState.QUEUED]
    if not waiting:
        return {}
    there = pool_facts(connection)
    shut, now = context.hub.shut, context.clock()
    room, known = Room(there, shut), dict[Wants, list[Candidate]]()
    phase_rows = phases.of_runs(connection, [row.id for row in waiting])
    found = {}
    for row, position in zip(waiting, runs.positions(connection, waiting), strict=True):
        phase = current_phase(phase_rows.get(row.id, []))
        wants = demands.of(row.spec, phase.name, phase.slots).wants if phase is not None else Wants()
        if wants not in known:
            known[wants] = candidates(wants, there, context.hub.records)
        held = context.hub.held.get(phase.id) if phase is not None else None
        says = held or explain(wants, known[wants], room, position=position, shut=shut)
        if phase is not None and phase.not_before > now:
            says = f"its next try at {iso(phase.not_before)}, then {says}"
        found[row.id] = QueueView(position=position, waits_for=says)
    return found


def current_phase(rows: Sequence[Row]) -> Row | None:
    """The phase that runs, else the next one, else the last."""
    for state in (PhaseState.RUNNING, PhaseState.PENDING):
        for row in rows:
            if row.state == state:
                return row
    failed = [row for row in rows if row.state in (PhaseState.FAILED, PhaseState.KILLED)]
    return failed[0] if failed else (rows[-1] if rows else None)


def _parent(run: Row, numbers: dict[str, int]) -> ParentView | None:
    if not run.parent_run:
        return None
    number = numbers.get(run.parent_run)
    return ParentView(run=run.parent_run, number=number, step=run.parent_step, relation=run.relation)


def _requested(run: Row) -> Any:
    if run.state in RUN_ENDED or run.state == RunState.WAITING:
        return None
    return {Stop.PAUSE: "pause", Stop.KILL: "kill"}.get(Stop(run.request))


def _maybe(seconds: float | None) -> str | None:
    return None if seconds is None else iso(seconds)
