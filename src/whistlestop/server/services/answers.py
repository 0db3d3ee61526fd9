"""Answers that many dashboards ask for at the same time: made once for all who take one that old, in a few threads of
their own, so that however many charts are open, a stop never waits behind them. Nothing is begun for who has left."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import anyio
from anyio import to_thread

from whistlestop.domain.errors import Busy

THREADS = 2  # at once; the rest of the server has the others
MOST_WAITING = 200  # readings that have not begun: who comes after that is told at once instead of much later
MOST_KEPT = 32 * 2**20  # bytes of answers that somebody may take again


@dataclass(eq=False)
class Reading:
    asked_at: float
    keep: float  # seconds after `asked_at`: the oldest that anybody of those who asked would take
    waiters: int = 0
    begun: bool = False
    size: int = 0  # bytes, while it is kept
    body: asyncio.Task[bytes] = field(init=False)


class Answers:
    def __init__(self, threads: int = THREADS) -> None:
        self._known: OrderedDict[Hashable, Reading] = OrderedDict()
        self._turn = asyncio.Semaphore(threads)
        self._threads = anyio.CapacityLimiter(threads)
        self._kept = 0  # bytes
        self._waiting = 0

    @property
    def kept(self) -> int:
        """Bytes."""
        return self._kept

    async def once(self, make: Callable[[], bytes]) -> bytes:
        """What `make` says, for one alone."""
        return await self.get(object(), make, max_age=0.0)

    async def get(self, key: Hashable, make: Callable[[], bytes], *, max_age: float) -> bytes:
        """What `make` says, or what it has said for the same key in the last `max_age` seconds, or is about to say."""
        now = asyncio.get_running_loop().time()
        reading = self._known.get(key)
        if reading is None or not _will_do(reading, now, max_age):
            reading = self._begin(key, make, now)
        reading.keep = max(reading.keep, max_age)
        reading.waiters += 1
        try:
            return await asyncio.shield(reading.body)  # who leaves early takes nothing from the others
        finally:
            reading.waiters -= 1
            if not reading.waiters and not reading.begun:
                self._forget(key, reading)  # before the next one can join what will never be said
                reading.body.cancel()

    def _begin(self, key: Hashable, make: Callable[[], bytes], now: float) -> Reading:
        if self._waiting >= MOST_WAITING:
            raise Busy("the server is busy with other people's charts and searches", hint="ask again in a moment")
        if key in self._known:
            self._forget(key, self._known[key])
        reading = Reading(now, 0.0)
        self._waiting += 1
        reading.body = asyncio.create_task(self._read(reading, make))
        reading.body.add_done_callback(lambda _: self._finished(key, reading))
        self._known[key] = reading
        return reading

    async def _read(self, reading: Reading, make: Callable[[], bytes]) -> bytes:
        async with self._turn:
            reading.begun = True
            self._waiting -= 1
            return await to_thread.run_sync(make, limiter=self._threads)

    def _finished(self, key: Hashable, reading: Reading) -> None:
        """A refusal is not kept, nor what nobody would take again."""
        self._waiting -= not reading.begun
        if self._known.get(key) is not reading:
            return
        if reading.body.cancelled() or reading.body.exception() is not None or reading.keep <= 0:
            del self._known[key]
            return
        self._known.move_to_end(key)
        reading.size = len(reading.body.result())
        self._kept += reading.size
        loop = asyncio.get_running_loop()
        loop.call_at(reading.asked_at + reading.keep, self._forget, key, reading)
        for old, each in list(self._known.items()):
            if self._kept <= MOST_KEPT:
                break
            if each.size:
                self._forget(old, each)

    def _forget(self, key: Hashable, reading: Reading) -> None:
        if self._known.get(key) is reading:
            del self._known[key]
            self._kept -= reading.size


def _will_do(reading: Reading, now: float, max_age: float) -> bool:
    """What has not begun yet will be as fresh as anything that is begun now."""
    if not reading.begun:
        return True
    return max_age > 0 and (not reading.body.done() or now - reading.asked_at <= max_age)
