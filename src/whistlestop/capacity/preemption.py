"""How often a pool takes its capacity away without a word. Pure: the scheduler hands it the pool's own record."""

from collections.abc import Iterable
from dataclasses import dataclass

# Before a pool has a record it is taken for one that reclaims once in two hours: saving a little too often costs
# seconds, saving too rarely costs hours. The record outweighs this after a few hours.
PRIOR_LOSSES = 1.0
PRIOR_SECONDS = 2 * 3600.0


@dataclass(frozen=True)
class Tenure:
    """One attempt on the pool."""

    seconds: float  # how long it had its slots
    lost: bool  # it ended because the capacity, the host or its runner went
    saved_at_end: bool = False  # after a notice, and all it had done: no work was lost


def unnoticed_rate(record: Iterable[Tenure]) -> float:
    """Losses per second that no notice foretold in time for a save: (1 + losses) / (2 h + uptime)."""
    losses, uptime = PRIOR_LOSSES, PRIOR_SECONDS
    for tenure in record:
        uptime += max(0.0, tenure.seconds)
        losses += tenure.lost and not tenure.saved_at_end
    return losses / uptime
