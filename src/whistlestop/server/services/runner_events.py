"""What a runner's own words change: stages, checkpoints, the ladder, and the one proof of an attempt's end."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from signal import Signals
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.clock import clipped, iso
from whistlestop.domain.reasons import OUTCOMES, STOP_SAYS, EndReason, StopReason
from whistlestop.domain.states import Stage
from whistlestop.server.services import cleaning, steered
from whistlestop.server.services.context import Context
from whistlestop.server.store import checkpoints, events, phases
from whistlestop.wire.frames import RunnerEvent, decode_event

Row = sa.Row[Any]
STAGES = {
    "preparing": Stage.PREPARING,
    "program_started": Stage.STARTING,
    "attached": Stage.STARTING,
    "training": Stage.TRAINING,
}


class Decides(IntEnum):
    """What is to be done once the words are committed. More than one of them: the highest."""

    NOTHING = 0
    SCHEDULER = 1  # it has something to decide
    OVER = 2  # so it has, and the attempt has ended


def apply(context: Context, connection: sa.Connection, attempt: Row, bodies: Sequence[bytes]) -> Decides:
    phase = phases.get(connection, attempt.phase_id)
    decides = Decides.NOTHING
    for body in bodies:
        said = _clean(decode_event(body))
        _record(connection, attempt, phase, said)
        match said.kind:
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
            case "rung":
                phases.update_attempt(connection, attempt.id, stage=Stage.STOPPING, ladder=_ladder(said))
            case "checkpoint":
                _checkpoint(connection, attempt, phase, said)
            case "checkpoint_set_aside":
                checkpoints.judge(connection, attempt.run_id, str(said.data.get("path")), verified=False, at=said.at)
            case "checkpoints_removed":
                _removed(connection, attempt, said)
            case "dropped":
                phases.update_attempt(connection, attempt.id, dropped=int(said.data.get("lines", 0)))
            case "ended":
                _ended(context, connection, attempt, phase, said)
                decides = Decides.OVER
    return decides


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
        kind if kind in ("evaluation", "summary", "epoch") else "program",
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
    """The attempt is over: the first end counts, its slots are free, its meter stops.

    Who calls this tells the hub after the commit: until then the newest progress in memory is what is shown, and
    what is written if the commit fails and is tried again.
    """
    return phases.end_attempt(
        connection, attempt.id, OUTCOMES[reason].state, reason=reason, text=text, ended_at=at, ladder=None, **values
    )


def _ended(context: Context, connection: sa.Connection, attempt: Row, phase: Row, said: RunnerEvent) -> None:
    data = said.data
    reason = EndReason(data["reason"]) if data.get("reason") in set(EndReason) else EndReason.RUNNER_LOST
    newest = context.hub.progress.get(attempt.id)
    kept = attempt.progress or {}
    if newest is not None:
        kept = {name: getattr(newest, name) for name in newest.__struct_fields__}
    gone = _number(data.get("gone_at"), said.at)
    # Nothing ran, so nothing is charged.
    free = reason is EndReason.STORAGE_AWAY and not attempt.up
    last = data.get("last_step") if isinstance(data.get("last_step"), int) else None
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
        phases.update(connection, phase.id, stop_reasons=_with_request(given, phase, reason))


def _text(kind: str, said: Mapping[str, Any]) -> str:
    if kind == "evaluation":
        return f"evaluation at step {said.get('step')}"
    if kind == "epoch":
        return f"epoch {said.get('epoch')} began at step {said.get('step')}"
    return str(said.get("text") or kind)[:2000]


def _with_request(given: list[dict[str, Any]], phase: Row, reason: EndReason) -> list[dict[str, Any]]:
    """A person's stop is always among the reasons of a phase that was stopped."""
    if phase.kind != "train":
        return []
    manual = {"reason": StopReason.MANUAL.value, "decisive": True, "text": f"manually stopped by {phase.stop_by}"}
    if phase.stop_seq and reason is EndReason.STOPPED:
        if any(item["reason"] == StopReason.MANUAL for item in given):
            return [{**item, "text": manual["text"]} if item["reason"] == StopReason.MANUAL else item for item in given]
        decisive = not any(item["decisive"] for item in given)
        return [*given, {**manual, "decisive": decisive}]
    return given


def _checkpoint(connection: sa.Connection, attempt: Row, phase: Row, said: RunnerEvent) -> None:
    data = said.data
    checkpoints.add(
        connection,
        id=str(data["id"]),
        run_id=attempt.run_id,
        phase=phase.name,
        step=int(data["step"]),
        attempt=int(data.get("attempt", attempt.number)),
        path=str(data["path"]),
        bytes=int(data.get("bytes", 0)),
        committed_at=_number(data.get("at"), said.at),
        verified=bool(data.get("verified", True)),
        metrics=dict(data.get("metrics") or {}),
        healthy=data.get("healthy") is not False,
        block_seconds=_measured(data.get("block_seconds")),
        upload_seconds=_measured(data.get("upload_seconds")),
        written=data["written"] if isinstance(data.get("written"), int) else None,
        why=str(data.get("why") or "")[:200],
        verified_at=_number(data.get("at"), said.at) if data.get("verified", True) else None,
    )
    saves = data.get("saves")
    steered.saved(
        connection,
        attempt.phase_id,
        step=int(data["step"]),
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


def _measured(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value >= 0 else None


def _number(value: object, default: float) -> float:
    """A time as a program or a runner has said it."""
    return clipped(float(value)) if isinstance(value, int | float) else default
