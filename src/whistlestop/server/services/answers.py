"""Answers that many dashboards ask for at the same time: made once for all who take one that old, in a few threads of
their own, so that however many charts are open, a stop never waits behind them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import anyio
from anyio import to_thread

THREADS = 2  # at once; the rest of the server has the others
KEPT = 200  # answers, some ten kilobytes each


@dataclass(frozen=True)
class Answer:
    asked_at: float
    body: asyncio.Task[bytes]


class Answers:
    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Answer] = OrderedDict()
        self._threads = anyio.CapacityLimiter(THREADS)

    async def get(self, key: Hashable, make: Callable[[], bytes], *, max_age: float) -> bytes:
        """What `make` says, or what it has said for the same key in the last `max_age` seconds, or is about to say."""
        now = asyncio.get_running_loop().time()
        known = self._known.get(key)
        if known is None or max_age <= 0 or (known.body.done() and now - known.asked_at > max_age):
            known = Answer(now, asyncio.create_task(to_thread.run_sync(make, limiter=self._threads)))
            known.body.add_done_callback(lambda body: self._finished(key, body))
            self._known[key] = known
            self._known.move_to_end(key)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return await asyncio.shield(known.body)  # who leaves early takes nothing from the others

    def _finished(self, key: Hashable, body: asyncio.Task[bytes]) -> None:
        """A refusal is not kept."""
        known = self._known.get(key)
        if (body.cancelled() or body.exception() is not None) and known is not None and known.body is body:
            del self._known[key]
