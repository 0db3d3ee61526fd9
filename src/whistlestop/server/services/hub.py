"""Who has to look again: the scheduler, open streams and runner links are woken, and then read the store themselves.

Little travels through the hub but the fact that something changed, so nothing can be lost or doubled in it: an order
that gets lost here is sent again when its runner reconnects.
"""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from whistlestop.capacity.records import Record
from whistlestop.capacity.room import Place
from whistlestop.domain.estimates import Pace
from whistlestop.server.store.ledger import Spendings
from whistlestop.wire.frames import Gang, Order, Peer, Progress, Rehearse, Stacks

ALL = "*"


class Hub:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, set[Waiter]] = defaultdict(set)
        self._scheduler: Callable[[str | None], None] = lambda run_id: None
        self._diagnosis: Callable[[str, bool], None] = lambda run_id, anew: None
        self.alerts_changed: Callable[[], None] = lambda: None  # wakes whoever sends them
        self.progress: dict[str, Progress] = {}  # attempt id -> newest; a display, not a record
        self.paces: dict[str, Pace] = {}  # attempt id -> how its steps have come, as far as this server has seen it
        self.spendings = Spendings()
        self._heard: dict[str, float] = {}  # attempt and node -> when its runner last said something
        self._orders: dict[str, Order] = {}  # attempt id -> newest, for a link that is up
        self.ends = 0  # attempts that have ended: what was read of them is old when it has changed
        self._come: dict[str, dict[int, Peer]] = {}  # attempt id -> its nodes that have come and wait for the others
        self._rehearsals: dict[str, list[Rehearse]] = {}  # attempt id -> what its link has not sent yet
        self._stacks: dict[str, list[Stacks]] = {}  # attempt and node -> the same
        # As the last plan took them, for whoever explains what a run waits for.
        self.records: Mapping[str, Record] = {}
        self.shut: Mapping[Place, str] = {}
        self._going: dict[Place, float] = {}  # pool and host -> until when it goes, by a notice
        self.held: dict[str, str] = {}  # phase id -> why its deadline lets it wait, though there is capacity
        self.closed = False

    def connect_scheduler(self, wake: Callable[[str | None], None]) -> None:
        self._scheduler = wake

    def changed(self, run_id: str) -> None:
        """The run's state or its requests changed: decide again, and show it."""
        self._scheduler(run_id)
        self.shown(run_id)

    def connect_diagnosis(self, look: Callable[[str, bool], None]) -> None:
        self._diagnosis = look

    def suspected(self, run_id: str, *, anew: bool) -> None:
        """Something may be wrong with the run, or right again: a diagnosis is due. `anew`: an attempt has begun or
        ended, so what was known of it is old."""
        self._diagnosis(run_id, anew)

    def goes(self, place: Place, until: float) -> None:
        """Nothing is started there before that time."""
        with self._lock:
            self._going[place] = max(until, self._going.get(place, 0.0))

    def going(self, now: float) -> dict[Place, float]:
        """What goes, and until when."""
        with self._lock:
            self._going = {place: until for place, until in self._going.items() if until > now}
            return dict(self._going)

    def capacity_changed(self) -> None:
        self._scheduler(None)

    def shown(self, run_id: str) -> None:
        """There is something new to show, nothing to decide."""
        self._wake(run_id)
        self._wake(ALL)
        self.alerts_changed()

    def ordered(self, attempt_id: str, order: Order) -> None:
        """A new order for this attempt's runner, durable by now. Handed over as it is: looking it up again would be
        the longest part of a stop's way. Orders are whole, so of two the one with the higher number counts; a sooner
        end of the capacity has no number of its own."""
        with self._lock:
            known = self._orders.get(attempt_id)
            if known is None or (order.seq, -order.preempt_deadline) >= (known.seq, -known.preempt_deadline):
                self._orders[attempt_id] = order
        self._wake(attempt_id)

    def order(self, attempt_id: str) -> Order | None:
        """The newest that was given while the server is up. Kept: two links of one runner may overlap."""
        with self._lock:
            return self._orders.get(attempt_id)

    def hears(self, attempt_id: str, node: int | None = None) -> bool:
        """Its runner is connected; of several, that of this node, or all that were."""
        topic = attempt_id if node is None else node_topic(attempt_id, node)
        with self._lock:
            return topic in self._waiters

    def links(self) -> int:
        """Runners that are connected, one per node."""
        with self._lock:
            return sum(1 for topic in self._waiters if "/" in topic)

    def heard(self, attempt_id: str, node: int, at: float) -> None:
        self._heard[node_topic(attempt_id, node)] = at

    def heard_at(self, attempt_id: str, node: int = 0) -> float | None:
        """When its runner last said something, as far as this server knows."""
        return self._heard.get(node_topic(attempt_id, node))

    def come(self, attempt_id: str, node: int, peer: Peer, *, nodes: int) -> None:
        """One of so many nodes of an attempt is ready. Not stored: whoever waits says so again when it reconnects."""
        with self._lock:
            come = self._come.setdefault(attempt_id, {})
            come[node] = peer
        if len(come) == nodes:  # the others sleep until then: they need not look at each that comes
            self._wake(attempt_id)

    def gang(self, attempt_id: str, nodes: int) -> Gang | None:
        """All nodes, once they have come."""
        with self._lock:
            come = self._come.get(attempt_id, {})
            return Gang([come[node] for node in range(nodes)]) if len(come) == nodes else None

    def rehearse(self, attempt_id: str, asked: Rehearse) -> None:
        with self._lock:
            self._rehearsals.setdefault(attempt_id, []).append(asked)
        self._wake(attempt_id)

    def rehearsals(self, attempt_id: str) -> list[Rehearse]:
        """Those that were not taken yet."""
        with self._lock:
            return self._rehearsals.pop(attempt_id, [])

    def ask_stacks(self, attempt_id: str, nodes: Iterable[int], asked: Stacks) -> None:
        """What was asked and not taken yet is not asked again: one answer is enough."""
        with self._lock:
            for node in nodes:
                waiting = self._stacks.setdefault(node_topic(attempt_id, node), [])
                if asked not in waiting:
                    waiting.append(asked)
        self._wake(attempt_id)

    def stacks_asked(self, attempt_id: str, node: int) -> list[Stacks]:
        """Those that were not taken yet."""
        with self._lock:
            return self._stacks.pop(node_topic(attempt_id, node), [])

    def over(self, attempt_id: str) -> None:
        """The attempt has ended: there is nothing more to show or to order."""
        with self._lock:
            self._orders.pop(attempt_id, None)
            self._rehearsals.pop(attempt_id, None)
            self._come.pop(attempt_id, None)
            for topic in [each for each in self._stacks if each.startswith(f"{attempt_id}/")]:
                del self._stacks[topic]
            self.ends += 1
        self.progress.pop(attempt_id, None)
        self.paces.pop(attempt_id, None)

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


def node_topic(attempt_id: str, node: int) -> str:
    return f"{attempt_id}/{node}"


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
