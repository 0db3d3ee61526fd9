"""What a runner's own words change: stages, checkpoints, the ladder, and the one proof of an attempt's end."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from signal import Signals
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.checkpoints import passed_over
from whistlestop.domain.clock import clipped, iso, measured
from whistlestop.domain.credits import BUDGET_OF
from whistlestop.domain.gang import NodeEnd
from whistlestop.domain.guarding import is_guards, stop_reason
from whistlestop.domain.reasons import OUTCOMES, STOP_SAYS, EndReason, StopReason
from whistlestop.domain.states import Stage
from whistlestop.server.services import accounting, cleaning, gangs, steered
from whistlestop.server.services.context import Context
from whistlestop.server.store import checkpoints, events, findings, phases
from whistlestop.wire.frames import RunnerEvent, Stacks, decode_event
from whistlestop.wire.pools import SOURCES

Row = sa.Row[Any]
GOING = 900.0  # seconds for which a notice keeps others from a host, at the most
# Ends that tell nothing about the program.
ASKED_FOR = (EndReason.PAUSED, EndReason.KILLED, EndReason.PREEMPTED, EndReason.GUARDED)
LOOK_AT = ("stuck", "going_again")  # what a diagnosis looks at, at once
STAGES = {
    "preparing": Stage.PREPARING,
    "program_started": Stage.STARTING,
    "attached": Stage.STARTING,
    "training": Stage.TRAINING,
}


class Decides(IntEnum):
    """What is to be done once the words are committed. More than one of them: the highest."""

    NOTHING = 0
    LOOK = 1  # a diagnosis is due
    SCHEDULER = 2  # so it is, and the scheduler has something to decide
    ORDERS = 3  # so it has, and what stands for the runners of this attempt has changed
    OVER = 4  # so it has, and the attempt has ended


def apply(
    context: Context, connection: sa.Connection, attempt: Row, bodies: Sequence[bytes], *, node: int = 0
) -> Decides:
    """Of several nodes the first speaks for all, but for an end, for capacity that goes, and for damage."""
    phase = phases.get(connection, attempt.phase_id)
    decides = Decides.NOTHING
    for body in bodies:
        said = _of_node(_clean(decode_event(body)), attempt, node)
        _record(connection, attempt, phase, said)
        if said.kind in LOOK_AT:
            decides = max(decides, Decides.LOOK)
        match said.kind:
            case "ended" if attempt.nodes > 1:
                decides = max(decides, _node_ended(context, connection, attempt, phase, said, node))
            case "notice" if attempt.nodes > 1 and said.data.get("final"):
                _goes(context, attempt, said)
                decides = max(decides, _all_leave(context, connection, attempt, said, node))
            case "checkpoint_set_aside":  # each node looks at its own ranks' part
                checkpoints.judge(connection, attempt.run_id, str(said.data.get("path")), verified=False, at=said.at)
            case _ if node:
                continue
            case "program_started":
                phases.update_attempt(
                    connection,
                    attempt.id,
                    up=True,
                    stage=Stage.STARTING,
                    resumed_from=said.data.get("restored_step"),
                    seen_at=said.at,
                )
                decides = max(decides, Decides.SCHEDULER)
            case "preparing" | "attached" | "training":
                phases.update_attempt(connection, attempt.id, stage=STAGES[said.kind], seen_at=said.at)
                if said.kind == "training":
                    phases.mark(connection, attempt.id, "loop_at", said.at)
            case "stuck" if attempt.nodes > 1:  # of the first node, which judges; whom it waits for may be on another
                context.hub.ask_stacks(attempt.id, range(1, attempt.nodes), Stacks("stuck"))
            case "order_seen":
                if said.data.get("stop"):
                    phases.mark(connection, attempt.id, "stopping_at", said.at)
            case "notice":
                if said.data.get("final"):
                    phases.mark(connection, attempt.id, "stopping_at", said.at)
                    _goes(context, attempt, said)
            case "rung":
                phases.update_attempt(connection, attempt.id, stage=Stage.STOPPING, ladder=_ladder(said))
                phases.mark(connection, attempt.id, "stopping_at", said.at)
            case "checkpoint":
                _checkpoint(connection, attempt, phase, said)
                if said.data.get("attempt", attempt.number) == attempt.number:
                    phases.mark(connection, attempt.id, "committed_at", _number(said.data.get("at"), said.at))
            case "checkpoints_removed":
                _removed(connection, attempt, said)
            case "dropped":
                phases.update_attempt(connection, attempt.id, dropped=int(said.data.get("lines", 0)))
            case "ended":
                _ended(context, connection, attempt, phase, said)
                decides = Decides.OVER
    return decides


def _of_node(said: RunnerEvent, attempt: Row, node: int) -> RunnerEvent:
    if attempt.nodes == 1:
        return said
    return RunnerEvent(said.at, said.kind, f"node {node}: {said.text}", {**said.data, "node": node})


def _all_leave(context: Context, connection: sa.Connection, attempt: Row, said: RunnerEvent, node: int) -> Decides:
    """What one node has notice of holds for all of them: they can't go on without it."""
    phases.mark(connection, attempt.id, "stopping_at", said.at)
    until = _number(said.data.get("deadline"), context.clock())
    if said.data.get("source") != "whistlestop" and phases.notice(connection, attempt.id, until=until, why=said.text):
        return Decides.ORDERS
    return Decides.NOTHING


