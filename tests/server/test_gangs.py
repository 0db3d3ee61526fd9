"""Attempts on several nodes, on a real server: here each node is a runner of its own on this machine."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.client import Client
from whistlestop.engines.attempt_files import read_began
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import RunView

LOOP = """
import os, sys, time, whistlestop
rank = os.environ["RANK"]
print(f"rank {rank} of {os.environ['WORLD_SIZE']} on node {os.environ['WHISTLE_NODE']}", flush=True)
with whistlestop.run() as run:
    state = {"steps": 0}
    run.track(state=state)
    for step in run.steps(total=int(os.environ.get("STEPS", "100000"))):
        if os.environ.get("DIE_AT") == f"{rank}:{int(step)}" and os.environ["WHISTLE_ATTEMPT_NUMBER"] == "1":
            raise RuntimeError("this rank is broken")
        state["steps"] += 1
        run.log(**{f"steps{rank}": state["steps"]})
        time.sleep(0.005)
print(f"rank {rank} ended at {int(state['steps'])}", flush=True)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("gangs"), slots=8) as started:
        yield started


@pytest.fixture(autouse=True)
def _cleared(server: ServerProcess) -> Iterator[None]:
    yield
    server.clear()


def submit(server: ServerProcess, directory: Path, **phase: Any) -> str:
    env = {name: str(value) for name, value in phase.pop("env", {}).items()}
    (directory / "train.py").write_text(LOOP)
    made = {"name": "train", "command": [sys.executable, "train.py"], "nodes": 2, "slots": 2, "ranks": 2, **phase}
    return server.submit({**made, "env": env}, directory=directory).id


def training(client: Client, run: str, *, above: int = 5) -> RunView:
    until(lambda: client.run(run).phases[0].progress.step > above, what="steps of all ranks")
    return client.run(run)


def ended(server: ServerProcess, run: str) -> dict[str, int]:
    """By rank: the step at which it ended."""
    found = [line.split() for line in server.logs(run) if " ended at " in line]
    return {words[1]: int(words[-1]) for words in found}


def test_all_ranks_of_all_nodes_stop_at_the_same_step(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path)
        training(client, run)
        client.stop(run)
        view = server.wait(run)
        assert view.status == "completed", view.reason
        assert view.phases[0].attempts[0].slots == [0, 1, 2, 3]
        ends = ended(server, run)
        assert sorted(ends) == ["0", "1", "2", "3"]
        assert len(set(ends.values())) == 1, ends
        assert sorted(line for line in server.logs(run) if " on node " in line) == [
            "rank 0 of 4 on node 0", "rank 1 of 4 on node 0", "rank 2 of 4 on node 1", "rank 3 of 4 on node 1",
        ]  # fmt: skip
        names = {series.name for series in client.metrics(run).series}
        assert {"steps0", "steps1@1", "steps2@2", "steps3@3"} <= names
        assert server.complaints() == []


def test_a_pause_and_a_preemption_go_on_where_they_were(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path)
        training(client, run)
        client.pause(run)
        server.wait(run, "waiting")
        client.resume(run)
        until(lambda: len(client.run(run).phases[0].attempts) == 2, what="the second attempt")
        first = client.run(run).phases[0].attempts[0]
        assert first.reason == "paused"
        training(client, run, above=first.last_step or 0)
        client.preempt(run, notice_s=20)
        until(lambda: len(client.run(run).phases[0].attempts) == 3, what="the third attempt")
        second = client.run(run).phases[0].attempts[1]
        training(client, run, above=second.last_step or 0)
        client.stop(run)
        view = server.wait(run)
        _, second, third = view.phases[0].attempts
        assert (second.resumed_from, second.reason, third.resumed_from) == (
            first.last_step,
            "preempted",
            second.last_step,
        )
        assert view.status == "completed"


def test_a_rank_that_fails_ends_all_nodes_and_is_named(server: ServerProcess, tmp_path: Path) -> None:
    view = server.wait(submit(server, tmp_path, env={"DIE_AT": "2:20"}))
    assert view.status == "failed"
    attempt = view.phases[0].attempts[0]
    assert attempt.reason == "code_raised"
    assert "this rank is broken" in (attempt.text or ""), attempt.text
    assert not _living(attempt.id)


