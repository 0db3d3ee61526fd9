"""Who has to look again: the scheduler, open streams and runner links are woken, and then read the store themselves.

Little travels through the hub but the fact that something changed, so nothing can be lost or doubled in it: an order
that gets lost here is sent again when its runner reconnects.
"""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

from whistlestop.wire.frames import Order, Progress

ALL = "*"


class Hub:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, set[Waiter]] = defaultdict(set)
        self._scheduler: Callable[[str | None], None] = lambda run_id: None
        self.progress: dict[str, Progress] = {}  # attempt id -> newest; a display, not a record
        self._orders: dict[str, Order] = {}  # attempt id -> newest, for a link that is up
        self.closed = False

    def connect_scheduler(self, wake: Callable[[str | None], None]) -> None:
        self._scheduler = wake

    def changed(self, run_id: str) -> None:
        """The run's state or its requests changed: decide again, and show it."""
        self._scheduler(run_id)
        self.shown(run_id)

    def capacity_changed(self) -> None:
        self._scheduler(None)

    def shown(self, run_id: str) -> None:
        """There is something new to show, nothing to decide."""
        self._wake(run_id)
        self._wake(ALL)

    def ordered(self, attempt_id: str, order: Order) -> None:
        """A new order for this attempt's runner, durable by now. Handed over as it is: looking it up again would be
        the longest part of a stop's way. Orders are whole, so of two the one with the higher number counts."""
        with self._lock:
            known = self._orders.get(attempt_id)
            if known is None or order.seq >= known.seq:
                self._orders[attempt_id] = order
        self._wake(attempt_id)

    def order(self, attempt_id: str) -> Order | None:
        """The newest that was given while the server is up. Kept: two links of one runner may overlap."""
        with self._lock:
            return self._orders.get(attempt_id)

    def over(self, attempt_id: str) -> None:
        """The attempt has ended: there is nothing more to show or to order."""
        with self._lock:
            self._orders.pop(attempt_id, None)
        self.progress.pop(attempt_id, None)

    @contextlib.contextmanager
    def listen(self, *topics: str) -> Iterator["Waiter"]:
        """For coroutines: `await waiter.wait()` returns once after any number of changes."""
        waiter = Waiter(asyncio.get_running_loop())
        with self._lock:
            for topic in topics:
                self._waiters[topic].add(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                for topic in topics:
                    self._waiters[topic].discard(waiter)
                    if not self._waiters[topic]:
                        del self._waiters[topic]

    def close(self) -> None:
        """The server leaves: every stream ends at its next look."""
        self.closed = True
        with self._lock:
            waiters = [waiter for group in self._waiters.values() for waiter in group]
        for waiter in waiters:
            waiter.wake()

    def _wake(self, topic: str) -> None:
        with self._lock:
            waiters = list(self._waiters.get(topic, ()))
        for waiter in waiters:
            waiter.wake()


class Waiter:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be woken
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout: float | None = None) -> bool:
        """False after `timeout` seconds without a change."""
        try:
            async with asyncio.timeout(timeout):  # wait_for can swallow a cancellation in Python 3.11
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True
