"""After a runner that died: its tree is ended and proven gone, what it left is shipped, and its end is reported."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from whistlestop.runner.checkpoints import CheckpointKeeper, clear, shared_stage
from whistlestop.runner.events import Events
from whistlestop.runner.hearing import Hearing
from whistlestop.runner.link import Link
from whistlestop.runner.logs import LogBook
from whistlestop.runner.notes import note, noted
from whistlestop.runner.numbering import Numbering
from whistlestop.runner.recordfile import RecordFile
from whistlestop.runner.streams import Streams
from whistlestop.runner.supervise import KILL_PATIENCE, PROOF_SECONDS, RETRY_SECONDS, ended_sentence, leave
from whistlestop.wire.frames import Order, Progress, decode_event

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch


async def salvage(launch: "Launch", tree: Tree) -> None:
    directory = Path(launch.directory)
    logs, runner = RecordFile.open(directory / "logs"), RecordFile.open(directory / "runner")
    numbering = Numbering.load(directory, {"logs": logs.end, "runner": runner.end})
    events = Events(runner)
    events.begin_writing()
    gone = await _end_tree(tree, events)
    control = _control(directory)
    ended_at = _ended_at(runner)
    if ended_at is None:
        book = LogBook(logs, limit=launch.log_limit)
        book.say(f"the runner died; {gone.ended} processes ended, proven gone")
        ended_at = await asyncio.to_thread(_report, launch, control, events, gone)
    runner.sync()
    streams = Streams(directory, logs=logs, runner=runner, numbering=numbering)
    streams.hold_back(ended_at)
    link = Link(
        launch,
        streams,
        on_order=_nothing_to_do,
        on_unwanted=lambda text: note(f"salvage: {text}"),
        progress=lambda: _progress(control),
    )
    running = asyncio.create_task(link.run())
    await link.everything_safe()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await leave(directory)


def _ended_at(runner: RecordFile) -> int | None:
    """Where the `ended` event stands, if the runner lived to write it."""
    last = runner.last()
    try:
        return runner.last_offset() if last is not None and decode_event(last).kind == "ended" else None
    except msgspec.MsgspecError:  # what a power cut made of it
        return None


async def _end_tree(tree: Tree, events: Events) -> Gone:
    total, said = 0, set[int]()
    while True:
        try:
            gone = await asyncio.to_thread(tree.end, PROOF_SECONDS)
        except Exception as error:
            note(f"salvage: ending the tree: {error!r}")
            await asyncio.sleep(RETRY_SECONDS)
            continue
        total += gone.ended
        if not gone.held:
            tree.remove()
            return gone._replace(ended=total)
        for held in gone.held:
            if held.pid not in said:
                said.add(held.pid)
                events.tell("notice", f"Process {held.pid} can't be ended: {held.why}.", pid=held.pid)
        await asyncio.sleep(RETRY_SECONDS)


def _report(launch: "Launch", control: Control | None, events: Events, gone: Gone) -> int:
    """Where the `ended` event was written."""
    keeper = CheckpointKeeper(
        open_storage(launch.storage or launch.checkpoints, launch.storage_options),
        launch.phase,
        (launch.attempt_number, launch.attempt_id),
        Path(launch.directory) / "stage",
        shared=shared_stage(launch),
        policy=Policy(last=sys.maxsize),  # whoever comes next has a better view of what may go
        protected=(),
        tell=events.tell,
    )
    hearing = Hearing(Path(launch.directory), announce=keeper.announce)
    with noted("salvage: the last words"):
        keeper.start()
        hearing.listen()
    with noted("salvage: checkpoints"):
        killed = control is not None and control[Word.STOP_LEVEL] >= Stop.KILL
        keeper.finish(KILL_PATIENCE if killed else None)
    with noted("salvage: the slots"):
        clear(launch)
    words = f"the runner died without a word; {gone.ended} processes were found and ended"
    known: dict[str, Any] = (
        progress.last_words(control)
        if control is not None
        else {"last_step": None, "total": 0, "epoch": 0, "loop": "none"}
    )
    place = events.file.end
    events.tell(
        "ended",
        ended_sentence(EndReason.RUNNER_LOST, words),
        **known,
        reason=EndReason.RUNNER_LOST.value,
        exit_code=None,
        signal=None,
        evidence=words,
        stop_reasons=hearing.stop_reasons,
        gone_at=gone.at,
        saved_step=keeper.saved_step,
    )
    return place


def _control(directory: Path) -> Control | None:
    try:
        return Control.open(directory / CONTROL_FILE)
    except (OSError, ControlUnusable):
        return None


def _progress(control: Control | None) -> Progress:
    if control is None:
        return Progress(at=0.0, stage=Stage.ENDING.value)
    return progress.read(control, task=False, started=True, stopping=False, ending=True)


def _nothing_to_do(order: Order) -> None:
    """Whatever is asked for: the program is gone already."""
