"""Who is told of what: set up by an admin, since it is the server that posts there. Addresses are secrets."""

import base64
import json
import secrets
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from whistlestop.domain.alerts import AlertKind
from whistlestop.domain.clock import iso
from whistlestop.domain.errors import BadRequest, NotFound, Refused, SpecInvalid
from whistlestop.domain.ids import new_id
from whistlestop.server.services import sending
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import alerts as store
from whistlestop.server.store import events, runs
from whistlestop.wire.alerts import DeliveryView, ReceiverBody, ReceiverView
from whistlestop.wire.mistakes import nearest
from whistlestop.wire.spec import Spec

Row = sa.Row[Any]
MOST = 100  # receivers: each that has something to send has a thread for that time


def add(context: Context, body: ReceiverBody, actor: Actor) -> ReceiverView:
    """The answer has what its webhooks are signed with: it is told this once."""
    kind, masked = _judge(body.address)
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode() if kind == sending.WEBHOOK else None
    with context.database.write() as connection:
        if len(store.all_receivers(connection)) >= MOST:
            raise Refused(f"there are {MOST} receivers already", hint="remove one: whistle alerts rm NAME")
        added = store.add_receiver(
            connection,
            name=body.name,
            kind=kind,
            address=context.vault.seal(body.address),
            masked=masked,
            secret=context.vault.seal(secret) if secret else None,
            project=body.project,
            only_named=body.only_named,
            kinds=body.on,
            after=events.newest(connection),
            created_at=context.clock(),
            created_by=actor.name,
        )
        if not added:
            raise Refused(
                f"there is a receiver called {body.name} already",
                hint=f"choose another name, or remove that one: whistle alerts rm {body.name}",
            )
        made = _one(connection, body.name)
    return _view(made, 0).model_copy(update={"secret": secret})


def listed(context: Context) -> list[ReceiverView]:
    with context.database.read() as connection:
        waiting = store.waiting(connection)
        return [_view(row, waiting.get(row.name, 0)) for row in store.all_receivers(connection)]


def remove(context: Context, name: str) -> None:
    with context.database.write() as connection:
        if not store.remove_receiver(connection, name):
            raise _unknown(connection, name)


def try_out(context: Context, name: str, actor: Actor) -> DeliveryView:
    """An alert like any other, in its turn; what a receiver has not taken is tried again at once."""
    now, delivery = context.clock(), new_id("w")
    with context.database.write() as connection:
        _one(connection, name)
        text = f"{actor.name} tries out the receiver {name}"
        body = {"id": delivery, "kind": AlertKind.TEST.value, "at": iso(now), "title": text, "text": text, "run": None}
        values = {"delivery": delivery, "receiver": name, "event": None, "kind": AlertKind.TEST.value, "run_id": None}
        store.queue(connection, [{**values, "title": text, "body": json.dumps(body), "created_at": now}])
        store.update_receiver(connection, name, next_at=0.0)
        [row] = store.log(connection, delivery=delivery, limit=1)
        behind = store.waiting(connection)[name] - 1
    context.hub.alerts_changed()
    return _delivery(row, behind)


def deliveries(
    context: Context,
    *,
    receiver: str | None = None,
    run: str | None = None,
    state: str | None = None,
    delivery: str | None = None,
    limit: int = 100,
) -> list[DeliveryView]:
    """The newest first."""
    with context.database.read() as connection:
        run_id = runs.resolve(connection, run).id if run is not None else None
        found = store.log(connection, receiver=receiver, run_id=run_id, state=state, delivery=delivery, limit=limit)
        behind = store.before_them(connection, found)
    return [_delivery(row, behind.get(row.id, 0)) for row in found]


def check(connection: sa.Connection, spec: Spec) -> None:
    """Raise SpecInvalid if a run names somebody who is not there: nobody would ever notice."""
    if not spec.alerts:
        return
    there = {row.name: row for row in store.all_receivers(connection)}
    for alert in spec.alerts:
        found = there.get(alert.to)
        if found is None:
            hint = nearest(alert.to, there) or "an admin adds one: whistle alerts add NAME URL"
            raise SpecInvalid(f"there is no receiver {alert.to} for its alerts", hint=hint)
        if found.project not in (None, spec.project):
            raise SpecInvalid(
                f"the receiver {alert.to} is of project {found.project}, and this run of {spec.project}",
                hint="name one of this project, or of all: whistle alerts ls",
            )


def _judge(address: str) -> tuple[str, str]:
    """What kind it is, and what may be shown of it. Raise BadRequest if nothing can be sent there."""
    try:
        parts = urlsplit(address)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise BadRequest(f"this is no address: {error}", hint="https://… or an address of apprise") from error
    if any(letter.isspace() for letter in address) or not parts.scheme:
        raise BadRequest("this is no address", hint="https://… or an address of apprise, such as mailto://…")
    if parts.scheme in ("http", "https"):
        if not host:
            raise BadRequest("the address names no host", hint="https://hooks.example.org/…")
        return sending.WEBHOOK, f"{parts.scheme}://{host}/…"
    sending.check_apprise(address)
    return sending.APPRISE, f"{parts.scheme}://…"


def _one(connection: sa.Connection, name: str) -> Row:
    found = store.receiver(connection, name)
    if found is None:
        raise _unknown(connection, name)
    return found


def _unknown(connection: sa.Connection, name: str) -> NotFound:
    hint = nearest(name, [row.name for row in store.all_receivers(connection)]) or "whistle alerts ls shows them"
    return NotFound(f"there is no receiver {name}", hint=hint)


def _view(row: Row, waiting: int) -> ReceiverView:
    return ReceiverView(
        name=row.name,
        kind=row.kind,
        address=row.masked,
        project=row.project,
        only_named=row.only_named,
        on=list(row.kinds),
        created_at=iso(row.created_at),
        created_by=row.created_by,
        waiting=waiting,
        sent_at=iso(row.sent_at) if row.sent_at else None,
        failing_since=iso(row.failing_since) if row.failing_since else None,
        next_at=iso(row.next_at) if row.failing_since and row.next_at else None,
        error=row.error,
    )


def _delivery(row: Row, behind: int = 0) -> DeliveryView:
    return DeliveryView(
        id=row.delivery,
        receiver=row.receiver,
        kind=row.kind,
        title=row.title,
        run=row.run_id,
        event=row.event,
        state=row.state,
        created_at=iso(row.created_at),
        ended_at=iso(row.ended_at) if row.ended_at else None,
        tries=row.tries,
        error=row.error,
        behind=behind,
    )
