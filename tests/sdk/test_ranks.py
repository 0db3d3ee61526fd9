"""Ranks that act together: in real processes, with real torch.distributed, and in a world without lockstep."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from whistlestop.blobs import staged
from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.channel.control import Control
from whistlestop.channel.layout import Loop, Word
from whistlestop.sdk import group as groups
from whistlestop.sdk.attachment import Attachment
from whistlestop.sdk.group import CONFIRMED, DIED, PROPOSED, STAGED, Group, RanksApart
from whistlestop.sdk.parts import Part
from whistlestop.sdk.place import Place, find_place
from whistlestop.sdk.processes import lives
from whistlestop.sdk.saver import PERIODIC, Saver
from whistlestop.sdk.settings import Settings
from whistlestop.sdk.slots import Slots
from whistlestop.sdk.staging import lay, read_table, write_table
from whistlestop.sdk.world import World, find_world
from whistlestop.testing.forks import Forks
from whistlestop.testing.missing import missing
from whistlestop.testing.wait import until

HEADER = """
import os, sys, random, time
from pathlib import Path
from typing import Any
import torch
from whistlestop.channel.layout import Word
from whistlestop.domain.stops import Stop
from whistlestop.testing.ranks_drill import Ranks, drill, _agreed
from whistlestop.testing.wait import until
root = Path(sys.argv[1])
"""


@pytest.fixture(scope="module")
def torch_loaded() -> Iterator[Forks]:
    if importlib.util.find_spec("torch") is None:
        missing("torch is not installed")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("WHISTLE_", "RANK"))}
    forks = Forks("import torch, torch._dynamo", {**clean, "OMP_NUM_THREADS": "1"})
    yield forks
    forks.close()


@pytest.fixture
def with_torch(torch_loaded: Forks, tmp_path: Path) -> Callable[[str], str]:
    """Ranks are forked: that needs a process of its own, without threads."""

    def run(script: str) -> str:
        done = torch_loaded.run(HEADER + textwrap.dedent(script), str(tmp_path), cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.drill
def test_all_ranks_end_at_the_same_step_whatever_ends_them(with_torch: Callable[[str], str]) -> None:
    kinds = {"stop": 1, "preempt": 1, "pause": 1, "signal one rank": 1, "signal all ranks": 1}
    with_torch(f"report = drill(root, {kinds}, world=4, seed=1); assert report.rounds == 5")


@pytest.mark.drill
def test_ranks_on_several_nodes_end_at_the_same_step(with_torch: Callable[[str], str]) -> None:
    kinds = {"stop": 1, "preempt": 1, "signal one rank": 1}
    with_torch(f"report = drill(root, {kinds}, world=4, nodes=2, seed=2); assert report.rounds == 3")


def test_a_training_of_ranks_that_was_paused_ends_as_if_it_had_not_been(with_torch: Callable[[str], str]) -> None:
    with_torch(
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


def test_a_rank_that_dies_frees_the_others_and_is_named(with_torch: Callable[[str], str]) -> None:
    with_torch(
        """
        ranks = Ranks(root, 3, env={"DIE_AT": "1:5"})
        codes = ranks.wait(60)
        assert codes[1] == -9 and codes[0] != 0 and codes[2] != 0, codes
        assert "rank 1 (process" in ranks.words(), ranks.words()
        """,
    )


def test_a_rank_that_hangs_in_a_collective_is_freed_by_the_death_of_another(with_torch: Callable[[str], str]) -> None:
    """The others wait in user code that no signal ends."""
    with_torch(
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


def test_a_value_that_is_not_finite_in_one_rank_stops_all_and_is_not_gone_on_from(
    with_torch: Callable[[str], str],
) -> None:
    with_torch(
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


def test_saves_by_the_clock_are_made_by_all_ranks_together(with_torch: Callable[[str], str]) -> None:
    with_torch(
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
    nothing_is_left()


def left_over() -> set[str]:
    """Pages that ranks shared and that nobody has any more; directories are slots of other programs."""
    there = {path.name for path in Path("/dev/shm").glob("whistle-*") if not path.is_dir()}
    return there - set().union(*(pages_of(pid) for pid in psutil.pids()))


def pages_of(pid: int) -> set[str]:
    try:
        text = Path(f"/proc/{pid}/maps").read_text()
    except OSError:  # it has ended
        return set()
    return set(re.findall(r"/dev/shm/(whistle-\S+)", text))


def nothing_is_left() -> None:
    """A training of a test beside this one may leave something, until the next one starts."""
    until(lambda: left_over() <= BEFORE)


BEFORE = left_over()


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


# What goes wrong at the beginning and at the end: real processes, without a runner and without lockstep.

BODY = """
import os, signal, sys, time
from pathlib import Path
from typing import Any
import whistlestop
from whistlestop.testing.wait import until
rank, root = int(os.environ["RANK"]), Path(os.environ["ROOT"])
def train(steps, **more):
    with whistlestop.run(os.environ.get("NAME", "body"), checkpoints=root / "kept", **more) as run:
        run.track(rng=True)
        for step in run.steps(steps):
            yield run, int(step)
