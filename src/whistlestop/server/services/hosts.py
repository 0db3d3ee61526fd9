"""Hosts as people see them, and what people say of them: not this one, or this one again."""

from collections import Counter
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from whistlestop.capacity.hosts import End
from whistlestop.domain.clock import iso
from whistlestop.domain.errors import NotFound, Refused
from whistlestop.domain.reasons import OUTCOMES
from whistlestop.server.services import standing
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.services.standing import HostStanding
from whistlestop.server.store import pools as store
from whistlestop.wire.pools import BadEndView, ExcludeBody, HostDone, HostView, ReadmitBody

WEEK = 7 * 86400.0
MOST_BAD = 20  # ends of one host, in an answer

Place = tuple[str, str]


def views(context: Context, connection: sa.Connection) -> list[HostView]:
    """Those that a pool names; and where it names none, those that its runners have told of in the last week."""
    now = context.clock()
    said, running = store.all_hosts(connection), Counter[Place]()
    for pool, held in store.holders(connection).items():
        running.update((pool, attempt.host) for attempt in held if attempt.host)
    ended = {
        (row.name, host): count
        for row in store.all_pools(connection)
        for host, count in store.ended_on_hosts(connection, row.name, since=now - WEEK).items()
    }
    found = []
    for each in standing.standings(connection, now):
        place = (each.pool, each.name)
        if each.name:
            words = said.get(place)
            since = words.excluded_at if words is not None and each.excluded and each.by else None
            counts = (ended.get(place, 0), running[place])
            found.append(_view(each, counts, since, words.note if words is not None else ""))
        else:
            told = sorted(told for told in {*ended, *running} if told[0] == each.pool)
            found += [_told(at, (ended.get(at, 0), running[at]), said.get(at), now) for at in told]
    return found


def excluded_hosts(context: Context, connection: sa.Connection) -> Collection[Place]:
    return {(each.pool, each.name) for each in standing.standings(connection, context.clock()) if each.excluded}


def exclude(context: Context, pool: str, name: str, body: ExcludeBody, actor: Actor) -> HostDone:
    """Nothing is placed there until it is over. What runs there runs on."""
    now = context.clock()
    until = now + body.for_s if body.for_s is not None else None
    with context.database.write() as connection:
        _find(context, connection, pool, name)
        store.put_host(
            connection,
            pool,
            name,
            excluded_at=now,
            excluded_until=until,
            excluded_by=actor.name,
            note=body.note,
        )
        view = _find(context, connection, pool, name)
    context.hub.capacity_changed()
    lasts = f"until {iso(until)}" if until is not None else "until it is readmitted"
    rest = f"; what runs there runs on ({view.running})" if view.running else ""
    return HostDone(host=view, changed=True, text=f"host {name} of pool {pool} is excluded {lasts}{rest}")


def readmit(context: Context, pool: str, name: str, body: ReadmitBody) -> HostDone:
    """What it did before counts no more, also if the clock was set back since."""
    now = context.clock()
    with context.database.write() as connection:
        before = _find(context, connection, pool, name)
        here = [each for each in standing.standings(connection, now) if (each.pool, each.name) == (pool, name)]
        at = max([now, *(end.at for each in here for end in each.bad_ends)])
        store.put_host(connection, pool, name, readmitted_at=at, excluded_at=None, excluded_until=None, note=body.note)
        view = _find(context, connection, pool, name)
    context.hub.capacity_changed()
    text = f"host {name} of pool {pool} is used again" if before.excluded else f"host {name} was not excluded"
    return HostDone(host=view, changed=before.excluded, text=text)


def _find(context: Context, connection: sa.Connection, pool: str, name: str) -> HostView:
    row = store.get(connection, pool)
    if row is None:
        raise NotFound(f"there is no pool {pool}", hint="whistle pools shows them")
    found = next((each for each in views(context, connection) if (each.pool, each.name) == (pool, name)), None)
    if found is None:
        raise NotFound(f"pool {pool} has no host {name}", hint="whistle hosts shows them")
    if found.slots is None and not row.settings:  # a cluster can be told to leave one out
        raise Refused(
            f"pool {pool} names no hosts: it is used as a whole or not at all",
            hint=f"whistle pools set {pool} --slots 0, or name its hosts: --host NAME:SLOTS",
        )
    return found


def _told(place: Place, counts: tuple[int, int], said: sa.Row[Any] | None, now: float) -> HostView:
    """One that its pool does not name. Its cluster chooses among them, and leaves out what a person has excluded."""
    shown = HostView(pool=place[0], name=place[1], attempts=counts[0], running=counts[1])
    until = said.excluded_until if said is not None else None
    if said is None or said.excluded_at is None or (until is not None and until <= now):
        return shown
    return shown.model_copy(
        update={
            "excluded": True,
            "excluded_since": iso(said.excluded_at),
            "excluded_until": iso(until) if until is not None else None,
            "excluded_by": said.excluded_by,
            "why": f"excluded by {said.excluded_by}",
            "note": said.note,
        }
    )


def _view(each: HostStanding, counts: tuple[int, int], since: float | None, note: str) -> HostView:
    return HostView(
        pool=each.pool,
        name=each.name,
        slots=each.slots,
        free=each.free,
        excluded=each.excluded,
        excluded_since=iso(since) if since is not None else None,
        excluded_until=iso(each.until) if each.until is not None else None,
        excluded_by=each.by,
        why=each.why,
        note=note,
        score=round(each.weight, 3),
        attempts=counts[0],
        running=counts[1],
        bad=[_bad_end(end) for end in each.bad_ends[:MOST_BAD]],
    )


def _bad_end(end: End) -> BadEndView:
    return BadEndView(
        run=end.run_id,
        number=end.number,
        name=end.name,
        at=iso(end.at),
        reason=end.reason,
        text=OUTCOMES[end.reason].says,
    )