def _node_ended(
    context: Context, connection: sa.Connection, attempt: Row, phase: Row, said: RunnerEvent, node: int
) -> Decides:
    at = max(attempt.started_at, min(_number(said.data.get("gone_at"), said.at), context.clock()))
    found = gangs.ended(connection, attempt, node, _reason(said.data), said.text, at=at, data=said.data)
    if found.decisive is None:
        return Decides.ORDERS if found.leave else Decides.NOTHING
    end_gang(context, connection, attempt, phase, found.decisive, found.rows)
    return Decides.OVER


def end_gang(
    context: Context,
    connection: sa.Connection,
    attempt: Row,
    phase: Row,
    decisive: NodeEnd,
    rows: Mapping[int, Row],
) -> None:
    """All nodes have ended: the decisive one says of what, the first one how far they were."""
    row, first = rows[decisive.node], dict(rows[0].data or {})
    told = {"exit_code": None, "signal": None} | {
        name: value for name, value in (row.data or {}).items() if name in ("exit_code", "signal")
    }
    last = max(end.ended_at for end in rows.values())
    data = {**first, **told, "reason": decisive.reason.value, "gone_at": last}
    if row.host and not OUTCOMES[decisive.reason].completes:
        phases.update_attempt(connection, attempt.id, host=row.host)  # what speaks against a host is said of this one
    _ended(context, connection, attempt, phase, RunnerEvent(last, "ended", row.text, data))


def _goes(context: Context, attempt: Row, said: RunnerEvent) -> None:
    """Who starts there before it is gone hears the same notice. A runner's word shuts nothing for long."""
    if said.data.get("source") in SOURCES:
        now = context.clock()
        until = min(_number(said.data.get("deadline"), now), now + GOING)
        context.hub.goes((attempt.pool, attempt.host or ""), until)


def _clean(said: RunnerEvent) -> RunnerEvent:
    return RunnerEvent(said.at, cleaning.text(said.kind, 100), cleaning.text(said.text), cleaning.data(said.data))


def from_program(context: Context, connection: sa.Connection, attempt: Row, said: Mapping[str, Any]) -> None:
    """What the SDK tells in words. Checkpoints are not taken from here: the runner reports those it has verified."""
    kind = str(said.get("kind", "message"))
    if kind == "stop_reasons":
        phases.update(connection, attempt.phase_id, stop_reasons=_reasons(said.get("reasons")))
        return
    if kind in ("checkpoint", "staged") or steered.hear(context, connection, attempt, said):
        return
    phase = phases.get(connection, attempt.phase_id)
    events.add(
        connection,
        attempt.run_id,
        kind if kind in ("evaluation", "summary", "epoch", "straggler") else "program",
        _text(kind, said),
        at=_number(said.get("at"), context.clock()),
        actor="program",
        scope="instance",
        phase=phase.name,
        attempt=attempt.number,
        data=dict(said),
    )


def end(
    connection: sa.Connection,
    attempt: Row,
    reason: EndReason,
    text: str,
    *,
    at: float,
    **values: Any,
) -> bool:
    """The attempt is over: the first end counts, its slots are free, its meter stops, its lines are in the ledger.

    Who calls this tells the hub after the commit: until then the newest progress in memory is what is shown, and
    what is written if the commit fails and is tried again.
    """
    if reason is EndReason.RUNNER_LOST and attempt.preempt_at is not None:
        reason = EndReason.PREEMPTED  # we took its capacity back, and with it its runner
    if reason is EndReason.PREEMPTED and is_guards(attempt.preempt_by):
        reason = EndReason.GUARDED
    ended = phases.end_attempt(
        connection, attempt.id, OUTCOMES[reason].state, reason=reason, text=text, ended_at=at, ladder=None, **values
    )
    if ended:
        accounting.close(connection, attempt.id)
        if OUTCOMES[reason].completes:
            _well_after_all(connection, attempt, at)
        elif reason not in ASKED_FOR:
            phases.update(connection, attempt.phase_id, unjudged=attempt.number)
    return ended