def here(name):
    return (root / name).exists()
def mark(name):
    (root / name).touch()
"""


class Started:
    """Ranks of this script, all of them children of this process unless `shell` says otherwise."""

    def __init__(self, root: Path, script: str, ranks: tuple[int, ...] = (0, 1), *, shell: bool = False, **env: str):
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("WHISTLE_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "SLURM_", "OMPI_"))
        }
        file, made = root / "body.py", root / "body.new"
        made.write_text(BODY + textwrap.dedent(script))
        made.rename(file)  # in one move: a rank that was just started may be reading it
        command = [sys.executable, str(file)]
        if shell:
            command = ["bash", "-c", f"{sys.executable} {file}; exit $?"]
        shared = {**clean, "WORLD_SIZE": "2", "ROOT": str(root), **env}
        self.ranks = {
            rank: subprocess.Popen(
                command,
                env={**shared, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in ranks
        }

    def end(self, within: float = 60) -> tuple[list[int], str]:
        said = []
        try:
            for process in self.ranks.values():
                out, err = process.communicate(timeout=within)
                said.append(out + err)
        finally:
            for process in self.ranks.values():
                if process.poll() is None:
                    process.kill()
                    process.communicate()
        return [process.returncode for process in self.ranks.values()], "".join(said)


def test_two_trainings_one_after_another_in_the_same_ranks_don_t_see_each_other(tmp_path: Path) -> None:
    codes, said = Started(
        tmp_path,
        """
        for run, step in train(20):
            time.sleep(0.002 if rank else 0.02)  # rank 1 is at its second one while rank 0 is at its first
        seen = [step for run, step in train(5)]
        print(rank, seen)
        """,
    ).end()
    assert codes == [0, 0], said
    assert "0 [0, 1, 2, 3, 4]" in said
    assert "1 [0, 1, 2, 3, 4]" in said
    nothing_is_left()


FOREVER = """
for run, step in train(int(os.environ.get("STEPS", "1000000"))):
    mark(f"in-{rank}")
    time.sleep(0.005)
