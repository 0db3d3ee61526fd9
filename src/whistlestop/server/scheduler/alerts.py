"""Alerts on their way: one thread follows the events and looks around, and each receiver that something waits for has
one of its own while it does. A dead receiver holds up nobody, and the scheduler and the API hold up nobody here."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.alerts import GIVE_UP, AlertKind, pause_after
from whistlestop.domain.errors import WhistleError
from whistlestop.server.scheduler.aside import Aside
from whistlestop.server.services import alert_watch, sending
from whistlestop.server.services.alerting import Follower
from whistlestop.server.services.context import Context
from whistlestop.server.store import alerts as store

log = logging.getLogger(__name__)
Row = sa.Row[Any]
BREATH = 0.25  # seconds between two looks at the events, however many there are
TICK = 5.0  # seconds without a word after which it looks all the same
LOOK = 15.0  # seconds between two looks at what no event tells
TIDY = 3600.0
JITTER = 1.0  # seconds by which a clock may be set back and nobody cares
KEPT = 14 * 86400.0  # seconds for which the log knows what was sent
UNWRITTEN = 30.0  # seconds before a receiver is tried again of which nothing could be written down, on a full disk


class Alerts:
    def __init__(
        self,
        context: Context,
        url: Callable[[], str],
        *,
        heard: Sequence[Callable[[Sequence[Row]], None]] = (),
        look: float = LOOK,
    ) -> None:
        self._context, self._look = context, look
        self._follower = Follower(context, url, heard)
        self._aside = Aside()
        self._taken: set[int] = set()  # alerts that were taken, and the database could not be told so
        self._paused: dict[str, float] = {}  # receivers whose next time could not be written, by the monotonic clock
        self._woken, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is being sent may be cut off: it is sent again, as the same delivery."""
        self._stopping.set()
        self._woken.set()
        self._thread.join(timeout=10)

    def wake(self) -> None:
        if not self._woken.is_set():  # it is called at every step of every run
            self._woken.set()

    def _run(self) -> None:
        look_at, tidy_at, due_in = time.monotonic() + self._look, 0.0, 0.0
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + self._look
                    alert_watch.watch(self._context)
                while self._follower.follow():
                    pass
                due_in = self._deliver_due()
                if time.monotonic() >= tidy_at:
                    tidy_at = time.monotonic() + TIDY
                    self._tidy()
            except Exception:
                # Whatever it is, the events and the outbox are still there: it is tried again.
                log.exception("alerts could not be looked at; it is tried again")
                due_in = TICK
            self._stopping.wait(BREATH)
            self._woken.wait(max(0.0, min(TICK, due_in, look_at - time.monotonic())))

    def _deliver_due(self) -> float:
        """Seconds until the next one is."""
        due_in = TICK
        with self._context.database.read() as connection:
            found = store.expecting(connection)
        now, tick = self._context.clock(), time.monotonic()
        for receiver in found:
            wait = receiver.next_at - now
            if wait > pause_after(receiver.failures) + JITTER:
                wait = 0.0  # nobody asked for so long a pause: the clock was set back
            wait = max(wait, self._paused.get(receiver.name, tick) - tick)
            if wait <= 0:
                self._aside.soon(receiver.name, partial(self._deliver, receiver.name))
            else:
                due_in = min(due_in, wait)
        return due_in

    def _deliver(self, name: str) -> None:
        """In their order, until all are taken or one is not."""
        try:
            while not self._stopping.is_set() and deliver_one(self._context, name, self._taken):
                pass
            self._paused.pop(name, None)
        except Exception:
            self._paused[name] = time.monotonic() + UNWRITTEN
            raise
        finally:
            self.wake()  # something may have come when this had seen that there is nothing

    def _tidy(self) -> None:
        now = self._context.clock()
        with self._context.database.write(durable=False) as connection:
            store.give_up(connection, now - GIVE_UP, at=now)
            store.forget(connection, now - KEPT, kind=AlertKind.PREEMPTED_OFTEN)


def deliver_one(context: Context, name: str, taken: set[int]) -> bool:
    """False: there is nothing to send, or it was not taken. Those in `taken` are not sent again, only written down."""
    with context.database.read() as connection:
        receiver, alert = store.receiver(connection, name), store.head(connection, name)
    if receiver is None or alert is None:
        return False
    error = None if alert.id in taken else _send(context, receiver, alert)
    now = context.clock()
    if error is None:
        taken.add(alert.id)
        with context.database.write() as connection:
            store.update(
                connection, alert.id, state=store.SENT, ended_at=now, tries=store.MORE_TRIES, error=""
            )  # fmt: skip
            store.update_receiver(
                connection, name, failures=0, failing_since=None, next_at=0.0, error="", sent_at=now
            )  # fmt: skip
        taken.discard(alert.id)
        return True
    log.warning("alert %s is not taken by %s: %s; it is tried again", alert.delivery, name, error)
    failures, late = receiver.failures + 1, now - alert.created_at > GIVE_UP
    ended = {"state": store.GIVEN_UP, "ended_at": now} if late else {}
    with context.database.write(durable=False) as connection:
        store.update(connection, alert.id, tries=store.MORE_TRIES, error=error, **ended)
        store.update_receiver(
            connection,
            name,
            failures=failures,
            failing_since=receiver.failing_since or now,
            next_at=now + pause_after(failures),
            error=error,
        )
    return False


def _send(context: Context, receiver: Row, alert: Row) -> str | None:
    try:
        address = context.vault.unseal(receiver.name, receiver.address)
        secret = context.vault.unseal(receiver.name, receiver.secret) if receiver.secret else None
    except WhistleError:
        return "its address can't be opened with this server's key: add it again"
    try:
        return sending.send(
            receiver.kind,
            address,
            secret,
            delivery=alert.delivery,
            title=alert.title,
            body=alert.body,
            at=context.clock(),
        )
    except Exception as error:  # a library's mistake is one more way not to be taken
        log.exception("sending to %s failed", receiver.name)
        return type(error).__name__
