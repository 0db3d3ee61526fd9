"""What the policy of capacity/deadline.py says of every active run with a deadline: which pool it may start on, and
which attempts should leave theirs. Reads only; the scheduler acts."""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from whistlestop.capacity.advising import Advice, Case, advise, between_saves, moment_of
from whistlestop.capacity.deadline import Job, Learned, Offer, Policy, Stay, UniformProgress
from whistlestop.capacity.lifetimes import Record
from whistlestop.capacity.observing import observed
from whistlestop.capacity.pools import Market, Pool
from whistlestop.capacity.room import Place
from whistlestop.domain.estimates import WARM_UP
from whistlestop.domain.states import PHASE_ENDED, AttemptState, PhaseState
from whistlestop.domain.stops import Stop
from whistlestop.server.services import demands, views
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.services.waiting import reclaimed
from whistlestop.server.store import checkpoints, deadlines, phases, placing, pools
from whistlestop.wire.spec import PhaseKind, PhaseSpec, Spec

log = logging.getLogger(__name__)
Row = sa.Row[Any]
CHANGEOVER = 120.0  # seconds, until somebody has said or measured it
LEAST = 5.0  # seconds of work: what has done all its steps has something to do behind its loop
MEASURED = 5  # changeovers that count, the newest ones
TOLD = 20  # attempts of a phase that are read for them and for its pace
LATE, DOUBT = 5.0, 0.02  # seconds that a look may come late; the part of the work that its estimate may be off
REMEMBERED = 14 * 86400.0  # seconds that a pool's record goes back
LOSSES = 500  # of a pool that are read
HORIZON = 2 * 3600.0  # seconds that a policy's outlook holds: about a megabyte, and a tenth of a second for the next
NEW_AT_ONCE = 3  # outlooks that are made in one look: each takes some tenths of a second
SETTLED = 600.0  # seconds that one stays on on-demand at the least: leaving it for spot is for money only


@dataclass(frozen=True)
class Directive:
    pools: tuple[str, ...] | None  # None: as it likes; (): wait
    why: str
    escalates: bool = False  # to on-demand, for the deadline's sake


@dataclass(frozen=True)
class Move:
    """An attempt that should leave its pool for another."""

    attempt_id: str
    why: str
    pool: str = ""  # where it goes


@dataclass
class Found:
    directives: dict[str, Directive] = field(default_factory=dict)  # by phase
    moves: list[Move] = field(default_factory=list)


