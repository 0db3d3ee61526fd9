"""Who has to look again: the scheduler, open streams and runner links are woken, and then read the store themselves.

Nothing travels through the hub but the fact that something changed, so nothing can be lost or doubled in it.
"""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

from whistlestop.wire.frames import Progress

ALL = "*"


class Hub:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, set[Waiter]] = defaultdict(set)
        self._scheduler: Callable[[str | None], None] = lambda run_id: None
        self.progress: dict[str, Progress] = {}  # attempt id -> newest; a display, not a record
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

    def ordered(self, attempt_id: str) -> None:
        """There may be a new order for this attempt's runner."""
        self._wake(attempt_id)

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
            await asyncio.wait_for(self._event.wait(), timeout)
        except TimeoutError:
            return False
        self._event.clear()
        return True
