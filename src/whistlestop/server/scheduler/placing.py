"""Queued phases get slots: what is read, what the plan says, and how it is written down. The plan itself is pure."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from whistlestop.capacity.hosts import Standing, shut
from whistlestop.capacity.pools import Host, Pool
from whistlestop.capacity.queue import Kept, Placement, Plan, Victim, plan
from whistlestop.capacity.records import Tenure
from whistlestop.capacity.room import Place
from whistlestop.capacity.victims import LATE, NOTICE, Running
from whistlestop.domain.clock import iso
from whistlestop.domain.stops import Stop
from whistlestop.server.scheduler.intending import intend
from whistlestop.server.services import preempting, standing, views
from whistlestop.server.services.context import Context
from whistlestop.server.services.deadlines import Deadlines, Found, Move
from whistlestop.server.services.waiting import Directive, Queue
from whistlestop.server.store import checkpoints, events, placing, pools, runs

log = logging.getLogger(__name__)
Row = sa.Row[Any]
MOVING = NOTICE + 2 * LATE  # seconds for which slots are kept for one that is on its way to them
COMES = 10.0  # seconds of them, after it has left
AT_ONCE = 100  # attempts that are written down in one transaction


class Placer:
    def __init__(self, context: Context, launch: Callable[[str, str], None]) -> None:
        self._context, self._launch = context, launch
        self._queue = Queue()
        self._deadlines = Deadlines(context)
        self._known_at: object = None  # what the records below were read for
        self._tenures: dict[str, list[Tenure]] = {}
        self._hosts: dict[Place, Standing] = {}
        self._moving: dict[str, tuple[str, int, float]] = {}  # phase -> pool that it goes to, slots, until when
        self._excluded: set[Place] | None = None  # as of the last pass; None: this is the first

    def place(self) -> float | None:
        """Start what fits, in order. The answer: when the next back-off ends, or a host can be used again."""
        while True:
            now = self._context.clock()
            with self._context.database.read() as connection:
                retry_at = runs.next_retry(connection, now)
                live = placing.live(connection)
                there = views.pool_facts(connection, live)
                due = self._advice(connection, now, there)
                self._remember(due.moves, live, now)
                made = self._plan(connection, there, live, due.directives, now)
            self._tell_exclusions(now)
            self._ask_to_leave(made.victims, due.moves)
            started = [each for batch in _batches(made.placements) for each in self._intend(batch, there)]
            for attempt_id, token in started:
                self._launch(attempt_id, token)
            if not started:
                ends = [retry_at, *self._context.hub.going(now).values()]
                return min((at for at in ends if at is not None), default=None)

    # --- read -----------------------------------------------------------------------------------------------------

    def _advice(self, connection: sa.Connection, now: float, there: Sequence[Pool]) -> Found:
        if len({pool.market for pool in there}) > 1:
            kept = {phase_id: (pool, slots) for phase_id, (pool, slots, _) in self._moving.items()}
            return self._deadlines.advise(connection, now, there, kept)
        self._context.hub.held = {}  # with one kind of market no deadline can choose
        return Found()

    def _plan(
        self,
        connection: sa.Connection,
        there: Sequence[Pool],
        live: Sequence[Row],
        directives: Mapping[str, Directive],
        now: float,
    ) -> Plan:
        first = placing.first_in_queue(connection)
        below = [row for row in live if first is not None and row.priority < first]
        if first is None or not (below or any(pool.free for pool in there)):
            return Plan()
        by_pool: dict[str, list[Row]] = defaultdict(list)
        for row in live:
            by_pool[row.pool].append(row)
        self._look_up(connection, there, by_pool, now)
        hub = self._context.hub
        hub.records = standing.summed(there, self._tenures, now) if len(there) > 1 else {}
        hub.shut = {**shut(self._hosts), **_going(there, hub.going(now))}
        queue = self._queue.read(connection, now, directives)
        read = partial(self._running, connection, live, first, now)
        running = read() if below else read
        alive = {row.phase_id for row in live} if self._moving else set()
        kept = [
            Kept(phase_id, pool, slots, queued=phase_id not in alive)
            for phase_id, (pool, slots, _) in self._moving.items()
        ]
        made = plan(queue, there, running, now=now, records=hub.records, shut=hub.shut, kept=kept)
        for each in made.placements:
            self._moving.pop(each.waiting.phase_id, None)
        return made

    def _remember(self, moves: Sequence[Move], live: Sequence[Row], now: float) -> None:
        """Who leaves for another pool finds its slots there, whoever comes meanwhile."""
        by_id = {row.id: row for row in live} if moves else {}
        for move in moves:
            row = by_id[move.attempt_id]
            self._moving[row.phase_id] = (move.pool, len(row.slots), now + MOVING)
        there = {row.phase_id for row in live} if self._moving else set()
        for phase_id, (pool, slots, until) in list(self._moving.items()):
            if phase_id not in there:  # it has left: it comes now, or has ended
                until = min(until, now + COMES)
                self._moving[phase_id] = (pool, slots, until)
            if until <= now:
                del self._moving[phase_id]

    def _look_up(
        self, connection: sa.Connection, there: Sequence[Pool], live: Mapping[str, Sequence[Row]], now: float
    ) -> None:
        """How pools and hosts have done: read again when an attempt has begun or ended, and once in a minute."""
        count = {name: len(rows) for name, rows in live.items()}
        known = (self._context.hub.ends, count, pools.all_hosts(connection), _shape(there), now // 60)
        if known != self._known_at:
            self._known_at = known
            self._tenures = standing.of_pools(connection, there, live, now) if len(there) > 1 else {}
            self._hosts = standing.of_hosts(connection, there, now)

    def _running(self, connection: sa.Connection, live: Sequence[Row], first: int, now: float) -> list[Running]:
        """What holds slots; of lower priority than the first in the queue: whether it may be asked to leave."""
        wanted = self._queue.asked(connection, live)
        below = [
            row
            for row in live
            if row.priority < first and wanted[row.phase_id].yields and row.request == Stop.NONE and not row.stop_seq
        ]
        saved = checkpoints.newest_of_runs(connection, {row.run_id for row in below}) if below else {}
        commits = {row.id: saved.get((row.run_id, row.name)) for row in below}
        found = []
        for row in live:
            asked, commit = wanted[row.phase_id], commits.get(row.id)
            bounds = [row.started_at + asked.limit] if asked.limit is not None else []
            bounds += [row.deadline_at + asked.grace] if row.deadline_at is not None else []
            bounds += [row.preempt_at + LATE] if row.preempt_at is not None else []
            since = max(row.started_at, commit.committed_at) if commit is not None else row.started_at
            found.append(
                Running(
                    row.id,
                    row.pool,
                    tuple(row.slots),
                    row.priority,
                    min(bounds, default=None),
                    yields=commit is not None and (not row.fresh or row.committed_at is not None),
                    work=now - since,
                    leaving=row.preempt_at is not None and row.preempt_at <= now + NOTICE,
                )
            )
        return found

    # --- write ----------------------------------------------------------------------------------------------------

    def _ask_to_leave(self, victims: Sequence[Victim], moves: Sequence[Move]) -> None:
        """For one of higher priority, or for its own deadline's sake."""
        if not victims and not moves:
            return
        with self._context.database.read() as connection:
            known = runs.by_id(connection, {each.waiting.run_id for each in victims})
        asked = [(move.attempt_id, move.why) for move in moves]
        for each in victims:
            run = known[each.waiting.run_id]
            asked.append(
                (each.attempt_id, f"run #{run.number} ({run.name}) of priority {run.priority} needs its slots")
            )
        preempting.ask_all(self._context, asked, notice=NOTICE, by=events.SYSTEM)

    def _intend(self, batch: Sequence[Placement], there: Sequence[Pool]) -> list[tuple[str, str]]:
        """Intent first: attempts are written down before anything is started under their ids."""
        try:
            with self._context.database.write() as connection:
                if _shape(views.pool_facts(connection, [])) != _shape(there):
                    return []  # pools have changed meanwhile, and whoever did that has woken us
                started = intend(self._context, connection, batch)
        except Exception:
            if len(batch) <= 1:
                raise
            # One run's trouble is not the others': each by itself.
            log.exception("attempts could not be written down together")
            return [attempt for each in batch for attempt in self._alone(each, there)]
        for run_id in {each.waiting.run_id for each in batch}:
            self._context.hub.shown(run_id)
        return started

    def _alone(self, placement: Placement, there: Sequence[Pool]) -> list[tuple[str, str]]:
        try:
            return self._intend([placement], there)
        except Exception:
            log.exception("phase %s could not be placed; it is tried again", placement.waiting.phase_id)
            return []

    def _tell_exclusions(self, now: float) -> None:
        """On the run whose end did it. Not again what was told before a restart of the server."""
        if self._known_at is None:
            return
        out = {place for place, each in self._hosts.items() if each.excluded and not each.by}
        before, self._excluded = self._excluded, out
        new = [self._hosts[place] for place in sorted(out - (before or set()))]
        if not new:
            return
        with self._context.database.write() as connection:
            for each in new:
                if before is None and _was_told(connection, each):
                    continue
                end = each.bad[0]
                text = f"host {each.place[1]} of pool {each.place[0]} is excluded: {each.why}"
                data = {"pool": each.place[0], "host": each.place[1]}
                events.add(connection, end.run_id, "host_excluded", text, at=now, data=data)


def _was_told(connection: sa.Connection, excluded: Standing) -> bool:
    """On the run of one of the ends that count against it."""
    since = min(end.at for end in excluded.bad)
    return any(
        (row.data["pool"], row.data["host"]) == excluded.place and row.at >= since
        for run_id in {end.run_id for end in excluded.bad}
        for row in events.of_run(connection, run_id, kinds=("host_excluded",))
    )


def _going(there: Sequence[Pool], going: Mapping[Place, float]) -> dict[Place, str]:
    """Hosts that a notice says are about to go. A pool that names none is one: a runner says where it is."""
    found = {}
    for pool in there if going else ():
        for host in pool.by_host:
            meant = [place for place in going if place[0] == pool.name and (not pool.hosts or place[1] == host.name)]
            ends = [going[place] for place in meant]
            if ends:
                found[pool.name, host.name] = f"a notice says that it goes by {iso(max(ends))}"
    return found


def _shape(there: Sequence[Pool]) -> dict[str, tuple[Host, ...]]:
    return {pool.name: pool.by_host for pool in there}


def _batches(placements: Sequence[Placement]) -> Iterator[Sequence[Placement]]:
    for start in range(0, len(placements), AT_ONCE):
        yield placements[start : start + AT_ONCE]