def test_a_node_that_dies_in_the_middle_is_recovered_from_the_last_checkpoint(
    server: ServerProcess, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, checkpoint={"every": "20 steps"})
        training(client, run, above=50)
        attempt = client.run(run).phases[0].attempts[0]
        began = read_began(server.data / "attempts" / f"{attempt.id}.1")
        assert began is not None
        assert began.group is not None
        os.kill(began.pid, signal.SIGKILL)  # first: it must not live to tell how its program ended
        (Path(began.group) / "cgroup.kill").write_text("1")
        until(lambda: len(client.run(run).phases[0].attempts) == 2, what="the next attempt")
        first, second = client.run(run).phases[0].attempts
        assert first.reason == "runner_lost", first.text
        training(client, run, above=first.last_step or 0)
        assert (second.resumed_from or 0) % 20 == 0
        assert (first.last_step or 0) - (client.run(run).phases[0].attempts[1].resumed_from or 0) <= 40
        assert not _living(first.id)
        client.stop(run)
        assert server.wait(run).status == "completed"


def test_a_kill_leaves_no_process_on_any_node(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path)
        attempt = training(client, run).phases[0].attempts[0]
        assert len(_living(attempt.id)) >= 4
        client.kill(run)
        server.wait(run)
        assert not _living(attempt.id)


def test_a_gang_goes_on_while_its_server_is_away(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path)
        before = training(client, run).phases[0].progress.step
    server.kill()
    server.start()
    with server.client() as client:
        training(client, run, above=before + 20)
        assert len(client.run(run).phases[0].attempts) == 1
        client.stop(run)
        assert server.wait(run).status == "completed"
        assert len(set(ended(server, run).values())) == 1


