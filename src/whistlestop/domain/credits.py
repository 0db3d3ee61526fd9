"""What a run costs: slot-seconds of attempts × price. Queue time is free."""

from collections.abc import Iterable
from dataclasses import dataclass

BUDGET_OF = "the budget of "  # who asks for a stop when it is used up: this and the run or the project


@dataclass(frozen=True)
class Charge:
    """One attempt's line in the ledger. `until` is None while the meter runs."""

    slots: int
    price: float  # credits per slot-hour
    since: float
    until: float | None

    def credits(self, now: float) -> float:
        end = now if self.until is None else self.until
        return max(0.0, end - self.since) * self.slots * self.price / 3600.0


def priced(credits: float) -> str:
    """0.3 credits, 1 credit: prices are set by people, and read as they were set."""
    return f"{credits:g} credit{'s' if credits != 1 else ''}"


def used(charges: Iterable[Charge], now: float) -> float:
    return sum(charge.credits(now) for charge in charges)


def estimated(spent: float, ahead: Iterable[tuple[float, float | None]]) -> float | None:
    """The whole cost if it goes on: spent so far, and for each that runs its rate (credits per hour) times the seconds
    it has left. None if one of them is unknown."""
    whole = spent
    for rate, left in ahead:
        if left is None:
            return None
        whole += rate * left / 3600.0
    return whole


def saved(estimate: float | None, spent: float) -> float | None:
    """What ending now leaves unspent."""
    return None if estimate is None else max(0.0, estimate - spent)
