"""Ending everything that an attempt has started, and the proof that it is gone. The proof is taken in a thread."""

import asyncio
from collections.abc import Callable

from whistlestop.engines.containment import Gone, Reaper, Tree
from whistlestop.runner.ended import PROOF_SECONDS, prove_gone


class Killing:
    def __init__(self, tree: Tree, reaper: Reaper) -> None:
        self._tree, self._reaper = tree, reaper
        self._under_way: asyncio.Task[Gone] | None = None
        self._ended = 0
        self.asked = False  # for a kill, not only for what its end has left

    def begin(self, done: Callable[[], None]) -> None:
        """Now, whatever it is doing. What hangs in the kernel may never exit: then its end is waited for in words."""
        if self._under_way is None:
            self.asked = True
            self._ended = self._tree.kill_at_once()
            self._under_way = asyncio.create_task(asyncio.to_thread(self._tree.end, PROOF_SECONDS))
            self._under_way.add_done_callback(lambda _: done())

    async def prove(self, tell: Callable[..., None]) -> Gone:
        gone = await prove_gone(self._prove, tell)
        return gone._replace(ended=max(self._ended, gone.ended))

    async def _prove(self) -> Gone:
        try:
            return await (self._under_way or asyncio.to_thread(self._tree.end, PROOF_SECONDS))
        finally:
            self._under_way = None  # its result is used up
            self._reaper.reap()
