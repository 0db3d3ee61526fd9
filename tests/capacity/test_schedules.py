"""Random schedules around plan(): arrivals, ends, reclaims, pools that shrink and grow, priorities. A clock that only
this file moves."""

import heapq
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from whistlestop.capacity.choose import Wants
from whistlestop.capacity.pools import Host, Market, Pool
from whistlestop.capacity.queue import Waiting, plan
from whistlestop.capacity.records import How, Tenure, summed
from whistlestop.capacity.victims import Running
from whistlestop.domain import ledger
from whistlestop.domain.credits import Charge, used

EVERY = 10.0  # seconds of work from one checkpoint to the next
NOTICE = 5.0
END = 5000.0  # from here on nothing is taken away any more


@dataclass
class Job:
    name: str
    at: float
    work: float
    wants: Wants
    priority: int
    bounded: bool
    yields: bool
    done: float = 0.0  # seconds of its work that are safe
    running: "Attempt | None" = None
    reclaims: list[tuple[str, float]] = field(default_factory=list)
    finished: bool = False
    promised: float | None = None  # by when it was to start at the latest

    @property
    def limit(self) -> float | None:
        return self.work + 1.0 if self.bounded else None


@dataclass
class Attempt:
    job: Job
    pool: str
    host: str
    slots: tuple[int, ...]
    price: float
    began: float
    queued: float
    leaves: float | None = None
    number: int = 0


@dataclass
class Shape:
    """A pool over time."""

    sizes: tuple[int, ...]  # of its hosts
    price: float
    spot: bool
    part: float = 1.0  # of it that is there now

    def pool(self, name: str, taken: set[int]) -> Pool:
        slots, hosts, first = int(sum(self.sizes) * self.part), [], 0
        for index, size in enumerate(self.sizes):
            hosts.append(Host(f"h{index}", tuple(range(first, min(slots, first + size)))))
            first += size
        market = Market.SPOT if self.spot else Market.ON_DEMAND
        return Pool(name, slots, self.price, frozenset(taken), market=market, hosts=tuple(hosts))


