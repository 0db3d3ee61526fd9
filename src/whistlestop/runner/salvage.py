"""After a runner that died: its tree is ended and proven gone, what it left is shipped, and its end is reported."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whistlestop.blobs.open import open_storage
from whistlestop.blobs.retention import Policy
from whistlestop.channel.control import Control, ControlUnusable
from whistlestop.channel.layout import CONTROL_FILE, Word
from whistlestop.domain.reasons import EndReason
from whistlestop.domain.states import Stage
from whistlestop.domain.stops import Stop
from whistlestop.engines.containment import Gone, Tree
from whistlestop.runner import progress
from whistlestop.runner.checkpoints import CheckpointKeeper
from whistlestop.runner.ended import (
    KILL_PATIENCE,
    PROOF_SECONDS,
    end_data,
    ended_sentence,
    gone_words,
    leave,
    prove_gone,
)
from whistlestop.runner.events import Events
from whistlestop.runner.hearing import Hearing
from whistlestop.runner.link import Link
from whistlestop.runner.logs import LogBook
from whistlestop.runner.notes import note, noted
from whistlestop.runner.numbering import Numbering
from whistlestop.runner.recordfile import RecordFile
from whistlestop.runner.stages import clear, own_stage
from whistlestop.runner.streams import Streams
from whistlestop.runner.telling import FromThread
from whistlestop.wire.frames import Progress, decode_event

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch


async def salvage(launch: "Launch", tree: Tree) -> None:
    directory = Path(launch.directory)
    logs, runner = RecordFile.open(directory / "logs"), RecordFile.open(directory / "runner")
    numbering = Numbering.load(directory, {"logs": logs.end, "runner": runner.end})
    events = Events(runner)
    events.begin_writing()
    gone = await prove_gone(lambda: asyncio.to_thread(tree.end, PROOF_SECONDS), events.tell)
    tree.remove()
    control = _control(directory)
    streams = Streams(directory, logs=logs, runner=runner, node=launch.node, numbering=numbering)
    told = FromThread(asyncio.get_running_loop(), events.tell)
    keeper = _keeper(launch, told)
    link = Link(
        launch,
        streams,
        on_order=lambda order: keeper.abandon() if order.stop == Stop.KILL else None,
        on_unwanted=lambda text: _leave_it(keeper, text),
        progress=lambda: _progress(control),
    )
    ended_at = _ended_at(runner)
    if ended_at is not None:
        streams.hold_back(ended_at)
    running = asyncio.create_task(link.run())  # a kill must be heard while the last save is brought to safety
    if ended_at is None:
        LogBook(logs, limit=launch.log_limit).say(f"the runner died; {gone_words(gone)}")
        hearing = Hearing(directory, announce=keeper.announce)
        await asyncio.to_thread(_save, launch, control, keeper, hearing)
        told.over = True
        streams.hold_back(runner.end)
        _tell_end(control, events, gone, keeper, hearing)
    runner.sync()
    await link.everything_safe()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await leave(directory, forgets=launch.forgets)


def _ended_at(runner: RecordFile) -> int | None:
    """Where the `ended` event stands, if the runner lived to write it."""
    last = runner.last()
    try:
        return runner.last_offset() if last is not None and decode_event(last).kind == "ended" else None
    except msgspec.MsgspecError:  # what a power cut made of it
        return None


def _keeper(launch: "Launch", tell: FromThread) -> CheckpointKeeper:
    return CheckpointKeeper(
        open_storage(launch.storage or launch.checkpoints, launch.storage_options),
        launch.phase,
        (launch.attempt_number, launch.attempt_id),
        own_stage(launch),
        node=launch.node,
        nodes=launch.nodes,
        policy=Policy(last=sys.maxsize),  # whoever comes next has a better view of what may go
        protected=(),
        tell=tell,
    )


def _save(launch: "Launch", control: Control | None, keeper: CheckpointKeeper, hearing: Hearing) -> None:
    with noted("salvage: the last words"):
        if launch.kind == "train":
            keeper.start()
        hearing.listen(last=True)
    with noted("salvage: checkpoints"):
        killed = control is not None and control[Word.STOP_LEVEL] >= Stop.KILL
        keeper.finish(KILL_PATIENCE if killed else None)
    with noted("salvage: the slots"):
        clear(launch)


def _leave_it(keeper: CheckpointKeeper, text: str) -> None:
    note(f"salvage: {text}")
    keeper.abandon()


def _tell_end(control: Control | None, events: Events, gone: Gone, keeper: CheckpointKeeper, hearing: Hearing) -> None:
    reason = EndReason.RUNNER_LOST
    words = f"the runner died without a word; {gone.ended} processes were found and ended"
    if control is not None and control[Word.PREEMPT_DEADLINE]:  # a machine that goes takes its runner with it
        words, reason = f"there was notice that the capacity goes; {words}", EndReason.PREEMPTED
    data = end_data(
        reason,
        words,
        control=control,
        gone=gone,
        saved_step=keeper.saved_step,
        stop_reasons=hearing.stop_reasons,
    )
    events.tell("ended", ended_sentence(reason, words), **data)


def _control(directory: Path) -> Control | None:
    try:
        return Control.open(directory / CONTROL_FILE)
    except (OSError, ControlUnusable):
        return None


def _progress(control: Control | None) -> Progress:
    if control is None:
        return Progress(at=0.0, stage=Stage.ENDING.value)
    return progress.read(control, task=False, started=True, stopping=False, ending=True)
