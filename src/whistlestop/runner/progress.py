"""The control block as the server gets to see it."""

import math
import time
from typing import Any

from whistlestop.channel.control import Control
from whistlestop.channel.layout import Loop, ProgramStage, Word
from whistlestop.domain.states import Stage
from whistlestop.wire.frames import Progress

_STAGES = {
    ProgramStage.STARTING: Stage.STARTING,
    ProgramStage.TRAINING: Stage.TRAINING,
    ProgramStage.EVALUATING: Stage.EVALUATING,
    ProgramStage.SAVING: Stage.SAVING,
    ProgramStage.FINISHING: Stage.TRAINING,
}


def read(control: Control, *, task: bool, started: bool, stopping: bool, ending: bool) -> Progress:
    saved = _count(control, Word.SAVED_STEP)
    return Progress(
        at=time.time(),
        stage=_stage(control, task=task, started=started, stopping=stopping, ending=ending).value,
        step=_count(control, Word.STEP),
        total=_count(control, Word.TOTAL),
        epoch=_count(control, Word.EPOCH),
        batch=_count(control, Word.BATCH),
        batches=_count(control, Word.BATCHES),
        progress_at=_seconds(control, Word.PROGRESS_AT),
        saved_step=saved - 1 if saved else None,
        evaluations=_count(control, Word.EVALUATIONS),
        loop_started_at=_seconds(control, Word.LOOP_STARTED_AT),
        resumed_step=_count(control, Word.RESUMED_STEP),
        loop=int(loop(control)),
    )


def loop(control: Control) -> Loop:
    """Where the program says it is with its loop. Anything may stand there: the program can write to that memory."""
    try:
        return Loop(control[Word.LOOP])
    except ValueError:
        return Loop.NONE


def imported(control: Control) -> bool:
    """The SDK is being loaded, or is in: the loop is going to look at the flag."""
    return bool(control[Word.ATTACHED] or control[Word.IMPORTED])


def last_words(control: Control) -> dict[str, Any]:
    """What `ended` says of the loop."""
    return {
        "last_step": _count(control, Word.STEP),
        "total": _count(control, Word.TOTAL),
        "epoch": _count(control, Word.EPOCH),
        "batches": _count(control, Word.BATCHES),
        "loop": loop(control).name.lower(),
    }


def _count(control: Control, word: Word) -> int:
    return max(0, control[word])


def _seconds(control: Control, word: Word) -> float:
    value = control.seconds(word)
    return value if math.isfinite(value) else 0.0


def _stage(control: Control, *, task: bool, started: bool, stopping: bool, ending: bool) -> Stage:
    if ending:
        return Stage.ENDING
    if not started:
        return Stage.PREPARING
    if stopping:
        return Stage.STOPPING
    if task and not control[Word.ATTACHED]:
        return Stage.TRAINING
    try:
        return _STAGES[ProgramStage(control[Word.STAGE])]
    except ValueError:
        return Stage.TRAINING
