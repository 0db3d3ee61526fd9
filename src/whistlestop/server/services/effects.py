"""The sentences of the dialogs: what each verb keeps, what it loses, what goes on, whether it can be undone. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whistlestop.domain.checkpoints import latest
from whistlestop.domain.states import PHASE_ENDED, PhaseState

TRAIN = "train"
RECORD = "metrics, logs and events"


@dataclass
class Effects:
    kept: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    goes_on: list[str] = field(default_factory=list)
    undo: str = ""


def of(
    verb: str,
    run: Any,
    rows: Sequence[Any],
    phase: Any | None,
    saved: Sequence[Any],
    steps: Mapping[str, int],
    total: int | None,
) -> Effects:
    """`rows`: its phases; `saved`: its checkpoints; `steps`: by phase."""
    speak: Callable[..., Effects] = {
        "stop": _stop, "pause": _pause, "kill": _kill, "cancel": _cancel, "delete": _delete,
    }[verb]  # fmt: skip
    return speak(rows, phase, saved, steps, total)


def newest(phase: Any | None, saved: Sequence[Any]) -> Any | None:
    """Of this phase; else of any. Only one that a run may resume from."""
    good = [row for row in saved if row.healthy and row.verified]
    own = [row for row in good if phase is not None and row.phase == phase.name]
    return own[0] if own else latest(good)


def _stop(
    rows: Sequence[Any], phase: Any, saved: Sequence[Any], steps: Mapping[str, int], total: int | None
) -> Effects:
    at = steps.get(phase.name, 0)
    running = phase.state == PhaseState.RUNNING
    where = f"as it is at its next step (now {at:,})" if running else "as soon as it begins" if not at else f"at {at:,}"
    left = f"the {total - at:,} steps it has left" if total and total > at else "the steps it has left"
    others = [row.name for row in rows if row.id != phase.id and row.state not in PHASE_ENDED]
    return Effects(
        kept=[f"the result of {phase.name}, {where}", "every checkpoint", RECORD],
        lost=[f"nothing but {left}"],
        goes_on=["the code behind its loop: last evaluation, export", *_phases(others)],
        undo="no, but a new run can continue from its last checkpoint",
    )


def _pause(
    rows: Sequence[Any], phase: Any, saved: Sequence[Any], steps: Mapping[str, int], total: int | None
) -> Effects:
    tasks = [row.name for row in rows if row.kind != TRAIN and row.state == PhaseState.RUNNING]
    trains = [row.name for row in rows if row.kind == TRAIN and row.state == PhaseState.RUNNING]
    kept = [f"{name} at its next step, in a checkpoint (now {steps.get(name, 0):,})" for name in trains]
    return Effects(
        kept=[*kept, "every checkpoint", RECORD],
        lost=[f"what the task {name} has done: it starts again" for name in tasks] or ["nothing"],
        goes_on=["nothing until it is resumed"],
        undo="yes: resume",
    )


def _kill(
    rows: Sequence[Any], phase: Any, saved: Sequence[Any], steps: Mapping[str, int], total: int | None
) -> Effects:
    found = newest(phase, saved)
    kept = [f"{_count(saved)}, the newest at step {found.step:,}"] if found is not None else []
    return Effects(
        kept=[*kept, RECORD],
        lost=[*_unsaved(rows, saved, steps), *_unreached(rows)] or ["its place in the queue"],
        goes_on=["nothing"],
        undo="no, but a new run can continue from a checkpoint" if found is not None else "no",
    )


def _cancel(
    rows: Sequence[Any], phase: Any, saved: Sequence[Any], steps: Mapping[str, int], total: int | None
) -> Effects:
    reached = [
        f"all {steps[row.name]:,} steps of {row.name}" for row in rows if row.kind == TRAIN and steps.get(row.name)
    ]
    gone = [f"{_count(saved)}: nothing is left to continue from"] if saved else []
    return Effects(
        kept=[RECORD],
        lost=[*gone, *reached, *_unreached(rows)] or ["its place in the queue"],
        goes_on=["nothing"],
        undo="no",
    )


def _delete(
    rows: Sequence[Any], phase: Any, saved: Sequence[Any], steps: Mapping[str, int], total: int | None
) -> Effects:
    gone = [f"{_count(saved)} ({_size(sum(row.bytes for row in saved))})"] if saved else []
    return Effects(
        kept=["its number: no other run gets it"],
        lost=["the run with its notes, metrics, logs and events", *gone],
        goes_on=[],
        undo="no",
    )


def _unsaved(rows: Sequence[Any], saved: Sequence[Any], steps: Mapping[str, int]) -> list[str]:
    """What no checkpoint has."""
    texts = []
    for row in rows:
        if row.state != PhaseState.RUNNING:
            continue
        if row.kind != TRAIN:
            texts.append(f"what the task {row.name} has done")
            continue
        good = [each.step for each in saved if each.phase == row.name and each.healthy and each.verified]
        last = max(good, default=None)
        at = steps.get(row.name, 0)
        if last is None:
            texts.append(f"all {at:,} steps of {row.name}: it has no checkpoint" if at else f"{row.name}, just begun")
        elif at > last:
            texts.append(f"{at - last:,} steps of {row.name} since the checkpoint at {last:,}")
    return texts


def _unreached(rows: Sequence[Any]) -> list[str]:
    names = [row.name for row in rows if row.state == PhaseState.PENDING]
    return [f"the phases that have not run: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"] if names else []


def _phases(names: Sequence[str]) -> list[str]:
    return [f"phase {name}" for name in names[:5]] + ([f"{len(names) - 5} more phases"] if len(names) > 5 else [])


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def _count(saved: Sequence[Any]) -> str:
    return f"{len(saved)} checkpoint{'s' if len(saved) != 1 else ''}"