print("good end")
"""


def test_what_a_killed_training_leaves_does_not_poison_the_next_start(tmp_path: Path) -> None:
    for killed in ((0, 1), (1,), (0,)):
        started = Started(tmp_path, FOREVER)
        until(lambda: (tmp_path / "in-0").exists() and (tmp_path / "in-1").exists())
        for rank in killed:
            started.ranks[rank].kill()
        codes, said = started.end()
        assert [codes[rank] for rank in killed] == [-9] * len(killed), said
        for name in ("in-0", "in-1"):
            (tmp_path / name).unlink()
    codes, said = Started(tmp_path, FOREVER, STEPS="20").end()
    assert codes == [0, 0], said
    assert said.count("good end") == 2
    nothing_is_left()


def test_a_rank_of_the_next_start_does_not_join_those_that_were_killed(tmp_path: Path) -> None:
    """Rank 1 had not come when rank 0 was killed: its page is free in the old file."""
    first = Started(tmp_path, FOREVER, (0,))
    until(lambda: (tmp_path / "in-0").exists())
    first.ranks[0].kill()
    first.end()
    second = Started(tmp_path, FOREVER, (1,), STEPS="20")
    third = Started(tmp_path, FOREVER, (0,), STEPS="20")
    ends = [second.end()]
    assert ends[0][0] == [0], ends  # before the other is waited for: alone it waits for long
    ends.append(third.end())
    assert ends[1][0] == [0], ends
    nothing_is_left()


def test_a_rank_that_comes_late_learns_that_another_has_died(tmp_path: Path) -> None:
    codes, said = Started(
        tmp_path,
        """
        if rank == 1:
            until(lambda: here("killed"))
        for run, step in train(1000):
            if rank == 0:
                mark("killed")
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.01)
        """,
    ).end()
    assert codes[0] == -9, said
    assert codes[1] not in (0, -9), said
    assert "rank 0 (process" in said
    nothing_is_left()


def test_the_file_of_a_launcher_that_is_dead_is_swept_by_the_next_start(tmp_path: Path) -> None:
    script = tmp_path / "launcher.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "ranks = [subprocess.Popen([sys.executable, sys.argv[1]], env={**os.environ, 'RANK': str(rank)}) "
        "for rank in (0, 1)]\n"
        "print(*[each.pid for each in ranks], flush=True)\n"
        "[each.wait() for each in ranks]\n"
    )
    (tmp_path / "body.py").write_text(BODY + FOREVER)
    launcher = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "body.py")],
        env={**os.environ, "WORLD_SIZE": "2", "ROOT": str(tmp_path), "MASTER_PORT": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert launcher.stdout is not None
    ranks = [int(each) for each in launcher.stdout.readline().split()]
    until(lambda: (tmp_path / "in-0").exists() and (tmp_path / "in-1").exists())
    (made,) = pages_of(ranks[0])
    for process in (launcher.pid, *ranks):
        os.kill(process, signal.SIGKILL)
    launcher.communicate()
    until(lambda: not any(lives(process) for process in ranks))
    (tmp_path / "next").mkdir()
    codes, said = Started(tmp_path / "next", FOREVER, STEPS="5").end()
    assert codes == [0, 0], said
    assert not (Path("/dev/shm") / made).exists()


def test_ranks_under_shells_of_their_own_find_each_other(tmp_path: Path) -> None:
    codes, said = Started(tmp_path, FOREVER, shell=True, STEPS="20", MASTER_PORT=str(os.getpid())).end()
    assert codes == [0, 0], said


def test_two_trainings_at_the_same_time_with_one_name_are_refused_in_words(tmp_path: Path) -> None:
    first = Started(tmp_path, FOREVER, STEPS="200")
    until(lambda: (tmp_path / "in-0").exists() and (tmp_path / "in-1").exists())
    codes, said = Started(tmp_path, FOREVER).end()
    assert codes == [1, 1]
    assert "of this training is process" in said
    (tmp_path / "other").mkdir()
    codes, said = Started(tmp_path / "other", FOREVER, STEPS="5", NAME="other").end()
    assert codes == [0, 0], said
    codes, said = first.end()
    assert codes == [0, 0], said


def test_a_rank_that_comes_when_rank_0_is_done_still_learns_where_to_start(tmp_path: Path) -> None:
    codes, said = Started(
        tmp_path,
        """
        if rank == 1:
            until(lambda: here("done"))
        with whistlestop.run("late", checkpoints=root / "kept") as run:
            run.track(state={})
            print(list(run.steps(3)))
        if rank == 0:
            mark("done")
        """,
    ).end()
    assert codes == [0, 0], said
    assert said.count("[0, 1, 2]") == 2, said
    nothing_is_left()


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_fails_before_its_loop_frees_those_that_wait_for_it(tmp_path: Path, failing: int) -> None:
    begun = time.monotonic()
    codes, said = Started(
        tmp_path,
        f"""
        with whistlestop.run("failing", checkpoints=root / "kept", every="3 steps") as run:
            run.track(rng=True)
            if rank == {failing}:
                raise ValueError("no data")
            for step in run.steps(1000):
                time.sleep(0.01)
        """,
    ).end()
    assert time.monotonic() - begun < 20
    assert codes[failing] == 1, said
    assert codes[1 - failing] not in (0, -9), said
    assert f"rank {failing}" in said
    nothing_is_left()


def test_a_rank_whose_helper_lives_on_ends_at_once(tmp_path: Path) -> None:
    codes, said = Started(
        tmp_path,
        """
        helper = 0
        for run, step in train(5):
            if step == 0 and (helper := os.fork()) == 0:
                signal.pause()
            begun = time.monotonic()
        print("ended after", time.monotonic() - begun)
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)
        """,
    ).end()
    assert codes == [0, 0], said
    took = [float(line.split()[-1]) for line in said.splitlines() if line.startswith("ended after")]
    assert len(took) == 2
    assert min(took) < 0.9, said  # who waits for a helper waits a second, in both


@pytest.mark.parametrize("seed", range(3))
def test_ranks_of_very_different_speed_stop_at_the_same_step(tmp_path: Path, seed: int) -> None:
    codes, said = Started(
        tmp_path,
        f"""
        done = 0
        for run, step in train(None):
            time.sleep(0.0001 if rank else 0.001)
            done = step + 1
            if rank == 1 and done == {500 + 137 * seed}:
                run.finish("enough")
        print("done", done)
        """,
    ).end()
    assert codes == [0, 0], said
    ends = {line for line in said.splitlines() if line.startswith("done")}
    assert len(ends) == 1, said


def test_ranks_that_were_not_told_who_shares_their_node_say_what_to_set(tmp_path: Path) -> None:
    codes, said = Started(tmp_path, FOREVER, (1,), LOCAL_RANK="0").end()
    assert codes == [1]
    assert "set LOCAL_WORLD_SIZE" in said
    codes, said = Started(tmp_path, FOREVER, (1,), MASTER_ADDR="192.0.2.1", MASTER_PORT="1").end()
    assert codes == [1]
    assert "meet at 192.0.2.1, which is another machine" in said


def stopped(pid: int) -> bool:
    """All its threads."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return bool(states) and set(states) == {"T"}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no threads to be seen here")
