"""Intent first: attempts are written down, many in one transaction, before anything is started under their ids."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.capacity.queue import Placement
from whistlestop.domain.ids import new_id
from whistlestop.domain.states import RUN_ENDED, PhaseState, Stage
from whistlestop.domain.stops import Stop
from whistlestop.server.services import accounts, budgets, launches
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import checkpoints, events, ledger, phases, placing, runs
from whistlestop.wire.spec import PhaseKind

Row = sa.Row[Any]
Started = tuple[str, str]  # an attempt's id and its token


def intend(context: Context, connection: sa.Connection, batch: Sequence[Placement]) -> list[Started]:
    """Those that are still wanted. Nothing that was read before this transaction is taken for granted."""
    known = runs.by_id(connection, {each.waiting.run_id for each in batch})
    waits = phases.by_id(connection, {each.waiting.phase_id for each in batch})
    paying = {row.project for row in ledger.all_budgets(connection, None)}
    purse = budgets.Purse(context, connection)
    now, begun = context.clock(), Counter[str]()
    started: list[Started] = []
    made: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    for placement in batch:
        run, phase = known.get(placement.waiting.run_id), waits.get(placement.waiting.phase_id)
        if run is None or phase is None or phase.state != PhaseState.PENDING:
            continue
        if run.request != Stop.NONE or run.state in RUN_ENDED:
            continue
        if _spent(context, connection, run, phase, placement, purse, paying=run.project in paying):
            continue
        begun[run.id] += 1
        number = run.attempts + begun[run.id]
        token, attempt_id = accounts.new_token(), new_id("a")
        started.append((attempt_id, token))
        made.append(_attempt(placement, run, phase, attempt_id, number, token, now))
        said += _events(placement, run, phase, number, now)
    if made:
        placing.begin(connection, made, now)
        events.add_all(connection, said)
    return started


def _attempt(
    placement: Placement, run: Row, phase: Row, attempt_id: str, number: int, token: str, now: float
) -> dict[str, Any]:
    return {
        "id": attempt_id,
        "run_id": run.id,
        "phase_id": phase.id,
        "number": number,
        "stage": Stage.ALLOCATING,
        "pool": placement.pool,
        "host": placement.host or None,
        "slots": list(placement.slots),
        "price": placement.price,
        "market": placement.market,
        "token_hash": accounts.fingerprint(token),
        "started_at": now,
        "queued_at": phase.ready_at if phase.ready_at is not None else run.created_at,
        "why_here": placement.why,
        "nodes": spec_of(run.spec).phase(phase.name).nodes,
        "fresh": phase.from_start,  # once: what it saves from now on counts again
    }


def _events(placement: Placement, run: Row, phase: Row, number: int, now: float) -> list[dict[str, Any]]:
    slots = f"{len(placement.slots)} slot{'s' if len(placement.slots) != 1 else ''}"
    host = f", host {placement.host}" if placement.host else ""
    why = f": {placement.why}" if placement.why else ""
    text = f"phase {phase.name}: attempt {number} gets {slots} of pool {placement.pool}{host}{why}"
    data = {"pool": placement.pool, "host": placement.host, "slots": list(placement.slots), "why": placement.why}
    told = [("placed", text, data)]
    if placement.waiting.escalates:
        told.insert(0, ("escalated", placement.waiting.directed, {}))
    if placement.left:
        told.insert(0, ("pool_left", placement.left, {}))
    same = {"run_id": run.id, "at": now, "phase": phase.name, "attempt": number}
    return [{**same, "kind": kind, "text": text, "data": data} for kind, text, data in told]


def _spent(
    context: Context,
    connection: sa.Connection,
    run: Row,
    phase: Row,
    placement: Placement,
    purse: budgets.Purse,
    *,
    paying: bool,
) -> bool:
    """No budget, time or deadline left: the phase ends before it costs anything, with its checkpoint if any."""
    spec = spec_of(run.spec).phase(phase.name)
    if spec.time_limit is None and run.budget is None and run.deadline_at is None and not paying:
        return False
    slots, price = len(placement.slots), placement.price
    left, why = launches.remaining(context, connection, run, phase, spec, slots, price, purse)
    if left is None or left > 0:
        return False
    text = {
        "time_limit": "its time limit is used up",
        "budget_exhausted": "its budget, or that of its project, is used up",
        "deadline": "the run's deadline has passed",
    }[why]
    keeps = spec.kind is PhaseKind.TRAIN and checkpoints.newest(connection, run.id, phase.name) is not None
    state = PhaseState.COMPLETED if keeps else PhaseState.FAILED
    said = [{"reason": why, "decisive": True, "text": text}] if keeps else []
    phases.move(connection, phase.id, state, reason=text, stop_reasons=said)
    told = f"phase {phase.name} is {state.value}: {text}"
    events.add(connection, run.id, f"phase_{state.value}", told, at=context.clock(), phase=phase.name)
    context.hub.changed(run.id)
    return True
