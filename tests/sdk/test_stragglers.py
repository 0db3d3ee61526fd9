"""Which rank is slow: named once, with its host, and again when it is not so any more."""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from whistlestop.channel.layout import Word
from whistlestop.sdk.group import ARRIVALS, ARRIVED, Group
from whistlestop.sdk.stragglers import Judge, Seen, Verdict, seen
from whistlestop.sdk.world import World

STEP = 0.1  # seconds
BACK = ARRIVALS // 4  # steps of which a node tells


def look(judge: Judge, step: int, lags: Iterable[float], *, unsure: float = 0.0) -> tuple[Verdict | None] | None:
    """Ranks 0 and 1 on one node, 2 and 3 on another; each comes to every step so much too late."""
    drawn = random.Random(step)
    ready = {
        rank: [STEP * each + lag + drawn.random() / 1e4 for each in range(step - BACK + 1, step + 1)]
        for rank, lag in enumerate(lags)
    }
    first, second = ({rank: ready[rank] for rank in ranks} for ranks in ((0, 1), (2, 3)))
    return judge.look([Seen(step, "n1", first), Seen(step + 1, "n2", _later(second), unsure)])


def _later(ready: dict[int, list[float]]) -> dict[int, list[float]]:
    """As a node tells that is one step ahead."""
    return {rank: [*times[1:], times[-1] + STEP] for rank, times in ready.items()}


def follow(
    judge: Judge, lags: Iterable[float], *, begin: int = BACK, looks: int = 8, unsure: float = 0.0
) -> list[Verdict | None]:
    lags = list(lags)
    news = [look(judge, begin + number * BACK, lags, unsure=unsure) for number in range(looks)]
    return [each[0] for each in news if each is not None]


def test_the_rank_that_comes_last_is_named_once_and_again_when_it_is_not_slow_any_more() -> None:
    judge = Judge()
    (verdict,) = follow(judge, [0, 0, 0, 0.04])
    assert verdict is not None
    assert (verdict.rank, verdict.share) == (3, 1.0)
    assert 0.039 < verdict.wait < 0.041
    assert follow(judge, [0, 0, 0, 0], begin=9 * BACK, looks=10) == [None]
    (again,) = follow(judge, [0, 0.04, 0, 0], begin=20 * BACK, looks=10)
    assert again is not None
    assert again.rank == 1


@pytest.mark.parametrize(
    ("lags", "unsure"),
    [
        pytest.param([0, 0, 0, 0], 0.0, id="nobody"),
        pytest.param([0, 0, 0, 0.001], 0.0, id="a millisecond of a hundred"),
        pytest.param([0, 0, 0, 0.04], 0.05, id="less than its clock may be off"),
        pytest.param([0, 0, 0.04, 0.04], 0.0, id="two alike"),
    ],
)
def test_nobody_is_named_for_little(lags: list[float], unsure: float) -> None:
    assert follow(Judge(), lags, unsure=unsure) == []


def test_ranks_that_don_t_train_in_lockstep_are_not_compared() -> None:
    judge = Judge()
    for step in range(BACK, 10 * BACK, BACK):
        times = [STEP * each for each in range(BACK)]
        assert judge.look([Seen(step, "n1", {0: times}), Seen(step + 5 * BACK, "n2", {1: times})]) is None


def test_a_node_tells_only_what_all_its_ranks_have_come_to(tmp_path: Path) -> None:
    three = [Group.join(World(rank, 3, rank, 3), tmp_path) for rank in range(3)]
    for group in three:
        for step in range(ARRIVALS):
            group.mine.set_seconds(ARRIVED + step, 1000.0 + step)
        group.mine[Word.STEP] = 100
    three[1].mine[Word.STEP] = 90
    found = seen(three[0])
    assert found is not None
    assert found.step == 89
    assert found.ready[2][-1] == 1089.0
    assert found.at(89) == {0: 1089.0, 1: 1089.0, 2: 1089.0}
    assert found.at(90) is None
    three[1].mine[Word.STEP] = 10
    assert seen(three[0]) is None
