"""A training on several nodes that share no file system: each has a disk of its own, and all reach one S3 server."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.cli.submitting import submit_directory
from whistlestop.client import Client
from whistlestop.testing.s3 import S3Server
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.slurm_cluster import SlurmCluster
from whistlestop.testing.wait import until
from whistlestop.wire.spec_file import spec_to_text

# Every rank has a shard of its own, which only it may load, and says what it has found.
LOOP = """
import os, time, whistlestop
rank = int(os.environ["RANK"])
print(f"rank {rank} has ours from {whistlestop.__file__}", flush=True)
with whistlestop.run() as run:
    state, shard = {"steps": 0}, {"rank": rank, "sum": 0}
    run.track(state=state)
    run.track(shard=shard, per_rank=True)
    found = run.restore()
    if found is not None:
        there = sorted(os.listdir(found.path / "ranks"))
        print(f"rank {rank} found {found.step} {shard['sum']} {shard['rank']} of {' '.join(there)}", flush=True)
    for step in run.steps(total=100000):
        state["steps"] += 1
        shard["sum"] += rank + 1
        time.sleep(0.01)
print(f"rank {rank} ended at {int(state['steps'])} {shard['sum']}", flush=True)
"""
GANG = {"nodes": 2, "slots": 2, "ranks": 2}


@pytest.fixture(scope="module")
def root() -> Path:
    return Path(f"/tmp/wa-{os.getpid()}")


@pytest.fixture(scope="module")
def slurm(root: Path) -> Iterator[SlurmCluster]:
    with SlurmCluster(root, private=root / "private") as started:
        yield started


@pytest.fixture(scope="module")
def server(
    slurm: SlurmCluster, s3_server: S3Server, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    s3, data = s3_server, tmp_path_factory.mktemp("apart") / "server"
    place = ["--checkpoints", f"s3://{s3.bucket()}/runs", "--checkpoints-endpoint", s3.endpoint]
    place += ["--checkpoints-region", s3.options["region"]]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.env.items():
            patch.setenv(name, value)
        with ServerProcess(data, slots=1, extra=place) as started:
            keys = " ".join(f"export {name}={value};" for name, value in s3.env.items())
            with started.client() as client:
                client.apply_pools(f"""
pools:
- {{name: local, slots: 0}}
- name: batch
  slots: 6
  slurm: {{partition: low, python: {sys.executable}, directory: {root}/private, conf: {slurm.env["SLURM_CONF"]},
           lease: 5, prolog: "{keys}"}}
