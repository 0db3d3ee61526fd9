"""The free slots of all pools while a plan is made: by host, because all slots of a phase are on one of them."""

from collections.abc import Callable, Collection, Iterable

from whistlestop.capacity.pools import Pool

Place = tuple[str, str]  # a pool and a host of it


class Room:
    def __init__(self, pools: Iterable[Pool], shut: Collection[Place] = ()) -> None:
        """`shut`: hosts on which nothing is started."""
        self.pools = {pool.name: pool for pool in pools}
        self.shut = {place for place in shut if place[0] in self.pools}
        self._size: dict[str, dict[str, int]] = {}
        self._free: dict[str, dict[str, list[int]]] = {}  # hosts with a free slot only
        self.free = 0  # slots that can be had, over all
        for pool in self.pools.values():
            hosts = [host for host in pool.by_host if (pool.name, host.name) not in self.shut]
            self._size[pool.name] = {host.name: len(host.slots) for host in hosts}
            here = {host.name: [slot for slot in host.slots if slot not in pool.taken] for host in hosts}
            self._free[pool.name] = {name: slots for name, slots in here.items() if slots}
            self.free += sum(map(len, here.values()))

    def largest(self, pool: str) -> int:
        """Slots of its largest host."""
        return max(self._size[pool].values(), default=0)

    def hosts(self, pool: str, slots: int) -> list[Place]:
        """Where so many could ever be had."""
        return [(pool, name) for name, size in self._size[pool].items() if size >= slots]

    def free_on(self, place: Place) -> int:
        return len(self._free[place[0]].get(place[1], ()))

    def free_in(self, pool: str) -> int:
        return sum(map(len, self._free[pool].values()))

    def most_on_one_host(self, pool: str) -> int:
        return max(map(len, self._free[pool].values()), default=0)

    def with_free(self) -> list[Place]:
        return [(pool, host) for pool, hosts in self._free.items() for host in hosts]

    def find(self, pool: str, slots: int, may: Callable[[Place], bool]) -> Place | None:
        """The host on which the least stays free: wide phases find room on the others."""
        best, left = None, 0
        for host, free in self._free[pool].items():
            more = len(free) - slots
            if more >= 0 and (best is None or more < left) and may((pool, host)):
                best, left = (pool, host), more
                if not more:
                    break
        return best

    def give_back(self, place: Place, slots: tuple[int, ...]) -> None:
        pool, host = place
        self._free[pool][host] = sorted([*self._free[pool].get(host, ()), *slots])
        self.free += len(slots)

    def take(self, place: Place, slots: int) -> tuple[int, ...]:
        pool, host = place
        free = self._free[pool][host]
        taken, rest = tuple(free[:slots]), free[slots:]
        if rest:
            self._free[pool][host] = rest
        else:
            del self._free[pool][host]
        self.free -= slots
        return taken
