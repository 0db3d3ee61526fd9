"""Who starts next, where, and who makes room: priority, then first come; all slots of a phase on one host, or none.

The first that does not fit gets a reservation where it can start soonest by the upper bounds of what runs. A later one
may start meanwhile if that delays it by nothing: on hosts that it can never use, until the reservation begins, or on
slots that it leaves over. Where nothing bounds what runs, nothing passes it on hosts that it could use. The next that
does not fit has the same right to the hosts that are left. What can never fit holds nobody back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from whistlestop.capacity.choose import HARDLY_USEFUL, Candidate, Wants, candidates, for_phase, how
from whistlestop.capacity.pools import Market, Pool
from whistlestop.capacity.records import Record
from whistlestop.capacity.room import Place, Room
from whistlestop.capacity.victims import Occupants, Running
from whistlestop.capacity.waits import explain
from whistlestop.domain.clock import iso

ANY = Wants()
IN_VAIN = 500  # phases that find nobody to ask, one behind the other, until the rest is not looked at
SAID = 200  # waiting phases for which words are made; the others wait behind them


@dataclass(frozen=True)
class Waiting:
    """A phase that could start. The order of `plan`'s argument is the order of the queue."""

    run_id: str
    phase_id: str
    wants: Wants = ANY
    priority: int = 0
    limit: float | None = None  # seconds that it takes at most, if something bounds it
    reclaims: tuple[tuple[str, float], ...] = ()  # pool and time: who took its slots back lately, in order
    avoid: Place | None = None  # where it failed last, or what it lost
    held: str = ""  # why it is not to start now, whatever there is
    directed: str = ""  # why it may use these pools only, if that is not its spec's doing
    escalates: bool = False  # ... and it is for its deadline's sake that it pays for one that stays

    @property
    def slots(self) -> int:
        return self.wants.slots

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for those that are placed alike."""
        return self.wants, self.limit, self.reclaims, self.avoid, self.held


@dataclass(frozen=True)
class Placement:
    waiting: Waiting
    pool: str
    slots: tuple[int, ...]
    price: float
    host: str = ""
    why: str = ""  # this pool, and not another
    left: str = ""  # what was left for it, and why: the pool that it was on before
    market: Market = Market.ON_DEMAND


@dataclass(frozen=True)
class Kept:
    """Slots for a phase that is on its way to a pool."""

    phase_id: str
    pool: str
    slots: int
    queued: bool = True  # False: it has not left yet where it was


@dataclass(frozen=True)
class Victim:
    """Has to make room for another of higher priority."""

    attempt_id: str
    waiting: Waiting


@dataclass(frozen=True)
class Plan:
    placements: list[Placement] = field(default_factory=list)
    victims: list[Victim] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)  # phase -> what it waits for; of those that were looked at
    latest: dict[str, float] = field(default_factory=dict)  # phase -> when it starts at the latest, where that is known


@dataclass
class _Head:
    """One that does not fit now, and what is kept for it."""

    place: Place | None = None  # None: nothing tells when it can start
    at: float = 0.0
    spare: int = 0  # slots there that it does not need then
    room: int = 0  # slots that others leave there for it, and for those who asked after it


def plan(
    queue: Iterable[Waiting],
    pools: Sequence[Pool],
    running: Sequence[Running] | Callable[[], Sequence[Running]] = (),
    *,
    now: float = 0.0,
    records: Mapping[str, Record] | None = None,
    shut: Mapping[Place, str] | None = None,
    kept: Sequence[Kept] = (),
) -> Plan:
    """`shut`: hosts on which nothing is started, with the reason. `running` may be a function if nobody of them may be
    asked to leave: it is called when somebody has to wait. `kept`: who has left a pool for another finds its slots
    there, before all others: else it had left for nothing. The queue is read only as far as anything could still start
    or be asked to leave."""
    planner = _Planner(pools, running, now, records or {}, shut or {})
    planner.keep(kept)
    return planner.plan(queue)


class _Planner:
    def __init__(
        self,
        pools: Sequence[Pool],
        running: Sequence[Running] | Callable[[], Sequence[Running]],
        now: float,
        records: Mapping[str, Record],
        shut: Mapping[Place, str],
    ) -> None:
        self._pools, self._now, self._records, self._shut = pools, now, records, shut
        self._room = Room(pools, shut)
        self._occupants = Occupants(pools, running, now)
        self._heads: dict[Place, _Head] = {}  # by the hosts that they could use
        self._known: dict[Wants, list[Candidate]] = {}
        self._refused: set[tuple[object, ...]] = set()
        self._kept: dict[str, tuple[Place, tuple[int, ...]]] = {}
        self._in_vain: set[tuple[object, ...]] = set()  # priority and key of those who could ask nobody
        self._still_open: bool | None = None  # None: to be looked up
        self._plan = Plan()

    def keep(self, kept: Sequence[Kept]) -> None:
        for each in kept:
            there = each.pool in self._room.pools
            place = self._room.find(each.pool, each.slots, lambda place: True) if there else None
            if place is not None:
                slots = self._room.take(place, each.slots)
                if each.queued:
                    self._kept[each.phase_id] = (place, slots)

    def plan(self, queue: Iterable[Waiting]) -> Plan:
        if not (self._room.free or self._kept or self._occupants.yielding):
            return self._plan
        fruitless = 0  # phases in a row that asked others to leave, and nobody could
        for position, waiting in enumerate(queue, 1):
            asks = self._occupants.below(waiting.priority)
            # The queue falls in priority: nobody behind can ask for more.
            if not (self._kept or self._open() or (asks and fruitless < IN_VAIN)):
                break
            asks = asks and (waiting.priority, waiting.key) not in self._in_vain
            asked = len(self._plan.victims)
            if waiting.held:
                self._say(waiting, waiting.held)
            elif asks or waiting.phase_id in self._kept or waiting.key not in self._refused:
                self._consider(waiting, position)
            if asks and len(self._plan.victims) == asked and waiting.key in self._refused:
                self._in_vain.add((waiting.priority, waiting.key))
            fruitless = 0 if len(self._plan.victims) > asked else fruitless + 1
        return self._plan

    def _consider(self, waiting: Waiting, position: int) -> None:
        found = self._candidates(waiting)
        usable = self._usable(waiting, found)
        if self._come_to(waiting, found):
            return
        if waiting.key not in self._refused and self._place(waiting, found, usable):
            self._still_open = None
            return
        self._refused.add(waiting.key)
        places = [place for each in usable for place in self._room.hosts(each.pool.name, waiting.slots)]
        head, leaving = self._make_room(waiting, places)
        mine = [place for place in places if place not in self._heads]
        if head is None and mine:
            head = self._keep(waiting, mine)
        if head is not None and head.place is not None:
            self._plan.latest[waiting.phase_id] = head.at
        if len(self._plan.waits) < SAID:
            says = explain(waiting.wants, found, self._room, position=position, shut=self._shut)
            if leaving:
                says += f"; {leaving} of lower priority {'makes' if leaving == 1 else 'make'} room for it"
            elif head is not None and head.place is not None:
                says += f", at the latest at {iso(head.at)}"
            self._say(waiting, says)

    def _say(self, waiting: Waiting, words: str) -> None:
        if len(self._plan.waits) < SAID:
            self._plan.waits[waiting.phase_id] = words

    def _open(self) -> bool:
        """Whether somebody could still start somewhere."""
        if self._still_open is None:
            heads = self._heads
            self._still_open = any(
                place not in heads or heads[place].place is not None for place in self._room.with_free()
            )
        return self._still_open

    def _usable(self, waiting: Waiting, found: Sequence[Candidate]) -> list[Candidate]:
        """Those that are large enough; not those where next to nothing gets done, if there are others."""
        large = [each for each in found if self._room.largest(each.pool.name) >= waiting.slots]
        if all(each.trouble for each in large):
            return large
        return [each for each in large if not (each.trouble and each.useful < HARDLY_USEFUL)]

    def _candidates(self, waiting: Waiting) -> list[Candidate]:
        found = self._known.get(waiting.wants)
        if found is None:
            found = self._known[waiting.wants] = candidates(waiting.wants, self._pools, self._records)
        return for_phase(found, waiting.reclaims, self._now)

    # --- now ------------------------------------------------------------------------------------------------------

    def _come_to(self, waiting: Waiting, found: Sequence[Candidate]) -> bool:
        """It takes what was kept for it, if it still wants to be there."""
        if waiting.phase_id not in self._kept:
            return False
        place, slots = self._kept.pop(waiting.phase_id)
        chosen = next((each for each in found if each.pool.name == place[0]), None)
        if chosen is None or len(slots) != waiting.slots:
            self._room.give_back(place, slots)
            return False
        self._give(waiting, chosen, place, slots, [], found)
        return True

    def _place(self, waiting: Waiting, found: Sequence[Candidate], usable: Sequence[Candidate]) -> bool:
        good, bad = [each for each in usable if not each.trouble], [each for each in usable if each.trouble]
        for ones in (good, bad):
            for elsewhere in (True, False):  # than where it came to grief last
                for each in ones:
                    place = self._find(waiting, each, elsewhere=elsewhere)
                    if place is not None:
                        self._take(waiting, each, place, found)
                        return True
        return False

    def _find(self, waiting: Waiting, candidate: Candidate, *, elsewhere: bool) -> Place | None:
        def may(place: Place) -> bool:
            return not (elsewhere and place == waiting.avoid) and self._passes(waiting, place)

        return self._room.find(candidate.pool.name, waiting.slots, may)

    def _passes(self, waiting: Waiting, place: Place) -> bool:
        """Whether it delays nobody who came before."""
        head = self._heads.get(place)
        if head is None:
            return True
        if head.place is None:
            return False
        ends = waiting.limit is not None and self._now + waiting.limit <= head.at
        return place != head.place or ends or waiting.slots <= head.spare

    def _take(self, waiting: Waiting, chosen: Candidate, place: Place, found: Sequence[Candidate]) -> None:
        head = self._heads.get(place)
        if head is not None and head.place == place:
            ends = waiting.limit is not None and self._now + waiting.limit <= head.at
            head.spare -= 0 if ends else waiting.slots
        before = found if chosen.trouble else found[: found.index(chosen)]
        passed = [
            f"not {each.pool.name}: {each.trouble or self._no_room(waiting, each)}"
            for each in before
            if each is not chosen
        ]
        self._give(waiting, chosen, place, self._room.take(place, waiting.slots), passed, found)

    def _give(
        self,
        waiting: Waiting,
        chosen: Candidate,
        place: Place,
        slots: tuple[int, ...],
        passed: Sequence[str],
        found: Sequence[Candidate],
    ) -> None:
        self._occupants.add(place, slots, waiting.limit)
        chose = waiting.directed or how(chosen, found, waiting.wants)
        why = "; ".join([words for words in (chose, *passed) if words])
        left = _left(waiting, chosen, found)
        self._plan.placements.append(
            Placement(waiting, chosen.pool.name, slots, chosen.pool.price, place[1], why, left, chosen.pool.market)
        )

    def _no_room(self, waiting: Waiting, candidate: Candidate) -> str:
        name, room = candidate.pool.name, self._room
        if room.largest(name) < waiting.slots:
            return f"no host of it has {waiting.slots} slots" if candidate.pool.slots else "it has no slots now"
        if room.most_on_one_host(name) < waiting.slots:
            one = " on one host" if len(candidate.pool.by_host) > 1 else ""
            return f"{room.most_on_one_host(name)} of {candidate.pool.slots} slots free{one}"
        if waiting.avoid is not None and waiting.avoid[0] == name:
            return f"it came to grief on its host {waiting.avoid[1]}" if waiting.avoid[1] else "it came to grief there"
        return "its free slots are kept for another that came before"

    # --- later ----------------------------------------------------------------------------------------------------

    def _make_room(self, waiting: Waiting, places: Sequence[Place]) -> tuple[_Head | None, int]:
        """Others leave one of these hosts for it: what is kept there, and how many they are. Each that asks has slots
        of its own among those that become free."""
        if not self._occupants.below(waiting.priority) and not self._occupants.leaving:
            return None, 0

        def free(place: Place) -> int:
            head = self._heads.get(place)
            return self._room.free_on(place) - (head.room if head is not None else 0)

        open_to_it = [place for place in places if place not in self._heads or self._heads[place].room]
        made = self._occupants.make_room(waiting.slots, waiting.priority, open_to_it, free)
        self._plan.victims.extend(Victim(attempt, waiting) for attempt in made.attempts)
        if made.place is None or not made.leaving:
            return None, 0
        before = self._heads.get(made.place)
        room = waiting.slots + (before.room if before is not None else 0)
        when = self._occupants.when(made.place, room, self._room.free_on(made.place))
        head = _Head(made.place, *(when or (self._now, room)), room)
        head.spare -= room
        self._heads[made.place] = head
        self._still_open = None
        return head, made.leaving

    def _keep(self, waiting: Waiting, places: Sequence[Place]) -> _Head:
        """Hosts that nobody before it waits for, and when it can start on one of them."""
        head, soonest = _Head(), None
        for place in places:
            when = self._occupants.when(place, waiting.slots, self._room.free_on(place))
            if when is not None and (soonest is None or when[0] < soonest):
                soonest = when[0]
                head.place, head.at, head.spare = place, when[0], when[1] - waiting.slots
        for place in places:
            self._heads[place] = head
        self._still_open = None
        return head


def _left(waiting: Waiting, chosen: Candidate, found: Sequence[Candidate]) -> str:
    """The pool that took its slots back last, if it is left for another."""
    if not waiting.reclaims:
        return ""
    last, _ = waiting.reclaims[-1]
    for each in found:
        if each.pool.name == last != chosen.pool.name and each.trouble:
            return f"pool {last} is left for {chosen.pool.name}: {each.trouble}"
    return ""
