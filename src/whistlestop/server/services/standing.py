"""What the records of pools and hosts come to, from the store: for the scheduler, and for the pages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from whistlestop.capacity import hosts, records
from whistlestop.capacity.hosts import GOOD, HOST_CAUSED, PERHAPS, End, Said
from whistlestop.capacity.pools import Pool
from whistlestop.capacity.records import How, Record, Tenure
from whistlestop.capacity.room import Place
from whistlestop.domain.reasons import EndReason
from whistlestop.domain.states import AttemptState
from whistlestop.server.services import views
from whistlestop.server.services.waiting import reclaimed
from whistlestop.server.store import placing, pools

Row = sa.Row[Any]
RECORD = 12 * 3600.0  # seconds of a pool's record that are read: what is older has no weight
RECORD_ENDS = 200
HOST_RECORD = 6 * hosts.HALF_LIFE
HOST_ENDS = 5000


@dataclass(frozen=True)
class HostStanding:
    pool: str
    name: str  # empty: the pool names none
    slots: int
    free: int
    weight: float  # of what counts against it; from 2.5 on it is excluded, until it falls below 1
    excluded: bool
    until: float | None
    by: str  # who excluded it; empty: its record
    why: str
    bad_ends: tuple[End, ...]


def standings(connection: sa.Connection, now: float) -> list[HostStanding]:
    """Of every host that a pool has now."""
    there = views.pool_facts(connection)
    found = of_hosts(connection, there, now)
    by_name = {pool.name: pool for pool in there}
    return [
        HostStanding(
            pool=each.place[0],
            name=each.place[1],
            slots=each.slots,
            free=_free(by_name[each.place[0]], each.place[1]),
            weight=each.weight,
            excluded=each.excluded,
            until=each.until,
            by=each.by,
            why=each.why,
            bad_ends=each.bad,
        )
        for each in found.values()
    ]


def of_hosts(connection: sa.Connection, there: Sequence[Pool], now: float) -> dict[Place, hosts.Standing]:
    named = {pool.name for pool in there if pool.hosts}
    ends: list[End] = []
    if named:
        # Good ones are not counted: thousands of them elsewhere say nothing for a host that is bad.
        reasons = HOST_CAUSED | PERHAPS
        rows = placing.ends_on_hosts(connection, named, reasons, since=now - HOST_RECORD, limit=HOST_ENDS)
        ends = [_end(row) for row in rows] + _went_on(connection, rows, now) + _went_well(connection, rows)
    return hosts.standings(there, ends, _said(connection), now)


def of_pools(
    connection: sa.Connection, there: Iterable[Pool], live: Mapping[str, Sequence[Row]], now: float
) -> dict[str, list[Tenure]]:
    """What they have done lately. `live`: the attempts that are on them now."""
    found = {}
    for pool in there:
        ended = placing.ends_in_pool(connection, pool.name, since=now - RECORD, limit=RECORD_ENDS)
        found[pool.name] = [tenure(row) for row in ended]
        found[pool.name] += [Tenure(pool.name, row.started_at, None) for row in live.get(pool.name, ())]
    return found


def summed(there: Iterable[Pool], found: Mapping[str, Sequence[Tenure]], now: float) -> dict[str, Record]:
    return {pool.name: records.summed(found.get(pool.name, ()), pool.market, now) for pool in there}


def tenure(row: Row) -> Tenure:
    how = How.OTHERWISE
    if reclaimed(row):
        how = How.LOST if row.state == AttemptState.LOST else How.RECLAIMED
    return Tenure(row.pool, row.started_at, row.ended_at, how)


def _went_on(connection: sa.Connection, rows: Sequence[Row], now: float) -> list[End]:
    """How those went on whose programs failed: elsewhere they may have got further, also if they were preempted."""
    known = {row.id for row in rows}
    phase_ids = {row.phase_id for row in rows if row.reason in PERHAPS | HOST_CAUSED}
    if not phase_ids:
        return []
    later = placing.ends_of_phases(connection, phase_ids, since=now - HOST_RECORD)
    return [_end(row) for row in later if row.id not in known]


def _went_well(connection: sa.Connection, rows: Sequence[Row]) -> list[End]:
    """The newest good end on each host where programs have failed since."""
    failed: dict[Place, float] = {}
    for row in rows:
        if row.reason in PERHAPS:
            place = (row.pool, row.host)
            failed[place] = min(row.ended_at, failed.get(place, row.ended_at))
    return [End(place, at, EndReason.FINISHED, "") for place, at in placing.last_ends(connection, failed, GOOD).items()]


def _end(row: Row) -> End:
    return End(
        (row.pool, row.host or ""),
        row.ended_at,
        EndReason(row.reason),
        row.run_id,
        getattr(row, "run_number", 0),
        getattr(row, "run_name", ""),
        row.phase_id,
        row.last_step or 0,
    )


def _said(connection: sa.Connection) -> dict[Place, Said]:
    return {
        place: Said(row.excluded_at, row.excluded_until, row.excluded_by, row.readmitted_at, row.note)
        for place, row in pools.all_hosts(connection).items()
    }


def _free(pool: Pool, name: str) -> int:
    host = next(host for host in pool.by_host if host.name == name)
    return sum(slot not in pool.taken for slot in host.slots)