class Simulation:
    def __init__(self, jobs: list[Job], shapes: dict[str, Shape], events: list[tuple[float, str, Any]]) -> None:
        self.now, self.jobs, self.shapes = 0.0, jobs, shapes
        self.queue: list[Job] = []
        self.live: list[Attempt] = []
        self.charges: list[Charge] = []
        self.pieces: list[tuple[float, ledger.Piece]] = []  # rate, piece
        self.paid = 0.0  # by the clock alone
        self.tenures: dict[str, list[Tenure]] = {name: [] for name in shapes}
        self.calm = not events and len({job.priority for job in jobs}) < 2  # nobody has to step back
        self._events: list[tuple[float, int, str, Any]] = []
        self._number = 0
        for job in jobs:
            self.later(job.at, "arrive", job)
        for at, kind, what in events:
            self.later(at, kind, what)

    def later(self, at: float, kind: str, what: Any) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, self._number, kind, what))

    def run(self) -> None:
        for name in self.shapes:
            self.later(END, "size", (name, 1.0))
        while self._events:
            at, _, kind, what = heapq.heappop(self._events)
            self.paid += sum(len(each.slots) * each.price for each in self.live) * (at - self.now) / 3600
            self.now = at
            self.happen(kind, what)
            self.plan()

    def happen(self, kind: str, what: Any) -> None:
        match kind:
            case "arrive":
                what.at = self.now
                self.queue.append(what)
            case "end" if what in self.live:
                what.job.finished = True
                self.over(what, How.OTHERWISE)
            case "leave" if what in self.live:
                what.job.done += self.now - what.began  # it saved as it left
                self.over(what, How.OTHERWISE)
                self.queue.append(what.job)
            case "reclaim":
                for each in [each for each in self.live if each.pool == what]:
                    each.job.done += (self.now - each.began) // EVERY * EVERY
                    each.job.reclaims.append((what, self.now))
                    self.over(each, How.RECLAIMED)
                    self.queue.append(each.job)
            case "size":
                name, part = what
                self.shapes[name].part = part

    def over(self, attempt: Attempt, how: How) -> None:
        self.live.remove(attempt)
        attempt.job.running = None
        attempt.job.promised = None
        slots, rate = len(attempt.slots), len(attempt.slots) * attempt.price
        self.charges.append(Charge(slots, attempt.price, attempt.began, self.now))
        facts = ledger.Facts(attempt.began, self.now, attempt.queued, attempt.began, counts=False)
        self.pieces += [(rate, piece) for piece in ledger.split(facts)]
        self.tenures[attempt.pool].append(Tenure(attempt.pool, attempt.began, self.now, how))

    def pools(self) -> list[Pool]:
        held: dict[str, set[int]] = {name: set() for name in self.shapes}
        for each in self.live:
            held[each.pool] |= set(each.slots)
        return [shape.pool(name, held[name]) for name, shape in self.shapes.items()]

    def plan(self) -> None:
        there = self.pools()
        self.queue.sort(key=lambda job: (-job.priority, self.jobs.index(job)))
        made = plan(
            [self.waiting(job) for job in self.queue],
            there,
            [self.running(each) for each in self.live],
            now=self.now,
            records={pool.name: summed(self.tenures[pool.name], pool.market, self.now) for pool in there},
        )
        by_name = {pool.name: pool for pool in there}
        waits = {job.name: job for job in self.queue}
        for each in made.placements:
            job = waits.pop(each.waiting.phase_id)  # a double run would not be found
            self.check(each.slots, by_name[each.pool], each.host, job)
            self.start(job, each.pool, each.host, each.slots, each.price)
        self.queue = list(waits.values())
        running = {str(each.number): each for each in self.live}
        for victim in made.victims:
            attempt = running[victim.attempt_id]
            assert attempt.leaves is None
            assert attempt.job.priority < victim.waiting.priority
            assert attempt.job.yields
            assert attempt.job.done or self.now - attempt.began >= EVERY, "nobody leaves before its first checkpoint"
            attempt.leaves = self.now + NOTICE
            self.later(attempt.leaves, "leave", attempt)
        first = self.queue[0].name if self.queue else None
        for job in self.queue:
            if job.name == first and job.name in made.latest:
                latest = made.latest[job.name]
                if self.calm and job.promised is not None:
                    assert latest <= job.promised + 1e-6, "what is promised to the head is never taken back"
                job.promised = latest
            elif job.name != first:
                job.promised = None

    def check(self, slots: tuple[int, ...], pool: Pool, host: str, job: Job) -> None:
        assert len(slots) == len(set(slots)) == job.wants.slots, "a part of a gang"
        assert job.running is None, "it runs already"
        assert job.wants.allow(pool)
        here = next(each for each in pool.hosts if each.name == host)
        assert set(slots) <= set(here.slots), "on two hosts"
        held = {slot for each in self.live if each.pool == pool.name for slot in each.slots}
        assert not held & set(slots), "a slot for two"

    def start(self, job: Job, pool: str, host: str, slots: tuple[int, ...], price: float) -> None:
        if self.calm and job.promised is not None:
            assert self.now <= job.promised + 60.0
        self._number += 1
        attempt = Attempt(job, pool, host, slots, price, self.now, job.at, number=self._number)
        job.running = attempt
        self.live.append(attempt)
        self.later(self.now + max(1.0, job.work - job.done), "end", attempt)

    def waiting(self, job: Job) -> Waiting:
        recent = tuple(each for each in job.reclaims if self.now - each[1] < 3600)
        return Waiting(job.name, job.name, job.wants, job.priority, job.limit, recent)

    def running(self, each: Attempt) -> Running:
        job, spent = each.job, self.now - each.began
        bounds = [each.began + job.limit] if job.limit is not None else []
        bounds += [each.leaves + 1.0] if each.leaves is not None else []
        saved = bool(job.done) or spent >= EVERY
        return Running(
            str(each.number),
            each.pool,
            each.slots,
            job.priority,
            min(bounds, default=None),
            yields=job.yields and saved,
            work=spent % EVERY,
            leaving=each.leaves is not None,
        )


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
shapes = st.lists(st.builds(Shape, sizes, st.sampled_from([1.0, 3.0]), st.booleans()), min_size=1, max_size=3)
job = st.tuples(
    st.integers(0, 300), st.integers(1, 200), st.integers(1, 5), st.integers(0, 2), st.booleans(), st.booleans(),
    st.integers(0, 7),
)  # fmt: skip
event = st.tuples(st.integers(0, 600), st.sampled_from(["size", "reclaim"]), st.integers(0, 2), st.integers(0, 4))