def test_a_node_that_is_stopped_is_lost_for_rank_0(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    env = {"LOCAL_WORLD_SIZE": "1", "WHISTLE_AGREE": f"127.0.0.1:{port}", "WHISTLE_AGREE_KEY": "secret"}
    started = Started(
        tmp_path,
        "from whistlestop.sdk import nodes\nnodes._ANSWER_SECONDS = 1.0\n" + FOREVER,
        **env,
    )
    until(lambda: (tmp_path / "in-0").exists() and (tmp_path / "in-1").exists())
    started.ranks[1].send_signal(signal.SIGSTOP)
    # On a busy machine its threads go on for a while, and answer.
    until(lambda: stopped(started.ranks[1].pid), within=60)
    started.ranks[0].terminate()
    try:
        until(lambda: started.ranks[0].poll() is not None, within=60)
    finally:
        started.ranks[1].send_signal(signal.SIGCONT)
        codes, said = started.end()
    assert codes == [76, 76], said
    assert "node 1, with rank 1 and those after it, has died" in said
    nothing_is_left()


def test_an_unhealthy_checkpoint_of_this_attempt_is_not_gone_on_from(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for step, healthy in ((5, True), (9, False)):
        store.begin("train", step, 1, "a-1").commit({"healthy": healthy})
    env = {"WHISTLE_CHECKPOINTS": str(tmp_path), "WHISTLE_PHASE": "train", "WHISTLE_ATTEMPT": "a-1"}
    place = find_place(Settings.read("place", env), checkpoints=None, resume="auto")
    assert place.start is not None
    assert place.start.step == 5


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


def test_a_rank_that_comes_to_a_proposed_step_waits_until_it_is_confirmed_or_moved(three: list[Group]) -> None:
    second = three[1]
    page = second.decided
    at(second, 10)
    assert not second.due(10)
    answers: list[bool] = []
    page[PROPOSED], page[Word.STOP_AT_STEP], page[Word.STOP_SEQ] = 1, 10, 1
    assert not second.due(9)
    waiting = threading.Thread(target=lambda: answers.append(second.due(10)))
    waiting.start()
    until(lambda: second.reach() == 10)  # it is held there: step 10 itself may be confirmed
    assert answers == []
    page[Word.STOP_AT_STEP] = 12
    waiting.join(5)
    assert answers == [False]
    page[CONFIRMED] = 1
    assert second.due(12)
    assert second.reach() == 11


def test_the_death_of_rank_0_ends_the_wait_for_what_it_has_proposed(three: list[Group]) -> None:
    page = three[0].decided
    page[PROPOSED], page[Word.STOP_AT_STEP], page[DIED] = 1, 1, 1
    assert not three[1].due(1)


def test_ranks_that_run_free_all_act_at_the_decided_step(three: list[Group]) -> None:
    """Far faster than the time that rank 0 waits before its second look."""
    ends: dict[int, int] = {}

    def run_free(group: Group) -> None:
        step = 0
        while not group.due(step):
            step += 1
            at(group, step)
        ends[group.world.rank] = step

    running = [threading.Thread(target=run_free, args=(group,)) for group in three[1:]]
    for each in running:
        each.start()
    until(lambda: three[0].furthest() > 50)
    decided = three[0].decide(3, {Word.STOP_LEVEL: 1})
    for each in running:
        each.join(20)
    assert ends == {1: decided, 2: decided}


def test_who_waits_for_long_says_for_whom(three: list[Group], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = three
    said: list[str] = []
    first.say = said.append
    monkeypatch.setattr(groups, "_SAY_SECONDS", 0.01)
    monkeypatch.setattr(groups, "PATIENCE_SECONDS", 0.1)
    first.mine[STAGED] = second.mine[STAGED] = 1
    with pytest.raises(RanksApart, match=r"rank 2 is not so far"):
        first.wait_for_all(STAGED, 1, "all ranks to save step 7")
    assert said == ["rank 0 has waited 0 s for all ranks to save step 7 (rank 2 is not so far)"]
    third.end(Loop.FINISHED)
    with pytest.raises(RanksApart, match="rank 2 has come to its end, and rank 0 waits for all ranks to save step 8"):
        first.wait_for_all(STAGED, 1, "all ranks to save step 8")


def test_a_rank_that_never_comes_is_not_waited_for_when_its_launcher_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group.join(World(1, 2, 1, 2), tmp_path)
    monkeypatch.setattr(groups, "_ORPHAN_SECONDS", 0.05)
    monkeypatch.setattr("os.getppid", lambda: 1 << 30)
    with pytest.raises(RanksApart, match=r"whoever started rank 1 is gone .rank 0 has not come"):
        group.wait(lambda: False, "rank 0")


def test_the_last_one_out_takes_the_file_away(three: list[Group]) -> None:
    first, second, third = three
    first.leave()
    second.leave()
    assert first.path.exists()
    third.leave()
    assert not first.path.exists()


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
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, World(1, 2, 1, 2, 0)),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, World(1, 2, 0, 1, 1)),  # and `unknown`
        (
            {"RANK": "3", "WORLD_SIZE": "4", "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1",
             "SLURM_NODEID": "1", "SLURM_NTASKS_PER_NODE": "2"},
            World(3, 4, 1, 2, 1),
        ),
        (
            {"MASTER_ADDR": "a", "SLURM_PROCID": "4", "SLURM_NTASKS": "5", "SLURM_LOCALID": "0", "SLURM_NODEID": "2",
             "SLURM_TASKS_PER_NODE": "2(x2),1"},
            World(4, 5, 0, 1, 2, 3),
        ),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, World()),  # perhaps two trainings
        ({"MASTER_ADDR": "a", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, World()),
        (  # started by hand, from a batch script
            {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0",
             "SLURM_NODEID": "0", "SLURM_NTASKS_PER_NODE": "1"},
            World(1, 2, 1, 2, 0),
        ),
        (
            {"RANK": "3", "WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4",
             "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            World(3, 4, 1, 2, 1),
        ),
        (
            {"TF_CONFIG": '{"cluster": {"chief": ["a:1"], "worker": ["a:2", "b:1"]}, '
                          '"task": {"type": "worker", "index": 1}}'},
            World(2, 3, 0, 1, 1, 2),
        ),
    ],
)  # fmt: skip
def test_the_launcher_says_who_is_who(env: dict[str, str], world: World) -> None:
    assert find_world(env) == world


