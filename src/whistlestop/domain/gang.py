"""An attempt on several nodes ends when each of them has: what that comes to, and who has to leave for whose sake."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from whistlestop.domain.reasons import OUTCOMES, EndReason
from whistlestop.domain.states import AttemptState

# What takes capacity away explains what the others then fail of, whoever was heard first.
_TAKEN = (EndReason.HOST_LOST, EndReason.RUNNER_LOST, EndReason.PREEMPTED)
# What a person has asked for explains everything.
_ASKED = (EndReason.KILLED, EndReason.PAUSED)


@dataclass(frozen=True)
class NodeEnd:
    """How one node of an attempt has ended."""

    node: int
    reason: EndReason
    at: float
    told: bool = False  # it was told to leave because of another one

    @property
    def good(self) -> bool:
        return OUTCOMES[self.reason].state is AttemptState.COMPLETED

    @property
    def explains(self) -> bool:
        """Who left because it was told to explains nothing. Who was told and did not hear it any more does: what the
        others died of milliseconds later was its loss, which a cluster notices after half a minute."""
        return not self.told or self.reason in _TAKEN


def breaks(ends: Collection[NodeEnd], *, noticed: bool) -> NodeEnd | None:
    """The one for whose sake the others have to leave: they can't go on without it. None: all is well so far.
    `noticed`: all know that their capacity goes, and are about to save and leave."""
    expected = (*_ASKED, EndReason.PREEMPTED) if noticed else _ASKED
    bad = [end for end in ends if not end.good and end.reason not in expected]
    return decisive(bad) if bad else None


def decisive(ends: Collection[NodeEnd]) -> NodeEnd:
    """The one that tells how the whole attempt has ended."""
    own = [end for end in ends if end.explains] or list(ends)
    for reasons in (_ASKED, _TAKEN):
        found = [end for end in own if end.reason in reasons]
        if found:
            return min(found, key=lambda end: (reasons.index(end.reason), end.at, end.node))
    bad = [end for end in own if not end.good]
    if bad:
        return min(bad, key=lambda end: (end.at, end.node))
    return min(own, key=lambda end: end.node)  # all of them are done: the first node has the result


def open_nodes(nodes: int, ends: Mapping[int, NodeEnd]) -> list[int]:
    return [node for node in range(nodes) if node not in ends]