""")
            yield started


def submit(server: ServerProcess, directory: Path, **phase: Any) -> str:
    (directory / "train.py").write_text(LOOP)
    made = {
        "name": "train",
        "command": [sys.executable, "train.py"],
        **GANG,
        **phase,
        "env": {"PYTHONPATH": "/the/user/s/own"},
    }
    with server.client() as client:  # with its code: the nodes don't see this directory
        return submit_directory(client, directory, spec=spec_to_text({"name": "apart", "phases": [made]})).id


def steps(client: Client, run: str) -> int:
    return client.run(run).phases[0].progress.step


def test_shards_of_all_nodes_are_one_checkpoint_and_each_node_fetches_its_own(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, checkpoint={"every": "20 steps"})
        until(lambda: len(client.checkpoints(run)) > 1, what="checkpoints", within=60)
        ours = {line.split()[-1] for line in server.logs(run) if " has ours from " in line}
        assert len(ours) == 1
        assert ours.pop().startswith(f"{slurm.directory}/private/kits/")  # it has travelled
        client.pause(run)
        server.wait(run, "waiting")
        paused = client.run(run).phases[0].attempts[0]
        newest = client.checkpoints(run)[0]
        assert newest.step == paused.last_step
        client.resume(run)
        until(lambda: len(found(server, run)) == 4, what="all ranks to restore", within=60)
        assert found(server, run) == {
            rank: [str(newest.step), str((rank + 1) * newest.step), str(rank), "of", *ranks]
            for rank, ranks in {0: "01", 1: "01", 2: "23", 3: "23"}.items()
        }
        first = client.run(run).phases[0].attempts[1].last_step or newest.step
        until(lambda: steps(client, run) > first + 50, what="steps", within=60)

        # A node dies: the next attempt goes on from a checkpoint that has all shards, those of the dead one included.
        busy = [host for host in slurm.hosts if slurm.processes(host)]
        assert len(busy) == 2
        slurm.power_off(busy[1])
        try:
            until(lambda: len(client.run(run).phases[0].attempts) == 3, what="the next attempt", within=120)
            until(
                lambda: (client.run(run).phases[0].attempts[2].resumed_from or 0) > newest.step,
                what="it to go on",
                within=60,
            )
            lost = client.run(run).phases[0].attempts[1]
            assert lost.status in ("lost", "preempted"), lost
            until(lambda: steps(client, run) > (lost.last_step or 0), what="steps", within=60)
            client.stop(run)
            assert server.wait(run).status == "completed"
        finally:
            slurm.power_on(busy[1])
        ends = [line.split() for line in server.logs(run) if " ended at " in line]
        assert len({words[4] for words in ends}) == 1
        assert {int(words[1]): int(words[5]) for words in ends} == {
            rank: (rank + 1) * int(ends[0][4]) for rank in range(4)
        }
        for host in slurm.hosts:  # code was fetched once, and what is left of attempts says how they ended
            kits = [path for path in (slurm.disk(host) / "kits").iterdir() if not path.name.startswith(".")]
            assert len(kits) == 1
        until(lambda: {name for host in slurm.hosts for name in left(slurm, host)} == KEPT, what="tidiness")


KEPT = {"done", "launch.json", "lock", "runner.log"}


def left(slurm: SlurmCluster, host: str) -> set[str]:
    """Of attempts whose runners left in good order."""
    return {path.name for done in (slurm.disk(host) / "attempts").glob("*/done") for path in done.parent.iterdir()}


def test_a_job_that_slurm_took_twice_starts_once(server: ServerProcess, slurm: SlurmCluster, tmp_path: Path) -> None:
    """As when sbatch gave up, and its job was submitted all the same, after we had looked for it. They are on different
    nodes, and neither sees the other."""
    slurm.run("scontrol", "update", "partitionname=low", "state=down")
    try:
        with server.client() as client:
            run = submit(server, tmp_path, nodes=1, ranks=1)
            job = until(lambda: slurm.run("squeue", "-h", "-t", "PENDING", "-o", "%i").strip(), what="its job")
            (tmp_path / "again.sh").write_text(slurm.run("scontrol", "write", "batch_script", job, "-"))
            name = f"--job-name=whistle-{client.run(run).phases[0].attempts[0].id}"
            words = ("--nodes=1", "--ntasks-per-node=1", "--exclusive", "--export=NONE", "--output=/dev/null")
            slurm.run("sbatch", "-p", "low", name, *words, str(tmp_path / "again.sh"))
            slurm.run("scontrol", "update", "partitionname=low", "state=up")
            until(lambda: steps(client, run) > 100, what="steps", within=60)
            client.stop(run)
            view = server.wait(run)
            assert (view.status, [each.status for each in view.phases[0].attempts]) == ("completed", ["completed"])
            assert len([line for line in server.logs(run) if " has ours from " in line]) == 1
            until(lambda: not slurm.run("squeue", "-h"), within=60, what="both jobs to be gone")
    finally:
        slurm.run("scontrol", "update", "partitionname=low", "state=up")


def test_a_run_in_place_is_refused_in_words_by_machines_that_don_t_see_the_place(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("")
    spec = {"name": "train", "command": [sys.executable, "train.py"], "kind": "task"}
    view = server.wait(server.submit(spec, directory=tmp_path).id)
    assert view.status == "failed"
    assert f"runs in place, in {tmp_path} of this" in (view.phases[0].attempts[0].text or "")
    assert "submit it without --in-place" in (view.phases[0].attempts[0].text or "")


def found(server: ServerProcess, run: str) -> dict[int, list[str]]:
    """By rank: what it has restored."""
    lines = [line.split() for line in server.logs(run) if " found " in line]
    return {int(words[1]): words[3:] for words in lines}
