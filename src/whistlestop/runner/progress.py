"""The control block as the server gets to see it."""

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
    saved = control[Word.SAVED_STEP]
    return Progress(
        at=time.time(),
        stage=_stage(control, task=task, started=started, stopping=stopping, ending=ending).value,
        step=control[Word.STEP],
        total=control[Word.TOTAL],
        epoch=control[Word.EPOCH],
        batch=control[Word.BATCH],
        batches=control[Word.BATCHES],
        progress_at=control.seconds(Word.PROGRESS_AT),
        saved_step=saved - 1 if saved else None,
        evaluations=control[Word.EVALUATIONS],
        loop_started_at=control.seconds(Word.LOOP_STARTED_AT),
        resumed_step=control[Word.RESUMED_STEP],
    )


def last_words(control: Control) -> dict[str, Any]:
    """What `ended` says of the loop."""
    return {
        "last_step": control[Word.STEP],
        "total": control[Word.TOTAL],
        "epoch": control[Word.EPOCH],
        "loop": Loop(control[Word.LOOP]).name.lower(),
    }


def _stage(control: Control, *, task: bool, started: bool, stopping: bool, ending: bool) -> Stage:
    if ending:
        return Stage.ENDING
    if not started:
        return Stage.PREPARING
    if stopping:
        return Stage.STOPPING
    if task and not control[Word.ATTACHED]:
        return Stage.TRAINING
    return _STAGES[ProgramStage(control[Word.STAGE])]
