"""What a queued phase waits for, in a sentence."""

from collections.abc import Mapping, Sequence

from whistlestop.capacity.choose import Candidate, Wants
from whistlestop.capacity.room import Place, Room

_NAMED = 3  # pools that are named one by one


def explain(
    wants: Wants, found: Sequence[Candidate], room: Room, *, position: int, shut: Mapping[Place, str] | None = None
) -> str:
    """`found`: the pools that it may use. `position`: in the queue, from 1."""
    need = f"{wants.slots} slot{'s' if wants.slots != 1 else ''}"
    if not found:
        return f"{need} of {_asked(wants)}: there is no such pool now"
    large = [each for each in found if room.largest(each.pool.name) >= wants.slots]
    if not large:
        return _too_small(need, wants, found, room, shut or {})
    behind = f", behind {position - 1} other{'s' if position != 2 else ''}" if position > 1 else ""
    out = _excluded(large, room, shut or {})
    if len(large) == 1:
        only = large[0]
        free = f"{room.free_in(only.pool.name)} of {only.pool.slots} free{_scattered(wants, only, room)}"
        nxt = ", starts next" if not behind and room.most_on_one_host(only.pool.name) >= wants.slots else ""
        trouble = f"; {only.trouble}" if only.trouble else ""
        return f"{need} of pool {only.pool.name}: {free}{behind}{nxt}{trouble}{out}"
    each = [
        f"{one.pool.name} ({room.free_in(one.pool.name)} of {one.pool.slots} free{_scattered(wants, one, room)})"
        for one in large[:_NAMED]
    ]
    more = f" or {len(large) - _NAMED} more" if len(large) > _NAMED else ""
    trouble = "".join(f"; {one.pool.name}: {one.trouble}" for one in large[:_NAMED] if one.trouble)
    return f"{need} of pool {' or '.join(each)}{more}{behind}{trouble}{out}"


def _excluded(found: Sequence[Candidate], room: Room, shut: Mapping[Place, str]) -> str:
    """Hosts that have a free slot, and are not used."""
    names = {each.pool.name: each.pool for each in found}
    words = [
        f"; {_host(pool.name, host.name)} is not used now ({shut[pool.name, host.name]})"
        for pool in names.values()
        for host in pool.by_host
        if (pool.name, host.name) in shut and any(slot not in pool.taken for slot in host.slots)
    ]
    return "".join(words[:_NAMED])


def _host(pool: str, host: str) -> str:
    return f"host {host} of {pool}" if host else f"pool {pool}"


def _scattered(wants: Wants, candidate: Candidate, room: Room) -> str:
    name = candidate.pool.name
    if room.free_in(name) < wants.slots or room.most_on_one_host(name) >= wants.slots:
        return ""
    return f", at most {room.most_on_one_host(name)} on one host"


def _too_small(need: str, wants: Wants, found: Sequence[Candidate], room: Room, shut: Mapping[Place, str]) -> str:
    names = {each.pool.name for each in found}
    out = [
        (place, why)
        for place, why in shut.items()
        if place[0] in names
        and any(host.name == place[1] and len(host.slots) >= wants.slots for host in room.pools[place[0]].by_host)
    ]
    pools = " or ".join(each.pool.name for each in found[:_NAMED])
    if out:
        (pool, host), why = out[0]
        return f"{need} of pool {pools}: {_host(pool, host)} is not used now ({why}): readmit it, or wait"
    largest = max(found, key=lambda each: room.largest(each.pool.name)).pool
    if not largest.slots:
        away = "which has" if len(found) == 1 else "which have"
        return f"{need} of pool {pools}, {away} no slots now: it starts when there are some"
    if len(largest.by_host) > 1:
        return (
            f"{need} on one host of pool {pools}, where the largest has {room.largest(largest.name)}: "
            "add a larger host or ask for fewer"
        )
    return f"{need} of pool {pools}, which has {largest.slots} in all: make the pool larger or ask for fewer"


def _asked(wants: Wants) -> str:
    words = [f"class {wants.kind}"] if wants.kind else []
    words += [f"region {wants.region}"] if wants.region else []
    words += [f"market {wants.market}"] if wants.market != "any" else []
    pool = f"pool {' or '.join(wants.pools)}" if wants.pools else "a pool"
    return f"{pool}{' of ' + ', '.join(words) if words else ''}"
