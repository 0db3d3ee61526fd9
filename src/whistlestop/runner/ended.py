"""The end of an attempt: everything proven gone, its reason in a sentence, and the file that says that all is told."""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from whistlestop.channel.control import Control
from whistlestop.channel.layout import Word
from whistlestop.domain.reasons import OUTCOMES, EndReason
from whistlestop.engines.attempt_files import DONE, LAUNCH, LOCK, RUNNER_LOG, write
from whistlestop.engines.containment import Gone
from whistlestop.runner import progress
from whistlestop.runner.climb import Climber
from whistlestop.runner.exit import Ending
from whistlestop.runner.notes import note

PROOF_SECONDS = 10.0  # for one try; what hangs in the kernel is tried again for as long as it takes
RETRY_SECONDS = 5.0
_KEPT = (DONE, LAUNCH, LOCK, RUNNER_LOG)
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


def gone_words(gone: Gone) -> str:
    return f"{gone.ended} process{'' if gone.ended == 1 else 'es'} ended, proven gone"


def ending_of(
    status: int | None,
    control: Control,
    climber: Climber,
    *,
    saved: bool,
    notice: str,
    unsafe: bool,
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
        notice=notice,
        unsafe=unsafe,
        out_of_memory=out_of_memory,
        limit=climber.actor if climber.own_limit else "",
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
    notice: str | None = None,
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
        "notice": notice,
        "saved_step": saved_step,
    }


async def leave(directory: Path, *, forgets: bool = False) -> None:
    """The last file: whoever finds it knows that everything is at the server. Tried until the disk takes it. `forgets`:
    nobody comes to take the rest away; what is kept for an hour is to look at, should a person want to."""
    while True:
        try:
            write(directory / DONE, str(time.time()).encode())
            if forgets:
                await asyncio.to_thread(_forget, directory)
            return
        except FileNotFoundError:
            return  # the directory itself was removed: nobody is going to look
        except OSError as error:
            note(f"runner: {error}")
            await asyncio.sleep(1.0)


def _forget(directory: Path) -> None:
    """All but what says how it ended: engines/boot.py takes that."""
    for path in directory.iterdir():
        if path.name in _KEPT:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