def test_a_command_that_starts_its_own_ranks_is_told_of_the_nodes(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text("import json, os; print(json.dumps(dict(os.environ)))")
    run = submit(server, tmp_path, command=[sys.executable, "show.py"], ranks=0, kind="task")
    server.wait(run, "completed")
    said = [json.loads(line) for line in server.logs(run) if line.startswith("{")]
    said.sort(key=lambda each: str(each["WHISTLE_NODE"]))
    assert [each["PET_NODE_RANK"] for each in said] == ["0", "1"]
    assert {each["PET_NNODES"] for each in said} == {"2"}
    assert {each["PET_NPROC_PER_NODE"] for each in said} == {"2"}
    assert len({each["PET_MASTER_PORT"] for each in said}) == 1


def _living(attempt_id: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if f"WHISTLE_ATTEMPT={attempt_id}\0".encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
    return found


# In lockstep, as by a collective: nobody begins a step before all have come to it.
LOCKSTEP = """
import mmap, os, time, whistlestop
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
file = os.open("barrier", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 8 * world)
come = memoryview(mmap.mmap(file, 8 * world)).cast("q")
with whistlestop.run() as run:
    for step in run.steps(total=100000):
        come[rank] = step + 1
        while min(come) <= step:
            time.sleep(0.0005)
        if rank == 3 and not os.path.exists("quick"):
            time.sleep(0.06)
        time.sleep(0.005)
"""


def test_a_rank_that_is_slow_is_named_with_its_host_and_when_it_is_so_no_more(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "lockstep.py").write_text(LOCKSTEP)
    spec = {"name": "train", "command": [sys.executable, "lockstep.py"], "nodes": 2, "slots": 2, "ranks": 2}
    with server.client() as client:
        run = server.submit(spec, directory=tmp_path).id

        def told() -> list[str]:
            return [event.text for event in client.events(run) if event.kind == "straggler"]

        until(told, what="the slow rank to be named")
        (named,) = told()
        assert named.startswith(f"rank 3 on host {os.uname().nodename} is slow: it comes last in "), named
        assert "ms a step for it" in named
        shown = show(server, run)
        assert "rank 3 on host" in " ".join(shown.split()), shown
        (tmp_path / "quick").touch()
        until(lambda: len(told()) > 1, what="the end of it")
        assert told()[1] == f"rank 3 on host {os.uname().nodename} is not slow any more"
        assert "is slow" not in show(server, run)
        client.stop(run)
        server.wait(run)


def show(server: ServerProcess, run: str) -> str:
    """As a person sees it."""
    command = [sys.executable, "-m", "whistlestop", "show", run]
    env = {**os.environ, "WHISTLE_URL": server.url, "WHISTLE_TOKEN": server.token, "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout


DIVIDED = """
import os, time, whistlestop
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
batches = whistlestop.Batches(96, 24 // world, seed=1)
with whistlestop.run() as run:
    state = {"steps": 0}
    run.track(state=state, rng=True)
    if "SHARDS" in os.environ:
        run.track(shard={"rank": rank}, per_rank=True)
    for step, batch in run.each(batches, epochs=2):
        state["steps"] += 1
        print(f"rank {rank} saw", *batch, flush=True)
        if step == 2 and world == 4:
            run.finish("enough for now")
        time.sleep(0.2 if world == 4 else 0.0)  # a decision takes two steps
"""


def saw(server: ServerProcess, run: str) -> list[int]:
    return [int(each) for line in server.logs(run) if " saw " in line for each in line.split(" saw ")[1].split()]


def test_a_training_goes_on_with_fewer_nodes_and_sees_what_is_left(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "divided.py").write_text(DIVIDED)
    spec = {"name": "train", "command": [sys.executable, "divided.py"], "nodes": 2, "slots": 2, "ranks": 2}
    with server.client() as client:
        run = server.submit(spec, directory=tmp_path).id
        assert server.wait(run).status == "completed"
        again = client.continue_run(run, sets=["phases.0.nodes=1"]).id
        view = server.wait(again)
        assert view.status == "completed", view.phases[0].attempts
        both = sorted(saw(server, run) + saw(server, again))
        assert both == sorted([*range(96), *range(96)])
        told = " ".join(event.text for event in client.events(again))
        assert "rng was saved by each of 4 ranks at step" in told
        assert "each rank's is derived from it anew" in told


def test_shards_are_refused_in_words_by_another_number_of_ranks(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "divided.py").write_text(DIVIDED)
    spec = {"name": "train", "command": [sys.executable, "divided.py"], "nodes": 2, "slots": 2, "ranks": 2}
    with server.client() as client:
        run = server.submit({**spec, "env": {"SHARDS": "1"}}, directory=tmp_path).id
        assert server.wait(run).status == "completed"
        newest = client.checkpoints(run)[0]
        again = client.continue_run(run, sets=["phases.0.nodes=1"]).id
        view = server.wait(again)
        assert view.status == "failed"
        words = f"this checkpoint of step {newest.step} has shards of 4 ranks (shard), and here there are 2"
        assert words in (view.phases[0].attempts[0].text or ""), view.phases[0].attempts
        assert saw(server, again) == []


SHARDS = """
import os, time, whistlestop
with whistlestop.run() as run:
    run.track(shard={"rank": int(os.environ["RANK"])}, per_rank=True)
    for step in run.steps(total=100000):
        time.sleep(0.01)
"""


def test_a_shard_that_is_damaged_on_one_node_makes_all_go_on_from_the_checkpoint_before(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "shards.py").write_text(SHARDS)
    spec = {"name": "train", "command": [sys.executable, "shards.py"], "nodes": 2, "slots": 2, "ranks": 2}
    with server.client() as client:
        run = server.submit({**spec, "checkpoint": {"every": "20 steps"}}, directory=tmp_path).id
        until(lambda: len(client.checkpoints(run)) > 1, what="checkpoints")
        client.pause(run)
        server.wait(run, "waiting")
        newest, before, *_ = client.checkpoints(run)
        (shard,) = Path(newest.path or "").glob("ranks/3/parts/shard*")
        shard.chmod(0o600)
        shard.write_bytes(b"something else")
        client.resume(run)
        until(lambda: len(client.run(run).phases[0].attempts) == 3, what="the third attempt")
        training(client, run, above=before.step)
        _, second, third = client.run(run).phases[0].attempts
        assert second.reason == "checkpoint_damaged", second
        assert third.resumed_from == before.step
        told = [event.text for event in client.events(run) if event.kind == "checkpoint_set_aside"]
        assert any(text.startswith("node 1: ") and "ranks/3" in text for text in told), told
        client.kill(run)
        server.wait(run)
