"""The end of an attempt: everything proven gone, its reason in a sentence, and the file that says that all is told."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from whistlestop.domain.reasons import OUTCOMES, EndReason
from whistlestop.engines.attempt_files import DONE, write
from whistlestop.engines.containment import Gone
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


def ended_sentence(reason: EndReason, words: str) -> str:
    return f"{OUTCOMES[reason].says} ({words})"


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
