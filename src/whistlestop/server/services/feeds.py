"""One reader for any number of open dashboards: it looks at the store when the hub wakes it, and whoever is up to date
is handed what it found, put into bytes once. Nothing waits for a client: those behind read the store by themselves."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from whistlestop.domain.errors import NotFound
from whistlestop.server.services.context import Context
from whistlestop.server.services.hub import Waiter

log = logging.getLogger(__name__)
PACE = 0.1  # seconds between two looks at least: a page can't show more, and a busy run has more
CROWD = 20  # clients; with more the looks become fewer, so that a run's messages a second stay as many
SLOWEST = 1.0  # seconds
LOOKS = 4  # at once, of all feeds
PAGES = 4  # at once, of all clients that read the store by themselves

F = TypeVar("F", bound="Feed")
T = TypeVar("T")


class Threads:
    """Those of all feeds: however many are behind, a stop or a kill finds one of the others, and so do the looks."""

    def __init__(self) -> None:
        self.looks, self.pages = anyio.CapacityLimiter(LOOKS), anyio.CapacityLimiter(PAGES)


class Feed:
    """`version` counts the looks that found something. Subclasses read in `look` (a thread) and take in what was found
    in `take` (the loop's thread), so that clients never see half of it."""

    def __init__(self, context: Context, topic: str) -> None:
        self.context, self.topic = context, topic
        self.version = 0
        self.over = False  # nothing more will come: the reader has left
        self.ended = False  # because there is nothing more to tell, not because of trouble
        self.wanted: Counter[str] = Counter()
        self.clients = 0
        self._turn = asyncio.Event()
        self._threads: Threads
        self._reader: asyncio.Task[None] | None = None
        self._waiter: Waiter | None = None

    def look(self) -> Any:
        raise NotImplementedError

    def take(self, found: Any) -> bool:
        """Whether clients have to look."""
        raise NotImplementedError

    async def joined(self) -> None:
        """A client more: it may ask for what nobody wanted until now."""

    def due(self) -> float | None:
        """Seconds until the next look is needed though nothing changes."""
        return None

    async def beyond(self, version: int, timeout: float) -> bool:
        """Until there is something newer; False after `timeout` seconds without."""
        if self.version > version or self.over:
            return True
        turn = self._turn
        try:
            async with asyncio.timeout(timeout):
                await turn.wait()
        except TimeoutError:
            return False
        return True

    async def page(self, read: Callable[[Any], T], seen: Any) -> T:
        """A client's own reading."""
        return await to_thread.run_sync(read, seen, limiter=self._threads.pages)

    def start(self, threads: Threads) -> None:
        self._threads = threads
        self._reader = asyncio.get_running_loop().create_task(self._read())

    def wake(self) -> None:
        """Look again, though nothing has changed."""
        if self._waiter is not None:  # else its first look is still to come
            self._waiter.wake()

    def leave(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        self._finish()

    async def _read(self) -> None:
        hub, loop = self.context.hub, asyncio.get_running_loop()
        try:
            with hub.listen(self.topic) as waiter:
                self._waiter = waiter
                while not hub.closed:
                    began = loop.time()
                    if self.take(await to_thread.run_sync(self.look, limiter=self._threads.looks)):
                        self.version += 1
                        self._next_turn()
                    if self.ended:
                        return
                    await waiter.wait(self.due())
                    await asyncio.sleep(self._pace() - (loop.time() - began))
        except NotFound:
            self.ended = True
        except Exception:
            log.exception("the live feed of %s has failed; its clients connect again", self.topic)
        finally:
            self._finish()

    def _pace(self) -> float:
        return min(SLOWEST, PACE * max(1.0, self.clients / CROWD))

    def _finish(self) -> None:
        self.over = True
        self._next_turn()

    def _next_turn(self) -> None:
        self._turn.set()
        self._turn = asyncio.Event()


class Feeds:
    """Every feed that somebody follows: made with its first client, gone with its last."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._threads = Threads()
        self._open: dict[str, Feed] = {}

    @contextlib.asynccontextmanager
    async def join(self, topic: str, make: Callable[[Context, str], F], wanted: Collection[str]) -> AsyncIterator[F]:
        feed = self._open.get(topic)
        if feed is None or feed.over:
            feed = self._open[topic] = make(self._context, topic)
            feed.start(self._threads)  # the reader's first look comes after this turn of the loop
        feed.clients += 1
        feed.wanted.update(wanted)
        try:
            await feed.joined()
            yield feed  # type: ignore[misc]  # one kind of feed per topic
        finally:
            feed.clients -= 1
            feed.wanted.subtract(wanted)
            if not feed.clients:
                feed.leave()
                if self._open.get(topic) is feed:
                    del self._open[topic]


def message(kind: str, data: str, seen: str | None) -> bytes:
    """Without an id it belongs to the one that came last."""
    where = "" if seen is None else f"id: {seen}\n"
    return f"event: {kind}\n{where}data: {data}\n\n".encode()
