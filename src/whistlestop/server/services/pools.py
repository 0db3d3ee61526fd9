"""Pools as people see and change them. A change wakes the scheduler; what runs already runs on as it was."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.capacity.pools import Host, hosts_of
from whistlestop.domain.clock import iso
from whistlestop.domain.credits import priced
from whistlestop.domain.errors import BadRequest, NotFound, Refused
from whistlestop.server.services.context import Context
from whistlestop.server.services.hosts import excluded_hosts
from whistlestop.server.store import pools as store
from whistlestop.wire.pool_file import parse_pools
from whistlestop.wire.pools import (
    MOST_SLOTS,
    Applied,
    ApplyBody,
    HolderView,
    NewPool,
    PoolBody,
    PoolChange,
    PoolHostView,
    PoolView,
    on_words,
)

Row = sa.Row[Any]
OWN = "local"  # this machine: `whistle up` makes it
DAY = 86400.0
MOST_SIZES = 100
DEFAULTS: Mapping[str, Any] = {
    "engine": "local", "provider": "", "region": "", "kind": "", "market": "on_demand",
    "slots": 0, "price": 1.0, "rank": 0, "hosts": [], "notices": {}, "devices": None, "settings": {},
}  # fmt: skip
WORDS = {"kind": "class"}
_WHERE = ("engine", "address", "directory", "conf")  # by which the attempts of a pool are found again


def views(context: Context, connection: sa.Connection, name: str | None = None) -> list[PoolView]:
    now = context.clock()
    holders, excluded = store.holders(connection), excluded_hosts(context, connection)
    return [
        _view(connection, row, holders.get(row.name, []), excluded, now)
        for row in store.all_pools(connection)
        if name in (None, row.name)
    ]


def view(context: Context, connection: sa.Connection, name: str) -> PoolView:
    found = views(context, connection, name)
    if not found:
        raise NotFound(f"there is no pool {name}", hint="whistle pools shows them")
    return found[0]


def add(context: Context, body: NewPool) -> PoolView:
    with context.database.write() as connection:
        if store.get(connection, body.name) is not None:
            raise Refused(f"there is a pool {body.name} already", hint=f"change it: whistle pools set {body.name}")
        _put(context, connection, body.name, _new(body.name, body))
        made = view(context, connection, body.name)
    context.hub.capacity_changed()
    return made


def replace(context: Context, name: str, body: PoolBody) -> tuple[PoolView, bool]:
    """As it is given, the rest by default. True: it was not there."""
    with context.database.write() as connection:
        before = store.get(connection, name)
        values = _new(name, body)
        _put(context, connection, name, values)
        made = view(context, connection, name)
    context.hub.capacity_changed()
    return made, before is None


def change(context: Context, name: str, body: PoolBody) -> PoolView:
    """The price holds for attempts that start from now on; a smaller pool lets what runs run on."""
    with context.database.write() as connection:
        row = store.get(connection, name)
        if row is None:
            raise NotFound(f"there is no pool {name}", hint="whistle pools shows them")
        _put(context, connection, name, _changed(row, body))
        made = view(context, connection, name)
    context.hub.capacity_changed()
    return made


def follow(context: Context, name: str, slots: int) -> None:
    """Its cluster has so many now."""
    with context.database.write(durable=False) as connection:
        row = store.get(connection, name)
        slots = min(slots, MOST_SLOTS)
        if row is None or not row.settings.get("follow") or row.slots == slots:
            return
        store.put(connection, name, at=context.clock(), slots=slots)
    context.hub.capacity_changed()


def remove(context: Context, name: str) -> None:
    with context.database.write() as connection:
        if store.get(connection, name) is None:
            raise NotFound(f"there is no pool {name}", hint="whistle pools shows them")
        _remove(context, connection, name)
    context.hub.capacity_changed()


def apply(context: Context, body: ApplyBody) -> Applied:
    """All of the file or nothing. What it does not name, pool or key, is left alone."""
    wanted = parse_pools(body.spec)
    changes: list[PoolChange] = []
    with contextlib.suppress(_OnlyAsked), context.database.write() as connection:
        before = {row.name: row for row in store.all_pools(connection)}
        changes += [_apply_one(context, connection, pool, before.get(pool.name)) for pool in wanted]
        named = {OWN, *(pool.name for pool in wanted)}
        for name in sorted(before.keys() - named) if body.prune else ():
            _remove(context, connection, name)
            changes.append(PoolChange(pool=name, change="removed", text="removed"))
        if body.dry_run:
            raise _OnlyAsked  # what would be refused has been refused by now
    if not body.dry_run:
        context.hub.capacity_changed()
    return Applied(changes=changes, done=not body.dry_run)


class _OnlyAsked(Exception):
    """Nothing of it is kept."""


def _apply_one(context: Context, connection: sa.Connection, pool: NewPool, row: Row | None) -> PoolChange:
    values = _new(pool.name, pool) if row is None else _changed(row, pool)
    if row is None:
        _put(context, connection, pool.name, values)
        slots = f"{values['slots']} slot{'s' if values['slots'] != 1 else ''}"
        return PoolChange(
            pool=pool.name,
            change="added",
            text=f"added: {slots}, {values['market']}, {priced(values['price'])} per slot-hour",
        )
    said = [
        f"{WORDS.get(key, key)} {_shown(getattr(row, key))} → {_shown(value)}"
        for key, value in values.items()
        if value != getattr(row, key)
    ]
    if not said:
        return PoolChange(pool=pool.name, change="same", text="as it is")
    _put(context, connection, pool.name, values)
    return PoolChange(pool=pool.name, change="changed", text=", ".join(said))


def _shown(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return " ".join(f"{each['name']}:{each['slots']}" for each in value)
    if isinstance(value, dict):
        return " ".join(f"{key}={where}" for key, where in value.items()) or "none"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value) if value not in ("", None) else "none"


def _new(name: str, body: PoolBody) -> dict[str, Any]:
    values = {**DEFAULTS, **_given(body)}
    if _follows(values, body, before=True):
        return values
    if body.slots is None and not values["hosts"]:
        raise BadRequest(f"pool {name}: how many slots does it have?", hint="give slots (0: it is away), or hosts")
    if body.slots is None:
        values["slots"] = _room(values["hosts"])
    return values


def _changed(row: Row, body: PoolBody) -> dict[str, Any]:
    given = _given(body)
    values = {**{key: getattr(row, key) for key in DEFAULTS}, **given}
    _follows(values, body, before=bool(row.settings.get("follow")))
    if body.slots is None and values["hosts"] != row.hosts and values["hosts"]:
        values["slots"] = _room(values["hosts"])  # its size follows its hosts
    return values


def _follows(values: dict[str, Any], body: PoolBody, *, before: bool) -> bool:
    """Who says how many slots there are is believed; else a cluster that can tell does."""
    settings = values["settings"]
    if "follow" in settings:
        follows = body.slots is None and not values["hosts"] and (before or settings["follow"])
        values["settings"] = {**settings, "follow": follows}
    return bool(values["settings"].get("follow"))


def _given(body: PoolBody) -> dict[str, Any]:
    values = body.given()
    values.pop("name", None)
    if "devices" in values:
        values["devices"] = values["devices"] or None
    return values


def _room(hosts: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(each["slots"]) for each in hosts)


def _put(context: Context, connection: sa.Connection, name: str, values: Mapping[str, Any]) -> None:
    _judge(name, values)
    row = store.get(connection, name)
    if row is not None:
        _check_places(name, row, values, store.holders(connection).get(name, []))
    store.put(connection, name, at=context.clock(), **values)


def _judge(name: str, values: Mapping[str, Any]) -> None:
    hosts, slots, devices = values["hosts"], values["slots"], values["devices"]
    names = [each["name"] for each in hosts]
    if len(set(names)) != len(names):
        raise BadRequest(f"pool {name}: two of its hosts have the same name", hint="a host is named once")
    if hosts and slots > _room(hosts):
        raise BadRequest(
            f"pool {name}: {slots} slots are more than its hosts have, {_room(hosts)}", hint="change the hosts, too"
        )
    if _room(hosts) > MOST_SLOTS:
        raise BadRequest(f"pool {name}: its hosts have more than {MOST_SLOTS} slots in all")
    if devices is not None and len(devices) < max(slots, _room(hosts)):
        raise BadRequest(
            f"pool {name}: {len(devices)} devices for {max(slots, _room(hosts))} slots",
            hint="name a device for each slot, or none at all",
        )


def _check_places(name: str, row: Row, values: Mapping[str, Any], held: Sequence[Row]) -> None:
    """A slot that is held stays what it is: under another host or device, it would be given away a second time."""
    was, now = {**row.settings, "engine": row.engine}, {**values["settings"], "engine": values["engine"]}
    for key in _WHERE:
        if held and was.get(key) != now.get(key):
            raise Refused(
                f"pool {name}: run #{held[0].run_number} is there, and would not be found under another {key}",
                hint="make another pool of it, or wait until nothing runs on this one",
            )
    before, after = _owners(row.hosts), _owners(values["hosts"])
    for attempt in held:
        for slot in attempt.slots:
            owner, device = after.get(slot), _device(values["devices"], slot)
            if owner not in (None, before.get(slot, attempt.host)) or device != _device(row.devices, slot):
                raise Refused(
                    f"pool {name}: slot {slot} is held by run #{attempt.run_number} and would be another one",
                    hint="add hosts and devices behind those that are there, or wait until it is free",
                )


def _owners(hosts: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    return {slot: host.name for host in hosts_of(hosts, MOST_SLOTS) for slot in host.slots}


def _device(devices: Sequence[int] | None, slot: int) -> int | None:
    return slot if devices is None else devices[slot] if slot < len(devices) else None


def _remove(context: Context, connection: sa.Connection, name: str) -> None:
    if name == OWN:
        raise Refused(
            f"pool {OWN} is this machine, and made again at every start", hint=f"whistle pools set {OWN} --slots 0"
        )
    held = sorted({row.run_number for row in store.holders(connection).get(name, [])})
    if held:
        more = f" and {len(held) - 5} more" if held[5:] else ""
        shown = f"run{'s' if held[1:] else ''} {', '.join(f'#{number}' for number in held[:5])}{more}"
        shown += " are" if held[1:] else " is"
        raise Refused(
            f"pool {name} can't be removed: {shown} still there",
            hint=f"whistle pools set {name} --slots 0, and remove it when they have left",
        )
    store.remove(connection, name, at=context.clock())


def _view(
    connection: sa.Connection, row: Row, held: Sequence[Row], excluded: Collection[tuple[str, str]], now: float
) -> PoolView:
    taken = {slot for attempt in held for slot in attempt.slots}
    reclaims, seconds = store.record(connection, row.name, since=now - DAY)
    seconds += sum(now - max(attempt.started_at, now - DAY) for attempt in held)
    hosts = [
        PoolHostView(
            name=host.name,
            first=host.slots[0] if host.slots else 0,
            slots=len(host.slots),
            free=sum(1 for slot in host.slots if slot not in taken),
            excluded=(row.name, host.name) in excluded,
        )
        for host in hosts_of(row.hosts, row.slots) or (Host("", tuple(range(row.slots))),)
    ]
    return PoolView(
        name=row.name,
        engine=row.engine,
        on=on_words(row.engine, row.settings),
        provider=row.provider,
        region=row.region,
        kind=row.kind,
        market=row.market,
        slots=row.slots,
        free=sum(host.free for host in hosts if not host.excluded),
        price=row.price,
        rank=row.rank,
        hosts=hosts,
        notices=row.notices,
        devices=row.devices,
        settings=row.settings,
        reclaims=reclaims,
        held_hours=seconds / 3600.0,
        holders=[_holder(attempt) for attempt in held],
        sizes=[(each.at, each.slots) for each in store.sizes(connection, row.name, newest=MOST_SIZES)],
    )


def _holder(attempt: Row) -> HolderView:
    return HolderView(
        run=attempt.run_id,
        number=attempt.run_number,
        name=attempt.run_name,
        project=attempt.project,
        phase=attempt.phase,
        attempt=attempt.number,
        slots=attempt.slots,
        host=attempt.host,
        since=iso(attempt.started_at),
        leaves_at=iso(attempt.preempt_at) if attempt.preempt_at is not None else None,
    )
