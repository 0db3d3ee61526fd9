"""Reads the run's stream in a thread of its own and hands over what it says, in order, through one queue."""

import math
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress

from whistlestop.cli.watching.known import Connection, Failed, Fresh, Over, Progressed, Said
from whistlestop.client.client import Client
from whistlestop.client.stream import Message
from whistlestop.domain.errors import NotFound, ServerUnreachable
from whistlestop.wire.api import EventView, LogLineView, ProgressView, RunView

TAIL = 2000  # lines of the log to begin with
EVENTS = 1000  # and of the events
MOST_WAITING = 20_000  # messages; a program that prints faster than a terminal shows is held back here, not in memory
TOPICS = ("run", "events", "logs", "progress", "series")
MARKS = frozenset({"evaluation", "epoch", "placed", "preparing", "program_started", "attached", "training"})


class Feed:
    def __init__(self, client: Client, run_id: str) -> None:
        self._client, self._run = client, run_id
        self._queue: queue.Queue[Said] = queue.Queue(MOST_WAITING)
        self._stopped = threading.Event()
        # A daemon: it may stand in a read that nothing interrupts, and leaving must not wait for it.
        self._thread = threading.Thread(target=self._work, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def take(self, most: int) -> Iterator[Said]:
        with suppress(queue.Empty):
            for _ in range(most):
                yield self._queue.get_nowait()

    def _work(self) -> None:
        try:
            self._read()
        except Exception as error:  # whatever it is, the page must end with it, not freeze
            self._put(Failed(error))

    def _read(self) -> None:
        page = self._client.logs(self._run, tail=TAIL)
        for line in page.lines:
            self._put(line)
        seen = self._past_events()
        for message in self._client.stream(
            self._run,
            TOPICS,
            last_id=f"e{seen};l{page.cursor};m",
            give_up_after=math.inf,
            stopped=self._stopped.is_set,
            on_state=lambda stands: self._put(Connection(stands)),
        ):
            for said in read(message):
                self._put(said)
        if not self._stopped.is_set():
            self._put(Over(self._last_view()))

    def _past_events(self) -> int:
        found = self._client.events(self._run, newest=True, limit=EVENTS)
        for event in found:
            self._put(event)
        return found[-1].seq if found else 0

    def _last_view(self) -> RunView | None:
        while not self._stopped.is_set():
            try:
                return self._client.run(self._run)
            except NotFound:
                return None
            except ServerUnreachable:
                self._stopped.wait(0.5)
        return None

    def _put(self, said: Said) -> None:
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._queue.put(said, timeout=0.2)
                return


def read(message: Message) -> Iterator[Said]:
    match message.kind:
        case "run":
            yield RunView.model_validate(message.data, extra="ignore")
        case "log":
            yield LogLineView.model_validate(message.data, extra="ignore")
        case "event":
            yield EventView.model_validate(message.data, extra="ignore")
        case "progress":
            progress = ProgressView.model_validate(message.data["progress"], extra="ignore")
            yield Progressed(message.data["phase"], progress, message.data.get("eta_s"))
        case "points" | "series":
            yield Fresh()
        case _:
            return
