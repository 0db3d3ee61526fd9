"""Capacity as it is now: pools, the hosts they are made of, and which slots are held."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class Market(StrEnum):
    SPOT = "spot"  # cheap, and taken back when somebody pays more
    ON_DEMAND = "on_demand"  # stays until it is given back


@dataclass(frozen=True)
class Host:
    """A machine of a pool, or a part of one."""

    name: str  # empty: the pool names none, and a runner says where it is
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Pool:
    name: str
    slots: int
    price: float  # credits per slot-hour
    taken: frozenset[int] = frozenset()  # slot numbers that are held; more than `slots` after it was made smaller
    engine: str = "local"
    provider: str = ""
    region: str = ""
    kind: str = ""  # the class of its machines
    market: Market = Market.ON_DEMAND
    rank: int = 0  # the lower, the sooner it is taken, all else being equal
    hosts: tuple[Host, ...] = ()

    @property
    def free(self) -> tuple[int, ...]:
        return tuple(slot for slot in range(self.slots) if slot not in self.taken)

    @cached_property
    def by_host(self) -> tuple[Host, ...]:
        """Never empty: a pool that names no hosts is one."""
        return self.hosts or (Host("", tuple(range(self.slots))),)


def hosts_of(named: Sequence[Mapping[str, object]], slots: int) -> tuple[Host, ...]:
    """The pool's slots, dealt out to its hosts in order; what was named beyond them is not there."""
    found, first = [], 0
    for each in named:
        size = each["slots"]
        assert isinstance(size, int)
        found.append(Host(str(each["name"]), tuple(range(first, min(slots, first + size)))))
        first += size
    return tuple(found)
