"""From events to the outbox: each event gives each receiver its alert once, whatever crashes in between.

The cursor over the events moves in the transaction that writes the alerts. Events that nobody is told of move it in
memory alone: looking at them again costs nothing, and writing for each of them would.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.alerts import ENDED, EVENTS, OFTEN, SAYS, AlertKind, kind_of, often
from whistlestop.domain.clock import iso
from whistlestop.domain.errors import SpecInvalid
from whistlestop.domain.ids import new_id
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import alerts as store
from whistlestop.server.store import events as events_store
from whistlestop.server.store import runs as runs_store
from whistlestop.wire.spec import AlertSpec

log = logging.getLogger(__name__)
Row = sa.Row[Any]
AT_ONCE = 200  # events in one transaction
BEHIND = 5000  # events that the cursor on the disk may lag behind
MOST_TEXT = 4000  # characters: a receiver that refuses a long one refuses it for ever
MOST_DATA = 8000  # bytes of an event's own data that are sent along
_STANDS = ("stuck", "finding", "going_again", "finding_over", "program_started")


class Follower:
    """One of them, in one thread. Those who `heard` are told of every event that matters, once per life of the server;
    what goes wrong there is theirs alone."""

    def __init__(
        self, context: Context, url: Callable[[], str], heard: Sequence[Callable[[Sequence[Row]], None]] = ()
    ) -> None:
        self._context, self._url, self._heard = context, url, heard
        with context.database.read() as connection:
            self._stored = self._seq = store.cursor(connection)
            self._begun = events_store.newest(connection)  # what is older, an earlier life has told of

    def follow(self) -> bool:
        """True: there was so much that there may be more."""
        with self._context.database.read() as connection:
            upto, found = store.news(connection, self._seq, EVENTS, AT_ONCE)
            anybody = bool(store.all_receivers(connection)) if found else False
        if anybody or upto - self._stored > BEHIND:
            with self._context.database.write() as connection:
                there = store.all_receivers(connection)
                made = [alert for event in found for alert in self._alerts(connection, event, there)]
                if made:
                    store.queue(connection, made)
                if made or upto - self._stored > BEHIND:
                    store.move_cursor(connection, upto)
                    self._stored = upto
        self._seq = upto
        fresh = [event for event in found if event.seq > self._begun]
        for hear in self._heard if fresh else ():
            try:
                hear(fresh)
            except Exception:
                log.exception("what has ended could not be counted or traced")
        return len(found) == AT_ONCE

    def _alerts(self, connection: sa.Connection, event: Row, there: Sequence[Row]) -> Iterable[dict[str, Any]]:
        kind, text = self._kind(connection, event)
        if kind is None:
            return
        run = runs_store.by_id(connection, [event.run_id]).get(event.run_id)
        if run is None:
            return  # deleted meanwhile
        for receiver in there:
            if event.seq > receiver.after and _wants(receiver, run, kind):
                yield self._alert(receiver, event, run, kind, text)

    def _kind(self, connection: sa.Connection, event: Row) -> tuple[AlertKind | None, str]:
        if event.kind == ENDED:
            return self._lost_again(connection, event)
        kind = kind_of(event.kind, event.data)
        if kind is AlertKind.STUCK and _told(connection, event):
            return None, ""
        return kind, event.text

    def _lost_again(self, connection: sa.Connection, event: Row) -> tuple[AlertKind | None, str]:
        """Of an attempt on several nodes each says that it has ended; the attempt counts once."""
        losses = store.losses(connection, event.run_id, event.attempt or 0, OFTEN + 1)
        subject = f"{event.run_id}/{event.attempt}"
        if not often(losses) or not store.begin(connection, AlertKind.PREEMPTED_OFTEN, subject, self._context.clock()):
            return None, ""
        minutes = max(1, round((losses[0] - losses[OFTEN - 1]) / 60))
        within = f"{minutes} minute{'s' if minutes > 1 else ''}"
        text = f"it has lost its capacity {OFTEN} times within {within}; the last time: {event.text}"
        return AlertKind.PREEMPTED_OFTEN, text

    def _alert(self, receiver: Row, event: Row, run: Row, kind: AlertKind, text: str) -> dict[str, Any]:
        delivery, now = new_id("w"), self._context.clock()
        title = f"Run #{run.number} {run.project}/{run.name} {SAYS[kind]}"
        data = event.data if len(json.dumps(event.data)) <= MOST_DATA else {}
        body = {
            "id": delivery,
            "kind": kind.value,
            "at": iso(event.at),
            "title": title,
            "text": f"{_cut(text)}\n{self._url()}/runs/{run.id}",
            "run": {
                "id": run.id,
                "number": run.number,
                "name": run.name,
                "project": run.project,
                "status": run.state,
                "url": f"{self._url()}/runs/{run.id}",
            },
            "event": {
                "seq": event.seq,
                "kind": event.kind,
                "text": _cut(event.text),
                "phase": event.phase,
                "attempt": event.attempt,
                "data": data,
            },
        }
        return {
            "delivery": delivery,
            "receiver": receiver.name,
            "event": event.seq,
            "kind": kind.value,
            "run_id": run.id,
            "title": title,
            "body": json.dumps(body),
            "created_at": now,
        }


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def _wants(receiver: Row, run: Row, kind: AlertKind) -> bool:
    """By its own set-up, or because the run names it."""
    mine = receiver.project in (None, run.project)
    if mine and not receiver.only_named and kind in receiver.kinds:
        return True
    return any(mine and alert.to == receiver.name and kind in (alert.on or receiver.kinds) for alert in _named(run))


def _named(run: Row) -> tuple[AlertSpec, ...]:
    try:
        return spec_of(run.spec).alerts
    except SpecInvalid:  # of another version: its project's receivers hear of it all the same
        return ()


def _told(connection: sa.Connection, event: Row) -> bool:
    """Its runner said so, or a finding did, and it has not gone on since: both tell of the same."""
    for before in store.before(connection, event.run_id, event.seq, _STANDS, 50):
        if before.kind == "stuck" or (before.kind == "finding" and before.data.get("cause") == "stuck"):
            return True
        if before.kind != "finding" and (before.kind != "finding_over" or before.data.get("cause") == "stuck"):
            return False
    return False