class Deadlines:
    """Remembers a policy for each phase, with what it has computed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._policies: dict[str, Learned] = {}
        self._new = 0  # outlooks that this look had to make
        self._postponed: set[str] = set()  # phases whose turn comes at a later look
        self._records: dict[tuple[str, int], Record] = {}
        self._starts: dict[tuple[str, ...], float] = {}  # of this look: how long others took to start there
        self._known: object = None  # what the records were made from

    def advise(
        self,
        connection: sa.Connection,
        now: float,
        there: Sequence[Pool],
        kept: Mapping[str, tuple[str, int]] | None = None,
    ) -> Found:
        """`kept`: by phase, the pool that it is on its way to, and its slots there."""
        found = Found()
        due = deadlines.active(connection)
        if not due or len({pool.market for pool in there}) < 2:
            self._policies.clear()
            self._context.hub.held = {}
            return found
        self._forget_records(connection)
        self._new, self._starts = 0, {}
        left = _Room(there, self._context.hub.shut, kept or {})
        ids = [run.id for run in due]
        rows, made = phases.of_runs(connection, ids), deadlines.attempts_of_runs(connection, ids, newest=TOLD)
        saved = checkpoints.newest_of_runs(connection, ids)
        seen: set[str] = set()
        for run in due:
            try:
                seen |= self._look_at(connection, run, rows[run.id], made.get(run.id, []), saved, left, found, now)
            except Exception:  # one run's trouble is not the others': it is placed as if it had no deadline
                log.exception("run %s: its deadline could not be looked at", run.id)
        self._context.hub.held = {phase_id: said.why for phase_id, said in found.directives.items() if said.pools == ()}
        self._postponed &= seen
        self._policies = {phase_id: each for phase_id, each in self._policies.items() if phase_id in seen}
        return found

    def _look_at(
        self,
        connection: sa.Connection,
        run: Row,
        rows: Sequence[Row],
        made: Sequence[Row],
        saved: Mapping[tuple[str, str], Row],
        room: "_Room",
        found: Found,
        now: float,
    ) -> set[str]:
        """The phases of this run that there was something to say of."""
        spec, seen = spec_of(run.spec), set()
        for phase in rows:
            attempts = [each for each in made if each.phase_id == phase.id]
            live = next((each for each in attempts if each.state == AttemptState.STARTED), None)
            if live is None and (phase.state != PhaseState.PENDING or phase.ready_at is None):
                continue
            # Who was allowed to start at step 0 has nothing to go back to until it has saved by itself.
            anew = phase.from_start if live is None else live.fresh and live.committed_at is None
            commit = None if anew else saved.get((run.id, phase.name))
            facts = _Facts(run, phase, spec.phase(phase.name), attempts, live, commit)
            case = self._case(connection, facts, spec, rows, room, now)
            if case is not None:
                seen.add(phase.id)
                _say(found, facts, advise(self._policy(connection, facts, case), case), case, room, now)
        return seen

    def _case(
        self,
        connection: sa.Connection,
        facts: "_Facts",
        spec: Spec,
        siblings: Sequence[Row],
        room: "_Room",
        now: float,
    ) -> Case | None:
        """None: there is nothing to choose, or nothing is known of its work."""
        on = facts.live.pool if facts.live is not None else None
        offers = room.offers(facts.phase.id, facts.spec, on)
        if len({each.spot for each in offers}) < 2 or not any(each.up for each in offers):
            return None
        left = facts.left(self._context)
        if left is None:
            return None
        left = max(left, LEAST)
        changeover = self._changeover(connection, facts, tuple(each.name for each in offers))
        begun, behind = facts.run.created_at, _behind(spec, facts.phase.name, siblings, changeover)
        work = max(left, facts.spec.work.total_seconds() if facts.spec.work else 0.0)
        job = Job(work, facts.run.deadline_at - begun - behind, changeover, begun)
        starting = 0.0
        if facts.live is not None and facts.live.loop_at is None:
            starting = max(0.0, changeover - (now - facts.live.started_at))
        look = self._context.settings.tick + LATE + DOUBT * left
        spot = any(each.spot and each.name == on for each in offers)
        risk, saves = facts.risk(self._context, left, now, spot=spot), facts.saves(self._context)
        return Case(job, now - begun, left, offers, on, starting, look, risk, saves)

    def _changeover(self, connection: sa.Connection, facts: "_Facts", names: tuple[str, ...]) -> float:
        """The longest of its own last ones; else the median of others there, what its spec says, or a guess."""
        if own := facts.changeovers(self._context):
            return max(own)
        if facts.spec.capacity.changeover is not None:
            return facts.spec.capacity.changeover.total_seconds()
        if names not in self._starts:
            others = sorted(max(0.0, each) for each in deadlines.starts(connection, names, limit=20))
            self._starts[names] = others[len(others) // 2] if others else CHANGEOVER
        return self._starts[names]

    def _policy(self, connection: sa.Connection, facts: "_Facts", case: Case) -> Policy:
        policy = self._policies.get(facts.phase.id)
        phase_id = facts.phase.id
        if policy is None or policy.drop_old(case.job, moment_of(case)) or phase_id in self._postponed:
            self._new += 1
            if self._new > NEW_AT_ONCE:  # ours is asked at one of the next looks; these need nothing but arithmetic
                self._postponed.add(phase_id)
                return UniformProgress(1) if facts.live is None else Stay()
            self._postponed.discard(phase_id)
        if policy is None:
            policy = self._policies[facts.phase.id] = Learned(horizon=HORIZON)
        needs = facts.spec.all_slots
        policy.records = {each.name: self._record(connection, each.name, needs) for each in case.offers if each.spot}
        return policy

    def _record(self, connection: sa.Connection, pool: str, needs: int) -> Record:
        record = self._records.get((pool, needs))
        if record is None:
            since = self._context.clock() - REMEMBERED
            sizes = [(row.at, row.slots) for row in pools.sizes(connection, pool, since=since)]
            if not sizes:  # it has had one size all the time
                sizes = [(since, row.slots) for row in [pools.get(connection, pool)] if row is not None]
            ends = placing.ends_in_pool(connection, pool, since=since, limit=LOSSES)
            losses = [row.ended_at for row in ends if reclaimed(row) and not row.preempt_by]  # not rehearsed ones
            record = self._records[pool, needs] = observed(sizes, losses, needs=needs)
        return record

    def _forget_records(self, connection: sa.Connection) -> None:
        known = (self._context.hub.ends, deadlines.last_size(connection))
        if known != self._known:
            self._known = known
            self._records.clear()


@dataclass(frozen=True)
class _Facts:
    run: Row
    phase: Row
    spec: PhaseSpec
    attempts: Sequence[Row]  # of this phase, in order: the last ones that came to steps
    live: Row | None
    commit: Row | None  # what it would resume from

    @property
    def movable(self) -> bool:
        """It has saved, is in its loop, and nobody has asked it to end."""
        live = self.live
        return (
            live is not None
            and self.commit is not None
            and self.spec.kind is PhaseKind.TRAIN
            and live.loop_at is not None
            and live.preempt_at is None
            and live.stopping_at is None
            and not self.phase.stop_seq
            and self.run.request == Stop.NONE
        )

    def left(self, context: Context) -> float | None:
        """Seconds of work, by its own pace if that is known, else by its spec."""
        measured = views.seconds_left(context, self.live)
        if measured is not None:
            return measured
        step = self.commit.step if self.commit is not None else 0
        total, pace = self._pace(context)
        if pace is not None:
            return max(0.0, (total - step) * pace)
        if self.spec.work is None:
            return None
        whole = self.spec.work.total_seconds()
        return whole * max(0.0, 1 - step / total) if total else whole

    def saves(self, context: Context) -> bool:
        """False: for all that is known, never."""
        return self.commit is not None or not math.isinf(self._between(context))

    def _between(self, context: Context) -> float:
        """Seconds between two saves at the most; infinite: nobody knows, or never."""
        if self.spec.kind is not PhaseKind.TRAIN:
            return math.inf
        return between_saves(self.spec.checkpoint.every, self._pace(context)[1])

    def risk(self, context: Context, left: float, now: float, *, spot: bool) -> float:
        """Seconds of work that a loss without a word takes back: up to now on `spot`, else what it will be there."""
        _, pace = self._pace(context)
        if not spot or self.live is None or self.live.loop_at is None:
            between = self._between(context)
            if math.isinf(between):
                return 0.0 if self.commit is not None else left  # it has saved, who knows how often; or never
            return min(between, left)
        since = float(max(self.live.loop_at, self.commit.committed_at if self.commit is not None else 0.0))
        said = context.hub.progress.get(self.live.id)
        if pace is None or said is None or not said.loop_started_at:
            return max(0.0, now - since)
        safe: int = self.commit.step if self.commit is not None else said.resumed_step
        return max(0, said.step - safe) * pace

    def changeovers(self, context: Context) -> list[float]:
        """From each placement to its loop, with the time of the steps that were done again."""
        found, before = [], None
        _, pace = self._pace(context)
        for each in self.attempts:
            if each.loop_at is not None:
                done = (before.last_step or 0) if before is not None else 0
                redone = max(0, done - (each.resumed_from or 0)) * (pace or 0.0)
                # The two times are of two clocks, and a clock may be set back.
                found.append(max(0.0, each.loop_at - each.started_at) + redone)
                before = each
        return found[-MEASURED:]

    def _pace(self, context: Context) -> tuple[int, float | None]:
        """Steps in all (0: not known) and seconds for one, by the newest attempt that has told."""
        total = 0
        for each in reversed(self.attempts):
            fresh = context.hub.progress.get(each.id)
            said: Mapping[str, Any] = msgspec.structs.asdict(fresh) if fresh is not None else each.progress or {}
            total = total or int(said.get("total", 0))
            done = int(said.get("step", 0)) - int(said.get("resumed_step", 0))
            spent = float(said.get("progress_at", 0.0)) - float(said.get("loop_started_at", 0.0))
            if total and done >= WARM_UP and said.get("loop_started_at") and spent > 0:
                return total, spent / done
        return total, None


def _say(found: Found, facts: _Facts, advice: Advice, case: Case, room: "_Room", now: float) -> None:
    live = facts.live
    if live is None:
        others = [each.name for each in case.offers if each.up and each.name != advice.pool] if advice.urgent else []
        chosen = (advice.pool, *others) if advice.pool else ()
        found.directives[facts.phase.id] = Directive(chosen, advice.why, advice.escalates)
    elif advice.pool is None or advice.pool == live.pool or not facts.movable:
        return
    elif advice.escalates or now - live.loop_at > SETTLED:
        found.moves.append(Move(live.id, advice.why, advice.pool))
    if advice.pool is not None:
        room.give(facts.phase.id, advice.pool, facts.spec.all_slots)


class _Room:
    """What is free, for one run after the other: what one is sent to is not there for the next, nor what one is on its
    way to since an earlier look."""

    def __init__(self, there: Sequence[Pool], shut: Collection[Place], kept: Mapping[str, tuple[str, int]]) -> None:
        self._there = there
        self._free = {
            pool.name: sorted(
                sum(slot not in pool.taken for slot in host.slots)
                for host in pool.by_host
                if (pool.name, host.name) not in shut
            )
            for pool in there
        }
        self._kept = {phase_id: pool for phase_id, (pool, slots) in kept.items() if self._take(pool, slots)}

    def offers(self, phase_id: str, phase: PhaseSpec, on: str | None) -> list[Offer]:
        wants = demands.asked(phase).wants
        return [
            Offer(
                pool.name,
                pool.price * phase.all_slots / 3600,
                spot=pool.market is Market.SPOT,
                up=pool.name in (on, self._kept.get(phase_id))
                or any(free >= phase.all_slots for free in self._free[pool.name]),
            )
            for pool in self._there
            if wants.allow(pool)
        ]

    def give(self, phase_id: str, pool: str, slots: int) -> None:
        if self._kept.get(phase_id) != pool:
            self._take(pool, slots)

    def _take(self, pool: str, slots: int) -> bool:
        """From the smallest host that has them."""
        free = self._free.get(pool, [])
        index = next((index for index, each in enumerate(free) if each >= slots), None)
        if index is None:
            return False
        free[index] -= slots
        free.sort()
        return True


def _behind(spec: Spec, name: str, rows: Sequence[Row], changeover: float) -> float:
    """Seconds that the phases which need this one will take, as far as their specs say; the longest way counts."""
    ended = {row.name for row in rows if row.state in PHASE_ENDED}

    @cache
    def longest(phase: str) -> float:
        after = [each for each in spec.phases if phase in each.needs and each.name not in ended]
        return max((longest(each.name) + _work(each, changeover) for each in after), default=0.0)

    return longest(name)


def _work(phase: PhaseSpec, changeover: float) -> float:
    return phase.work.total_seconds() + changeover if phase.work is not None else 0.0
