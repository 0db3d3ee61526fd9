"""Who starts next: priority, then first come; all slots of a phase or none of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A phase that could start. The order of `place`'s argument is the order of the queue."""

    run_id: str
    phase_id: str
    slots: int


@dataclass(frozen=True)
class PoolFacts:
    name: str
    slots: int
    taken: frozenset[int]  # slot numbers that are held; more than `slots` after the pool was made smaller
    price: float

    @property
    def free(self) -> tuple[int, ...]:
        return tuple(slot for slot in range(self.slots) if slot not in self.taken)


@dataclass(frozen=True)
class Placement:
    waiting: Waiting
    pool: str
    slots: tuple[int, ...]
    price: float


def place(queue: Iterable[Waiting], pool: PoolFacts) -> list[Placement]:
    """Start from the head for as long as it fits. The first that does not fit holds the rest back, so that a wide
    phase is never starved by narrow ones; a phase that can never fit holds nobody back."""
    free = list(pool.free)
    placed: list[Placement] = []
    for waiting in queue:
        if waiting.slots > pool.slots:
            continue
        if waiting.slots > len(free):
            break
        taken, free = tuple(free[: waiting.slots]), free[waiting.slots :]
        placed.append(Placement(waiting, pool.name, taken, pool.price))
    return placed


def explain(waiting: Waiting, position: int, pool: PoolFacts, ahead: Sequence[str] = ()) -> str:
    """What a queued phase waits for, in a sentence."""
    need = f"{waiting.slots} slot{'s' if waiting.slots != 1 else ''} of pool {pool.name}"
    if waiting.slots > pool.slots:
        return f"{need}, which has {pool.slots} in all: make the pool larger or ask for fewer"
    free = len(pool.free)
    if free >= waiting.slots and position <= 1:
        return f"{need}: {free} of {pool.slots} free, starts next"
    behind = f", behind {position - 1} other{'s' if position != 2 else ''}" if position > 1 else ""
    return f"{need}: {free} of {pool.slots} free{behind}"