def test_ranks_of_unknown_nodes_don_t_wait_for_each_other(tmp_path: Path) -> None:
    for env in (
        {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        {"RANK": "1", "WORLD_SIZE": "4", "SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0",
         "SLURM_NODEID": "1", "SLURM_TASKS_PER_NODE": "2(x2)"},  # dealt out in turn
    ):  # fmt: skip
        with pytest.raises(RanksApart, match=r"nobody says which ranks share a node.*set LOCAL_WORLD_SIZE"):
            Group.join(find_world(env), tmp_path)


def test_pages_are_apart(tmp_path: Path, three: list[Group], wait: Callable[..., None]) -> None:
    for number, group in enumerate(three):
        group.mine[Word.BATCH] = number + 10
    pages = dict(three[0].peers())
    assert isinstance(pages[1], Control)
    assert (pages[1][Word.BATCH], pages[2][Word.BATCH]) == (11, 12)


def test_a_rank_that_has_done_its_part_may_end_while_another_is_waited_for(three: list[Group]) -> None:
    first, second, third = three
    first.mine[STAGED] = third.mine[STAGED] = 1
    third.end(Loop.STOPPED)
    looks = []

    def all_saved() -> bool:
        looks.append(first._lost(lambda: first._behind(STAGED, 1)))
        if len(looks) == 3:
            second.mine[STAGED] = 1
        return first.least(STAGED) >= 1

    first.wait(all_saved, "all to save", whom=lambda: first._behind(STAGED, 1))
    assert set(looks) == {""}


# Saves of several ranks.


@pytest.fixture
def savers(three: list[Group], tmp_path: Path) -> Iterator[list[Saver]]:
    found = []
    for group in three:
        attachment = Attachment()
        attachment.group, attachment.leads = group, group.world.rank == 0
        place = Place(CheckpointStore(tmp_path / "kept"), "train", "", 1, None, stage=tmp_path / "stage")
        saver = Saver(place, attachment, keep=1)
        saver.parts = {"state": Part(lambda: {"a": 1}, lambda state: None, per_rank=True)}
        found.append(saver)
    yield found
    for saver in found:
        saver.close()


def save_all(savers: list[Saver], step: int, why: str = PERIODIC) -> list[bool]:
    """All ranks save this step; which of them have put it off."""
    others = [
        threading.Thread(target=saver.save, args=(step,), kwargs={"why": why, "meta": {}}) for saver in savers[1:]
    ]
    for each in others:
        each.start()
    savers[0].save(step, why=why, meta={})
    for each in others:
        each.join(20)
        assert not each.is_alive()
    return [saver.put_off for saver in savers]


def test_ranks_put_a_periodic_save_off_together_and_wait_for_nobody(
    savers: list[Saver], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stage = tmp_path / "stage"
    assert save_all(savers, 1) == save_all(savers, 2) == [False] * 3
    assert not savers[0].has_room
    assert save_all(savers, 3) == [True] * 3
    for slot in staged.slots(stage):
        staged.release(slot)
    assert savers[0].has_room
    assert save_all(savers, 4) == [False] * 3
    (found,) = filter(None, map(staged.read, staged.slots(stage)))
    assert (found.step, len(found.pieces)) == (4, 3)
    assert capfd.readouterr().err == ""


def test_a_rank_that_found_no_slot_free_puts_the_save_off_for_all(savers: list[Saver], tmp_path: Path) -> None:
    save_all(savers, 1)
    save_all(savers, 2)
    savers[1].save(3, why=PERIODIC, meta={})
    for slot in staged.slots(tmp_path / "stage"):  # a moment later
        staged.release(slot)
    savers[2].save(3, why=PERIODIC, meta={})
    assert savers[0].save(3, why=PERIODIC, meta={}) is None
    assert [saver.put_off for saver in savers] == [True, True, False]
    assert save_all(savers, 4) == [False] * 3


@pytest.mark.parametrize("shared", [True, False])
def test_what_another_machine_will_read_is_on_disk_before_it_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    synced: list[int] = []
    sync = os.fsync
    monkeypatch.setattr("os.fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), sync(handle))[1])
    slots = Slots(tmp_path, None, inside="rank-1", ranks=2)
    slot = slots.take(1)
    assert slot is not None
    parts = {
        "state": Part(lambda: {"a": 1}, lambda state: None, per_rank=True),
        "model": Part(lambda path: (path / "m").write_text("m"), lambda path: None, per_rank=True, files=True),
    }
    laid = lay(slots, slot, {name: ("ranks/1/", part) for name, part in parts.items()})
    write_table(slot, laid, 3, shared=shared)
    sources = {(slot.path / piece.source).stat().st_ino for piece in laid.pieces}
    assert len(sources) == 2
    assert set(synced) == (sources if shared else set())
    assert [each.name for each in read_table(slot, 1, 3).pieces] == [each.name for each in laid.pieces]


def test_ranks_are_told_once_that_lazy_does_nothing_for_them(
    savers: list[Saver], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for saver in savers:
        saver._lazily = True
    for step in (1, 2):
        save_all(savers, step)
    assert capfd.readouterr().err == "whistlestop: lazy=True does nothing here: several ranks train together\n"
