"""What runs, host by host: until when at the latest, and who has to leave for one of higher priority.

Nobody who has saved nothing yet, no task, nobody who may not; the lowest priority first, then the least work since the
last checkpoint; never more than needed, and none if it would not fit all the same."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from whistlestop.capacity.pools import Pool
from whistlestop.capacity.room import Place

NOTICE = 120.0  # seconds that whoever makes room has to save and leave, as clouds give them
LATE = 60.0  # seconds after its bound in which one is gone


@dataclass(frozen=True)
class Running:
    attempt_id: str
    pool: str
    slots: tuple[int, ...]
    priority: int = 0
    ends_by: float | None = None  # None: nothing bounds it
    yields: bool = False  # may be asked to leave: it has saved, and nobody has forbidden it
    work: float = 0.0  # seconds since its last checkpoint
    leaving: bool = False  # asked to leave already


@dataclass(frozen=True)
class Leaving:
    attempts: tuple[str, ...] = ()  # to be asked now
    leaving: int = 0  # those who make room, with the ones that were asked before
    place: Place | None = None


class Occupants:
    def __init__(
        self, pools: Sequence[Pool], running: Sequence[Running] | Callable[[], Sequence[Running]], now: float
    ) -> None:
        """`running` is a function where nobody may be asked to leave: it is called when somebody has to wait."""
        self._now = now
        self._pools, self._running = pools, running
        known = () if callable(running) else running
        self._here: dict[Place, list[Running]] | None = None  # built when somebody has to wait
        self._added: list[tuple[Place, Running]] = []
        self._yields = sorted(each.priority for each in known if each.yields and not each.leaving)

        self._gone: set[str] = set()  # asked by this plan
        self.leaving = any(each.leaving for each in known)

    @property
    def yielding(self) -> bool:
        """Somebody could be asked to leave."""
        return bool(self._yields)

    def below(self, priority: int) -> bool:
        return bool(self._yields) and self._yields[0] < priority

    def add(self, place: Place, slots: tuple[int, ...], limit: float | None) -> None:
        """Placed just now."""
        ends_by = None if limit is None else self._now + limit
        self._added.append((place, Running("", place[0], slots, ends_by=ends_by)))

    def when(self, place: Place, slots: int, free: int) -> tuple[float, int] | None:
        """When so many are free there by all bounds, and how many are then."""
        bounded = sorted(
            (each.ends_by if each.ends_by > self._now else self._now + LATE, len(each.slots))
            for each in self._on(place)
            if each.ends_by is not None
        )
        for index, (at, more) in enumerate(bounded):
            free += more
            last = index + 1 == len(bounded) or bounded[index + 1][0] > at
            if free >= slots and last:
                return at, free
        return None

    def make_room(self, slots: int, priority: int, places: Sequence[Place], free: Callable[[Place], int]) -> Leaving:
        """On the host where it costs the least. Nobody is asked while enough are on their way out."""
        best: tuple[tuple[float, ...], Place, list[Running]] | None = None
        for place in places:
            here = self._on(place)
            leaving = [each for each in here if each.leaving]
            there = free(place) + sum(len(each.slots) for each in leaving)
            if there >= slots:
                return Leaving(leaving=len(leaving), place=place)
            chosen = _cheapest(here, priority, slots - there, self._gone)
            if chosen:
                cost = (
                    float(max(each.priority for each in chosen)),
                    sum(each.work * len(each.slots) for each in chosen),
                )
                if best is None or cost < best[0]:
                    best = cost, place, chosen
        if best is None:
            return Leaving()
        _, place, chosen = best
        gone = {each.attempt_id for each in chosen}
        self._gone |= gone
        here = self._on(place)
        here[:] = [_asked(each, self._now) if each.attempt_id in gone else each for each in here]
        for each in chosen:
            self._yields.remove(each.priority)
        return Leaving(tuple(sorted(gone)), sum(each.leaving for each in here), place)

    def _on(self, place: Place) -> list[Running]:
        if self._here is None:
            self._here = defaultdict(list)
            home = {
                (pool.name, slot): (pool.name, host.name)
                for pool in self._pools
                for host in pool.by_host
                for slot in host.slots
            }
            for each in self._running() if callable(self._running) else self._running:
                # Slots beyond the pool's end give nothing back: it was made smaller.
                inside: dict[Place, list[int]] = defaultdict(list)
                for slot in each.slots:
                    if (each.pool, slot) in home:
                        inside[home[each.pool, slot]].append(slot)
                for where, held in inside.items():
                    self._here[where].append(replace(each, slots=tuple(held)))
        for where, added in self._added:
            self._here[where].append(added)
        self._added.clear()
        return self._here[place]


def _cheapest(here: Sequence[Running], priority: int, missing: int, gone: Collection[str]) -> list[Running] | None:
    may = [
        each
        for each in here
        if each.yields and not each.leaving and each.priority < priority and each.attempt_id not in gone
    ]
    chosen: list[Running] = []
    for each in sorted(may, key=lambda each: (each.priority, each.work)):
        if missing <= 0:
            break
        chosen.append(each)
        missing -= len(each.slots)
    if missing > 0:
        return None
    # A wide one that came last may have made the narrow ones before it needless.
    for each in sorted(chosen, key=lambda each: (each.priority, each.work), reverse=True):
        if missing + len(each.slots) <= 0:
            chosen.remove(each)
            missing += len(each.slots)
    return chosen


def _asked(each: Running, now: float) -> Running:
    soon = now + NOTICE + LATE
    return replace(each, leaving=True, ends_by=soon if each.ends_by is None else min(each.ends_by, soon))
