"""Ranks that act together: in real processes, with real torch.distributed, and in a world without lockstep."""

import importlib.util
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.channel.control import Control
from whistlestop.channel.layout import Loop, Word
from whistlestop.sdk.group import Group
from whistlestop.sdk.world import World, find_world
from whistlestop.testing.missing import missing

HEADER = """
import os, sys, random, time
from pathlib import Path
import torch
from whistlestop.channel.layout import Word
from whistlestop.domain.stops import Stop
from whistlestop.testing.ranks_drill import Ranks, drill, _agreed
from whistlestop.testing.wait import until
root = Path(sys.argv[1])
"""


def with_torch(root: Path, script: str) -> str:
    """Ranks are forked: that needs a process of its own, without threads."""
    if importlib.util.find_spec("torch") is None:
        missing("torch is not installed")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("WHISTLE_", "RANK"))}
    done = subprocess.run(
        [sys.executable, "-c", HEADER + textwrap.dedent(script), str(root)],
        env={**env, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.drill
def test_all_ranks_end_at_the_same_step_whatever_ends_them(tmp_path: Path) -> None:
    kinds = {"stop": 2, "preempt": 1, "pause": 1, "signal one rank": 1, "signal all ranks": 1}
    with_torch(tmp_path, f"report = drill(root, {kinds}, world=4, seed=1); assert report.rounds == 6")


@pytest.mark.drill
def test_ranks_on_several_nodes_end_at_the_same_step(tmp_path: Path) -> None:
    kinds = {"stop": 1, "preempt": 1, "signal one rank": 1}
    with_torch(tmp_path, f"report = drill(root, {kinds}, world=4, nodes=2, seed=2); assert report.rounds == 3")


def test_a_training_of_ranks_that_was_paused_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    with_torch(
        tmp_path,
        """
        (root / "straight").mkdir(); (root / "paused").mkdir()
        straight = Ranks(root / "straight", 2, env={"STEPS": "40"})
        assert set(straight.wait().values()) == {0}, straight.words()
        first = Ranks(root / "paused", 2, env={"STEPS": "40"})
        until(lambda: first.step() >= 7)
        first.control[Word.STOP_LEVEL] = Stop.PAUSE
        assert set(first.wait().values()) == {75}, first.words()
        at = first.newest().step
        assert 7 < at < 40, at
        second = Ranks(root / "paused", 2, attempt=2, env={"STEPS": "40"})
        assert set(second.wait().values()) == {0}, second.words()
        ends = [[each["weights"] for each in ranks.results()] for ranks in (straight, second)]
        assert ends[0] == ends[1], ends
        assert "going on at step" in second.words()
        """,
    )


def test_a_rank_that_dies_frees_the_others_and_is_named(tmp_path: Path) -> None:
    with_torch(
        tmp_path,
        """
        ranks = Ranks(root, 3, env={"DIE_AT": "1:5"})
        codes = ranks.wait(60)
        assert codes[1] == -9 and codes[0] != 0 and codes[2] != 0, codes
        assert "rank 1 (process" in ranks.words(), ranks.words()
        """,
    )


def test_a_rank_that_hangs_in_a_collective_is_freed_by_the_death_of_another(tmp_path: Path) -> None:
    """The others wait in user code that no signal ends."""
    with_torch(
        tmp_path,
        """
        from whistlestop.testing.programs import ranks as program
        def train(model, optimizer, steps=[0]):
            steps[0] += 1
            if program.RANK != 1 and steps[0] > 4:
                time.sleep(600)
        program._train = train
        ranks = Ranks(root, 3, env={"DIE_AT": "1:6"})
        begun = time.monotonic()
        codes = ranks.wait(60)
        assert codes == {0: 76, 1: -9, 2: 76}, (codes, ranks.words())
        """,
    )


def test_a_value_that_is_not_finite_in_one_rank_stops_all_and_is_not_gone_on_from(tmp_path: Path) -> None:
    with_torch(
        tmp_path,
        """
        from whistlestop.blobs.checkpoints import CheckpointStore
        ranks = Ranks(root, 2, env={"NAN_AT": "1:5", "WHISTLE_CHECKPOINT_EVERY": "4 steps"})
        assert set(ranks.wait().values()) == {0}, ranks.words()
        assert len(set(ranks.done())) == 1, ranks.done()
        kept = CheckpointStore(root / "checkpoints").list("train")
        print([(each.step, each.healthy) for each in kept])
        assert [each.step for each in kept][-1] == 4
        """,
    )


def test_saves_by_the_clock_are_made_by_all_ranks_together(tmp_path: Path) -> None:
    with_torch(
        tmp_path,
        """
        ranks = Ranks(root, 2, env={"STEPS": "150", "PAUSE_MS": "10", "WHISTLE_CHECKPOINT_EVERY": "0.3 seconds"})
        assert set(ranks.wait().values()) == {0}, ranks.words()
        from whistlestop.blobs.checkpoints import CheckpointStore
        kept = CheckpointStore(root / "checkpoints").list("train")
        assert kept[0].step == 150 and len(kept) > 2, kept
        for each in kept:
            assert {f"ranks/{rank}/parts/rng.pickle" for rank in (0, 1)} <= set(each.files)
            assert each.meta["world"] == 2
        assert "could not be saved" not in ranks.words()
        """,
    )


FREE = """
import os, random, sys, time
import whistlestop
chance = random.Random(int(os.environ["RANK"]))
done = 0
with whistlestop.run("free", checkpoints=os.environ["PLACE"], every="5 steps") as run:
    run.track(rng=True)
    for step in run.steps():
        time.sleep(chance.random() * 0.004 * (1 + int(os.environ["RANK"])))
        done = int(step) + 1
        if step == 3:
            print("going", flush=True)
        if done == int(os.environ.get("FINISH_AT", "0")):
            run.finish("enough")
print(done)
"""


def start_free(root: Path, **more: str) -> list["subprocess.Popen[str]"]:
    """Ranks that don't wait for each other in any step."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WHISTLE_")}
    shared = {**clean, "WORLD_SIZE": "3", "MASTER_PORT": str(os.getpid()), "PLACE": str(root / "kept")}
    return [
        subprocess.Popen(
            [sys.executable, "-c", FREE],
            env={**shared, "RANK": str(rank), **(more if rank == 1 else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]


def ends_of(ranks: list["subprocess.Popen[str]"]) -> list[int]:
    said = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], said
    return [int(out.split()[-1]) for out, _ in said]


def test_ranks_without_lockstep_and_without_a_runner_stop_at_the_same_step(tmp_path: Path) -> None:
    ranks = start_free(tmp_path)
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "going\n"
    ranks[2].terminate()
    ends = ends_of(ranks)
    assert len(set(ends)) == 1
    newest = CheckpointStore(tmp_path / "kept").list("run-001")[0]
    assert newest.step == ends[0]
    assert {f"ranks/{rank}/parts/rng.pickle" for rank in range(3)} <= set(newest.files)
    assert not list(Path("/dev/shm").glob(f"whistle-{os.getpid()}-*"))


def test_a_rank_that_is_not_the_first_can_ask_for_the_end(tmp_path: Path) -> None:
    ends = ends_of(start_free(tmp_path, FINISH_AT="6"))
    assert len(set(ends)) == 1
    assert ends[0] >= 6


def test_ranks_go_on_together_from_the_same_checkpoint(tmp_path: Path) -> None:
    ends = ends_of(start_free(tmp_path, FINISH_AT="6"))
    again = ends_of(start_free(tmp_path, FINISH_AT=str(ends[0] + 5)))
    assert len(set(again)) == 1
    assert again[0] >= ends[0] + 5


def test_a_checkpoint_of_three_ranks_is_not_taken_for_one_of_two(tmp_path: Path) -> None:
    ends_of(start_free(tmp_path, FINISH_AT="6"))
    script = f"""
import whistlestop
with whistlestop.run("free", checkpoints={str(tmp_path / "kept")!r}) as run:
    run.track(rng=True)
    print(next(iter(run.steps())))
"""
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("WHISTLE_", "RANK", "WORLD"))}
    own = script.replace("rng=True", "per_rank=True, rng={}")
    done = subprocess.run([sys.executable, "-c", own], env=alone, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "and here there are 1" in done.stderr
    done = subprocess.run([sys.executable, "-c", script], env=alone, capture_output=True, text=True, timeout=60)
    assert "rng was saved by each of 3 ranks" in done.stderr, done


# The agreement itself, rank by rank in one process.


@pytest.fixture
def three(tmp_path: Path) -> list[Group]:
    return [Group.join(World(rank, 3, rank, 3), tmp_path) for rank in range(3)]


def at(group: Group, step: int) -> None:
    group.mine[Word.STEP] = step


def test_what_is_decided_lies_beyond_every_rank(three: list[Group]) -> None:
    first, second, third = three
    at(second, 7)
    at(third, 5)
    decided = first.decide(5, {Word.STOP_LEVEL: 1})
    assert decided > 8
    assert (third.decided[Word.STOP_AT_STEP], third.decided[Word.STOP_LEVEL]) == (decided, 1)


def test_a_rank_that_overtakes_the_decision_moves_it(three: list[Group], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _ = three
    moves = iter([50, 60])

    def run_ahead(seconds: float) -> None:
        at(second, next(moves, second.mine[Word.STEP]))

    monkeypatch.setattr("whistlestop.sdk.group.time.sleep", run_ahead)
    assert first.decide(1, {Word.STOP_LEVEL: 1}) == 62


def test_the_next_decision_waits_until_all_have_acted_on_the_last(three: list[Group]) -> None:
    first, second, third = three
    assert first.all_acknowledged()
    first.decide(1, {Word.CHECKPOINT_NOW: 1})
    first.acknowledge()
    second.acknowledge()
    assert not first.all_acknowledged()
    third.end(Loop.FINISHED)  # it will never act on anything again
    assert first.all_acknowledged()


def test_who_somebody_else_made_the_memory_for_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(Exception, match="belongs to somebody else"):
        Group.join(World(0, 2, 0, 2), tmp_path)


@pytest.mark.parametrize(
    ("env", "world"),
    [
        ({}, World()),
        ({"RANK": "3"}, World(3, 1, 0, 1, 3)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, World(3, 4, 3, 4, 0)),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}, World(3, 4, 1, 2, 1)),
        (
            {"TF_CONFIG": '{"cluster": {"chief": [""], "worker": ["", ""]}, "task": {"type": "worker", "index": 1}}'},
            World(2, 3, 2, 3, 0),
        ),
        ({"TF_CONFIG": "no JSON"}, World()),
    ],
)  # fmt: skip
def test_the_launcher_says_who_is_who(env: dict[str, str], world: World) -> None:
    assert find_world(env) == world


def test_pages_are_apart(tmp_path: Path, three: list[Group], wait: Callable[..., None]) -> None:
    for number, group in enumerate(three):
        group.mine[Word.BATCH] = number + 10
    pages = dict(three[0].peers())
    assert isinstance(pages[1], Control)
    assert (pages[1][Word.BATCH], pages[2][Word.BATCH]) == (11, 12)
