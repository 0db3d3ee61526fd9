"""When to look: woken by events, and on a slow tick that re-checks everything. What to do is in passes.py."""

import logging
import threading
import time
from collections.abc import Callable

from whistlestop.server.scheduler.passes import Passes
from whistlestop.wire.pools import ClusterView

log = logging.getLogger(__name__)
MOST_AT_ONCE = 50  # runs settled in one transaction


class Scheduler:
    def __init__(self, passes: Passes, *, tick: float, took: Callable[[float], None] = lambda seconds: None) -> None:
        """`took`: told how long each pass took."""
        self._passes, self._tick, self._took = passes, tick, took
        self._wake = threading.Condition()
        self._dirty: set[str] = set()
        self._links: set[str] = set()  # attempts whose runner hung up
        self._look = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the pass under way. Runs go on: they do not need us."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=30)

    def wake(self, run_id: str | None) -> None:
        """A run has something to decide; None: there may be room."""
        with self._wake:
            if run_id is not None:
                self._dirty.add(run_id)
            self._look = True
            self._wake.notify()

    def could_not_start(self, attempt_id: str, node: int, text: str, *, unfit: bool, left: bool) -> None:
        self._passes.jobs.could_not_start(attempt_id, node, text, unfit=unfit, left=left)

    def clusters(self) -> list[ClusterView]:
        return self._passes.clusters.look()

    def hung_up(self, attempt_id: str) -> None:
        """A runner's connection ended: ask the engine at once whether the runner did."""
        with self._wake:
            self._links.add(attempt_id)
            self._look = True
            self._wake.notify()

    def _run(self) -> None:
        next_tick, retry_at = 0.0, None
        while True:
            with self._wake:
                while not (self._look or self._stopping):
                    left = next_tick - time.monotonic()
                    if retry_at is not None:
                        left = min(left, retry_at - time.time())
                    if (look_at := self._passes.jobs.next_look()) is not None:
                        left = min(left, look_at - time.monotonic())
                    if left <= 0 or not self._wake.wait(left):
                        break
                if self._stopping:
                    return
                dirty, self._dirty = self._dirty, set()
                links, self._links = self._links, set()
                self._look = False
            began = time.perf_counter()
            self._passes.jobs.hung_up(links)
            links |= self._passes.jobs.suspects()
            try:
                if time.monotonic() >= next_tick:
                    dirty |= self._passes.check_everything()
                    next_tick = time.monotonic() + self._tick
                elif links:
                    dirty |= self._passes.jobs.check(links)
                waiting = sorted(dirty)
                for start in range(0, len(waiting), MOST_AT_ONCE):
                    self._passes.settle(waiting[start : start + MOST_AT_ONCE])
                    self._passes.jobs.withdraw(waiting[start : start + MOST_AT_ONCE])
                retry_at = self._passes.place()
                self._took(time.perf_counter() - began)
            except Exception:
                # The loop is the heart of the server: it must beat on. What failed is tried again on the next tick.
                log.exception("a scheduler pass failed; it is tried again")
                next_tick, retry_at = time.monotonic() + min(1.0, self._tick), None
                with self._wake:
                    self._dirty |= dirty
