"""The end of an attempt: everything proven gone, its reason in a sentence, and the file that says that all is told."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from whistlestop.channel.control import Control
from whistlestop.channel.layout import Word
from whistlestop.domain.reasons import OUTCOMES, EndReason
from whistlestop.engines.attempt_files import DONE, write
from whistlestop.engines.containment import Gone
from whistlestop.runner import progress
from whistlestop.runner.climb import Climber
from whistlestop.runner.exit import Ending
from whistlestop.runner.notes import note

PROOF_SECONDS = 10.0  # for one try; what hangs in the kernel is tried again for as long as it takes
RETRY_SECONDS = 5.0
KILL_PATIENCE = 0.2  # for a checkpoint that is being read back


async def prove_gone(prove: Callable[[], Awaitable[Gone]], tell: Callable[..., None]) -> Gone:
    """All tries together, for as long as it takes: nothing is reported before it is proven."""
    said, ended = set[int](), 0
    while True:
        try:
            gone = await prove()
        except Exception as error:  # nothing is proven: look again
            note(f"ending the tree: {error!r}")
            await asyncio.sleep(RETRY_SECONDS)
            continue
        ended += gone.ended
        if not gone.held:
            return gone._replace(ended=ended)
        for held in gone.held:
            if held.pid not in said:
                said.add(held.pid)
                words = f"Process {held.pid} can't be ended: {held.why}. Its slots stay taken until it lets go."
                tell("notice", words, pid=held.pid)
        await asyncio.sleep(RETRY_SECONDS)


def ending_of(
    status: int | None,
    control: Control,
    climber: Climber,
    *,
    saved: bool,
    preempted: bool,
    out_of_memory: bool,
    task: bool,
) -> Ending:
    """`status`: as the kernel tells it."""
    code = os.waitstatus_to_exitcode(status) if status is not None else None
    return Ending(
        exit_code=code if code is None or code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        stop=climber.stop,
        rung=climber.rung,
        loop=progress.loop(control),
        attached=bool(control[Word.ATTACHED]),
        imported=progress.imported(control),
        saved=saved,
        preempted=preempted,
        out_of_memory=out_of_memory,
        time_limit=climber.own_limit,
        task=task,
        behind=control[Word.BEHIND] > 0,
    )


def ended_sentence(reason: EndReason, words: str) -> str:
    return f"{OUTCOMES[reason].says} ({words})"


def end_data(
    reason: EndReason,
    words: str,
    *,
    control: Control | None,
    gone: Gone,
    saved_step: int | None,
    stop_reasons: Sequence[Mapping[str, Any]] = (),
    exit_code: int | None = None,
    signal: int | None = None,
) -> dict[str, Any]:
    """What the `ended` event says beside its sentence. Without a control block nothing is known of the loop."""
    nothing = {"last_step": None, "total": 0, "epoch": 0, "loop": "none"}
    return {
        **(nothing if control is None else progress.last_words(control)),
        "reason": reason.value,
        "exit_code": exit_code,
        "signal": signal,
        "evidence": words,
        "stop_reasons": list(stop_reasons),
        "gone_at": gone.at,
        "saved_step": saved_step,
    }


async def leave(directory: Path) -> None:
    """The last file: whoever finds it knows that everything is at the server. Tried until the disk takes it."""
    while True:
        try:
            write(directory / DONE, str(time.time()).encode())
            return
        except FileNotFoundError:
            return  # the directory itself was removed: nobody is going to look
        except OSError as error:
            note(f"runner: {error}")
            await asyncio.sleep(1.0)