def _well_after_all(connection: sa.Connection, attempt: Row, at: float) -> None:
    """What was found of the attempts before is over with a good end: nobody looks at it again."""
    for row in findings.open_of_phase(connection, attempt.phase_id):
        if row.attempt != attempt.number:
            findings.update(connection, row.id, over_at=at)
            events.add(
                connection, attempt.run_id, "finding_over", f"attempt {attempt.number} went on without it: {row.says}",
                at=at, scope="instance", phase=phases.get(connection, attempt.phase_id).name, attempt=row.attempt,
                data={"cause": row.cause, "metric": row.metric, "step": row.step, "rank": row.rank},
            )  # fmt: skip


def reached(context: Context, connection: sa.Connection, attempt: Row) -> int | None:
    """How far an attempt was, where nobody tells any more: by its last progress, and by what it has saved."""
    newest = context.hub.progress.get(attempt.id)
    saved = checkpoints.last_step(connection, attempt.run_id, attempt.number)
    known = (attempt.last_step, newest.step if newest is not None else None, saved)
    return max((step for step in known if step is not None), default=None)


def _ended(context: Context, connection: sa.Connection, attempt: Row, phase: Row, said: RunnerEvent) -> None:
    attempt = phases.attempt(connection, attempt.id) or attempt  # a link's row is as old as the link
    data = said.data
    reason = _reason(data)
    newest = context.hub.progress.get(attempt.id)
    kept = attempt.progress or {}
    if newest is not None:
        kept = {name: getattr(newest, name) for name in newest.__struct_fields__}
    gone = _number(data.get("gone_at"), said.at)
    # Nothing ran, so nothing is charged.
    free = reason is EndReason.STORAGE_AWAY and not attempt.up
    last = data.get("last_step") if isinstance(data.get("last_step"), int) else reached(context, connection, attempt)
    done = end(
        connection,
        attempt,
        reason,
        said.text,
        at=attempt.started_at if free else max(attempt.started_at, min(gone, context.clock())),
        exit_code=data.get("exit_code") if isinstance(data.get("exit_code"), int) else None,
        signal=_signal(data.get("signal")),
        last_step=last,
        progress={**kept, "step": last or 0, "total": data.get("total") or kept.get("total", 0),
                  "epoch": data.get("epoch") or kept.get("epoch", 0),
                  "batches": data.get("batches") or kept.get("batches", 0),
                  "saved_step": data.get("saved_step", kept.get("saved_step"))},
    )  # fmt: skip
    if done and free and attempt.fresh:
        phases.update(connection, phase.id, from_start=True)  # what was allowed has not happened yet
    if done and OUTCOMES[reason].completes:
        steered.missed(context, connection, attempt, phase)
        given = _reasons(data.get("stop_reasons")) or list(phase.stop_reasons)
        words = findings.last_words(connection, phase.id) if is_guards(phase.stop_by) else ""
        phases.update(connection, phase.id, stop_reasons=_with_request(given, phase, reason, words))


def _reason(data: Mapping[str, Any]) -> EndReason:
    return EndReason(data["reason"]) if data.get("reason") in set(EndReason) else EndReason.RUNNER_LOST


def _text(kind: str, said: Mapping[str, Any]) -> str:
    if kind == "evaluation":
        return f"evaluation at step {said.get('step')}"
    if kind == "epoch":
        return f"epoch {said.get('epoch')} began at step {said.get('step')}"
    return str(said.get("text") or kind)[:2000]


