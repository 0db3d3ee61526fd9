"""What becomes of requests on the way: the program's own account of changes, parameters and saves, stored once."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from whistlestop.server.services import changes
from whistlestop.server.services.context import Context
from whistlestop.server.store import events, phases

Row = sa.Row[Any]
MOST_PARAMS = 1000


def hear(context: Context, connection: sa.Connection, attempt: Row, said: Mapping[str, Any]) -> bool:
    """True: it was about steering, and everything is done about it."""
    match said:
        case {"kind": "steered", "seq": int(seq), "step": int(step)}:
            _applied(context, connection, attempt, seq, step)
        case {"kind": "steering_refused", "seq": int(seq)}:
            _refused(context, connection, attempt, seq, str(said.get("text") or "the program refused it")[:1000])
        case {"kind": "params", "params": dict(params)}:
            _declared(context, connection, attempt, params)
        case _:
            return False
    return True


def saved(connection: sa.Connection, phase_id: str, *, step: int, at: float, saves: int | None) -> None:
    """A checkpoint that was committed after the request answers it, whatever made the program save. `saves`: so many
    requests had been handed to the program by then, as its runner has counted: our clocks may differ."""
    phase = phases.get(connection, phase_id)
    if saves is None:  # a runner of before
        saves = phase.save_seq if phase.save_at is not None and at >= phase.save_at else 0
    done = min(saves, phase.save_seq)
    if done > phase.saves_done:
        phases.update(connection, phase_id, saves_done=done, saved_step=step)


def missed(context: Context, connection: sa.Connection, attempt: Row, phase: Row) -> None:
    """The phase is complete: what was not applied by now never will be, and whoever asked for it is told."""
    for change in changes.pending(phase.steering):
        name = "the end" if change["name"] == changes.TOTAL else change["name"].removeprefix(changes.PARAM)
        text = f"{name} = {change['value']!r}, asked by {change['actor']}, came too late: the phase had ended"
        _tell(context, connection, attempt, phase, "steering_missed", text, change)


def _applied(context: Context, connection: sa.Connection, attempt: Row, seq: int, step: int) -> None:
    phase = phases.get(connection, attempt.phase_id)
    change = _find(phase, seq)
    if change is None or change["step"] is not None or step < 0:
        return  # a replay: the first step counts
    phases.update(connection, phase.id, steering=changes.with_news(phase.steering, seq, step=step, refused=None))
    text = f"{changes.in_words(change)} at step {step}, asked by {change['actor']}"
    _tell(context, connection, attempt, phase, "steered", text, {**change, "step": step})


def _refused(context: Context, connection: sa.Connection, attempt: Row, seq: int, why: str) -> None:
    phase = phases.get(connection, attempt.phase_id)
    change = _find(phase, seq)
    if change is None or change["refused"] is not None:
        return
    # It may have been told as applied: a value is judged when its parameter is declared, which can be later.
    change = {**change, "step": None}
    phases.update(connection, phase.id, steering=changes.with_news(phase.steering, seq, step=None, refused=why))
    name = "more steps" if change["name"] == changes.TOTAL else change["name"].removeprefix(changes.PARAM)
    text = f"the program did not take {name} = {change['value']!r}, asked by {change['actor']}: {why}"
    _tell(context, connection, attempt, phase, "steering_refused", text, {**change, "refused": why})


def _declared(context: Context, connection: sa.Connection, attempt: Row, given: Mapping[str, Any]) -> None:
    phase = phases.get(connection, attempt.phase_id)
    before = changes.declared(phase.params)
    known = dict(before)
    for name, said in given.items():
        if name and isinstance(said, Mapping) and (name in known or len(known) < MOST_PARAMS):
            known[str(name)] = {
                "value": _plain(said.get("value")),
                "default": _plain(said.get("default")),
                "low": _bound(said.get("low")),
                "high": _bound(said.get("high")),
            }
    stored = changes.with_declared(phase.params, known, attempt.number)
    if stored == phase.params:
        return
    phases.update(connection, phase.id, params=stored)
    if new := [name for name in known if name not in before]:
        said = ", ".join(f"{name} = {known[name]['value']!r}" for name in new)
        events.add(connection, attempt.run_id, "params", f"can be set on the way: {said}"[:2000], at=context.clock(),
                   actor="program", scope="instance", phase=phase.name, attempt=attempt.number)  # fmt: skip


def _find(phase: Row, seq: int) -> changes.Stored | None:
    return next((change for change in phase.steering if change["seq"] == seq), None)


def _plain(value: object) -> bool | int | float | str | None:
    return value if isinstance(value, bool | int | float | str) else None


def _bound(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _tell(
    context: Context,
    connection: sa.Connection,
    attempt: Row,
    phase: Row,
    kind: str,
    text: str,
    change: Mapping[str, Any],
) -> None:
    events.add(
        connection,
        attempt.run_id,
        kind,
        text,
        at=context.clock(),
        actor=change["actor"],
        phase=phase.name,
        attempt=attempt.number,
        data={name: change[name] for name in ("seq", "name", "value", "step", "refused")},
    )