def simulated(made: list[Shape], given_jobs: list[Any], given_events: list[Any]) -> Simulation:
    names = [f"pool{index}" for index in range(len(made))]
    jobs = []
    for index, (at, work, slots, priority, bounded, yields, which) in enumerate(sorted(given_jobs)):
        named = tuple(name for bit, name in enumerate(names) if which >> bit & 1)
        wants = Wants(slots=slots, pools=named if which % 2 else ())
        jobs.append(Job(f"job{index}", float(at), float(work), wants, priority, bounded, yields))
    events: list[tuple[float, str, Any]] = []
    for at, kind, which, part in given_events:
        name = names[which % len(names)]
        events.append((float(at), kind, name if kind == "reclaim" else (name, part / 4)))
    return Simulation(jobs, dict(zip(names, made, strict=True)), events)


def check(made: list[Shape], given_jobs: list[Any], given_events: list[Any]) -> None:
    it = simulated(made, given_jobs, given_events)
    it.run()
    for each in it.jobs:
        fits = any(
            each.wants.allow(pool) and any(len(host.slots) >= each.wants.slots for host in pool.hosts)
            for pool in it.pools()
        )
        assert each.finished == fits, f"{each} is starved" if fits else f"{each} ran where it does not fit"
    assert not it.live
    assert all(not pool.taken for pool in it.pools()), "a slot is held by nobody"
    spent = used(it.charges, it.now)
    assert spent == pytest.approx(it.paid, abs=1e-9)
    kinds = sum(rate * piece.seconds / 3600 for rate, piece in it.pieces if piece.kind is not ledger.Kind.QUEUED)
    assert kinds == pytest.approx(spent, abs=1e-9)


schedules = given(shapes, st.lists(job, max_size=14), st.lists(event, max_size=6))
quiet = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(quiet, max_examples=300)
@schedules
def test_random_schedules(made: list[Shape], given_jobs: list[Any], given_events: list[Any]) -> None:
    check(made, given_jobs, given_events)


@pytest.mark.long
@settings(quiet, max_examples=10_000)
@schedules
def test_ten_thousand_random_schedules(made: list[Shape], given_jobs: list[Any], given_events: list[Any]) -> None:
    check(made, given_jobs, given_events)


@settings(quiet, max_examples=200)
@given(shapes, st.lists(job, max_size=14))
def test_back_fill_never_delays_the_head(made: list[Shape], given_jobs: list[Any]) -> None:
    alike = [(at, work, slots, 0, True, False, which) for at, work, slots, _, _, _, which in given_jobs]
    check(made, alike, [])


@pytest.mark.parametrize("bounded", [True, False])
def test_an_endless_stream_of_narrow_ones_does_not_starve_a_wide_one(bounded: bool) -> None:
    narrow = [(10 * index, 30, 1, 0, bounded, False, 0) for index in range(100)]
    it = simulated([Shape((2,), 1.0, False)], [*narrow, (15, 30, 2, 0, bounded, False, 0)], [])
    wide = next(job for job in it.jobs if job.wants.slots == 2)
    it.run()
    assert wide.finished
    mine = next(charge for charge in it.charges if charge.slots == 2)
    assert mine.since <= 41, "those that came before it are over by then"