def _with_request(given: list[dict[str, Any]], phase: Row, reason: EndReason, guards: str = "") -> list[dict[str, Any]]:
    """A person's stop is always among the reasons of a phase that was stopped. `guards`: the words of a guard's."""
    if phase.kind != "train":
        return []
    if phase.stop_by.startswith(BUDGET_OF) or is_guards(phase.stop_by):
        why = stop_reason(phase.stop_by)
        text = f"{phase.stop_by} is used up" if why is StopReason.BUDGET else guards or f"stopped by {phase.stop_by}"
        first = {"reason": why.value, "decisive": True, "text": text}
        others = [item for item in given if item["reason"] not in (why, StopReason.MANUAL)]
        return [first, *({**item, "decisive": False} for item in others)] if reason is EndReason.STOPPED else given
    manual = {"reason": StopReason.MANUAL.value, "decisive": True, "text": f"manually stopped by {phase.stop_by}"}
    if phase.stop_seq and reason is EndReason.STOPPED:
        if any(item["reason"] == StopReason.MANUAL for item in given):
            return [{**item, "text": manual["text"]} if item["reason"] == StopReason.MANUAL else item for item in given]
        decisive = not any(item["decisive"] for item in given)
        return [*given, {**manual, "decisive": decisive}]
    return given


def _checkpoint(connection: sa.Connection, attempt: Row, phase: Row, said: RunnerEvent) -> None:
    data = said.data
    step, made_by = int(data["step"]), int(data.get("attempt", attempt.number))
    checkpoints.add(
        connection,
        id=str(data["id"]),
        run_id=attempt.run_id,
        phase=phase.name,
        step=step,
        attempt=made_by,
        path=str(data["path"]),
        bytes=int(data.get("bytes", 0)),
        committed_at=_number(data.get("at"), said.at),
        verified=bool(data.get("verified", True)),
        metrics=dict(data.get("metrics") or {}),
        healthy=data.get("healthy") is not False and not passed_over(phase.passed_over, attempt=made_by, step=step),
        block_seconds=measured(data.get("block_seconds")),
        upload_seconds=measured(data.get("upload_seconds")),
        written=data["written"] if isinstance(data.get("written"), int) else None,
        why=str(data.get("why") or "")[:200],
        verified_at=_number(data.get("at"), said.at) if data.get("verified", True) else None,
    )
    saves = data.get("saves")
    steered.saved(
        connection,
        attempt.phase_id,
        step=step,
        at=_number(data.get("at"), said.at),
        saves=saves if isinstance(saves, int) else None,
    )


def _removed(connection: sa.Connection, attempt: Row, said: RunnerEvent) -> None:
    """For good where nobody says until when they can be had back."""
    ids = [str(item) for item in said.data.get("ids", [])]
    until = said.data.get("until")
    if isinstance(until, int | float):
        known = checkpoints.of_run(connection, attempt.run_id)
        checkpoints.trash(connection, attempt.run_id, ids, _number(until, said.at))
        for row in known:
            if row.pinned and row.id in ids:  # it had not heard of that: the sweeper has them back
                checkpoints.update(connection, row.id, pinned=True)
    else:
        checkpoints.remove(connection, attempt.run_id, ids)


def _record(connection: sa.Connection, attempt: Row, phase: Row, said: RunnerEvent) -> None:
    events.add(
        connection,
        attempt.run_id,
        said.kind,
        said.text[:4000],
        at=said.at,
        actor="runner",
        scope="instance",
        phase=phase.name,
        attempt=attempt.number,
        data=said.data,
    )


def _ladder(said: RunnerEvent) -> dict[str, Any]:
    wait = said.data.get("next_in_s")
    return {
        "rung": str(said.data.get("rung", "")),
        "next_rung": said.data.get("next_rung"),
        "next_at": iso(said.at + float(wait)) if wait is not None else None,
    }


def _reasons(given: object) -> list[dict[str, Any]]:
    """Known reasons only, each with its words; exactly one decisive."""
    found: list[dict[str, Any]] = []
    for item in given if isinstance(given, list) else []:
        if not isinstance(item, dict):
            continue
        name = str(item.get("reason"))
        reason = StopReason(name) if name in set(StopReason) else StopReason.UNKNOWN
        text = str(item.get("text") or STOP_SAYS[reason])[:500]
        found.append({"reason": reason.value, "decisive": bool(item.get("decisive")), "text": text})
    if found and not any(item["decisive"] for item in found):
        found[0]["decisive"] = True
    return found


def _signal(value: object) -> str | None:
    """SIGKILL, not 9: people read it."""
    if not isinstance(value, int):
        return str(value) if value else None
    try:
        return Signals(value).name
    except ValueError:
        return f"signal {value}"


def _number(value: object, default: float) -> float:
    """A time as a program or a runner has said it."""
    return clipped(float(value)) if isinstance(value, int | float) else default
