"""What an attempt on several nodes has ended of, and who has to leave for whose sake."""

import itertools

import pytest

from whistlestop.domain.gang import NodeEnd, breaks, decisive, open_nodes
from whistlestop.domain.reasons import EndReason as R


def ends(*reasons: R, told: tuple[int, ...] = ()) -> list[NodeEnd]:
    return [NodeEnd(node, reason, 10.0 + node, node in told) for node, reason in enumerate(reasons)]


@pytest.mark.parametrize(
    ("found", "node"),
    [
        (ends(R.FINISHED, R.FINISHED), 0),
        (ends(R.FINISHED, R.CODE_RAISED), 1),
        (ends(R.CODE_RAISED, R.CODE_RAISED), 0),
        # The others fail of a lost node, long before anybody knows that it is lost.
        (ends(R.CODE_RAISED, R.SIGNALLED, R.HOST_LOST), 2),
        (ends(R.CODE_RAISED, R.RUNNER_LOST), 1),
        # Who left because it was told to explains nothing; who did not hear it any more does.
        (ends(R.KILLED, R.CODE_RAISED, told=(0,)), 1),
        # One that was lost could not be told: the others failed of it, and were heard first.
        (ends(R.HOST_LOST, R.CODE_RAISED, told=(0,)), 0),
        (ends(R.RUNNER_LOST, R.CODE_RAISED, told=(0,)), 0),
        (ends(R.CODE_RAISED, R.HOST_LOST, told=(1,)), 1),
        (ends(R.CODE_RAISED, R.KILLED, R.RUNNER_LOST, told=(1, 2)), 2),
        # What a person has asked for explains everything.
        (ends(R.KILLED, R.HOST_LOST), 0),
        (ends(R.PAUSED, R.CODE_RAISED), 0),
        (ends(R.STOPPED, R.STOPPED), 0),
    ],
)
def test_one_node_tells_how_all_have_ended(found: list[NodeEnd], node: int) -> None:
    for order in itertools.permutations(found):
        assert decisive(order).node == node


def test_a_node_that_fails_breaks_the_gang_and_one_that_ends_well_does_not() -> None:
    assert breaks(ends(R.FINISHED), noticed=False) is None
    assert breaks(ends(R.PAUSED), noticed=False) is None
    broken = breaks(ends(R.FINISHED, R.CODE_RAISED), noticed=False)
    assert broken is not None
    assert broken.node == 1


def test_who_leaves_with_notice_lets_the_others_save() -> None:
    assert breaks(ends(R.PREEMPTED), noticed=True) is None
    assert breaks(ends(R.PREEMPTED), noticed=False) is not None
    assert breaks(ends(R.CODE_RAISED), noticed=True) is not None


def test_nodes_that_have_not_ended() -> None:
    assert open_nodes(3, {each.node: each for each in ends(R.FINISHED)[:1]}) == [1, 2]
