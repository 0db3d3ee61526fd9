"""Runs on a real Slurm of three nodes, without a shared directory: what the nodes need they fetch."""

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.client import Client
from whistlestop.engines.attempt_files import memory_of
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.slurm_cluster import SlurmCluster
from whistlestop.testing.spawning import spawn
from whistlestop.testing.wait import until
from whistlestop.wire.api import AttemptView, RunView

LEASE = 10
LOOP = """
import os, time, whistlestop
rank = os.environ.get("RANK", "0")
print(f"rank {rank} on {os.environ['SLURMD_NODENAME'] if 'SLURMD_NODENAME' in os.environ else '?'}", flush=True)
with whistlestop.run() as run:
    state = {"steps": 0}
    run.track(state=state)
    for step in run.steps(total=int(os.environ.get("STEPS", "100000"))):
        state["steps"] += 1
        time.sleep(0.01)
        if "SAID" in os.environ:
            open(os.environ["SAID"], "w").write(str(int(step)))
print(f"rank {rank} ended at {int(state['steps'])}", flush=True)
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster(Path(f"/tmp/ws-{os.getpid()}")) as started:
        yield started


@pytest.fixture(scope="module")
def server(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("slurm")
    common = f"python: {sys.executable}, directory: {root}/nodes, conf: {slurm.env['SLURM_CONF']}, shared: true"
    with ServerProcess(root / "server", slots=1, same_port=True) as started:
        with started.client() as client:
            client.apply_pools(f"""
pools:
- {{name: local, slots: 0}}
- {{name: batch, slots: 6, slurm: {{partition: low, lease: {LEASE}, {common}}}}}
- name: patient
  slots: 6
  slurm: {{partition: low, lease: 600, {common}, prolog: "export FROM_PROLOG='a module' OWN=prolog"}}
- {{name: short, slots: 6, slurm: {{partition: spot, time: "1", notice: 20, {common}}}}}
- {{name: picky, slots: 6, slurm: {{partition: low, constraint: a, {common}}}}}
- {{name: wrong, slots: 6, slurm: {{partition: nowhere, {common}}}}}
""")
        yield started


@pytest.fixture(autouse=True)
def _cleared(server: ServerProcess, slurm: SlurmCluster) -> Iterator[None]:
    yield
    server.clear()
    until(lambda: not slurm.run("squeue", "-h"), within=180, what="every job to be gone")
    for seat in (server.data.parent / "nodes" / "attempts").glob("*"):  # as with a node's power
        shutil.rmtree(memory_of(seat.name), ignore_errors=True)


def submit(server: ServerProcess, directory: Path, **phase: Any) -> str:
    (directory / "train.py").write_text(LOOP)
    phase["capacity"] = {"pools": [phase.pop("pool", "batch")]}
    return server.submit({"name": "train", "command": [sys.executable, "train.py"], **phase}, directory=directory).id


def training(client: Client, run: str, *, above: int = 5) -> RunView:
    until(lambda: client.run(run).phases[0].progress.step > above, what="steps", within=60)
    return client.run(run)


def test_a_run_trains_on_a_node_and_is_stopped(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path)
        training(client, run)
        client.stop(run)
        view = server.wait(run)
        assert view.status == "completed", (view.reason, view.phases[0].attempts, server.output())
        assert view.phases[0].attempts[0].host in ("n1", "n2", "n3")


GANG = {"nodes": 2, "slots": 2, "ranks": 2}


def ended(server: ServerProcess, run: str) -> dict[str, int]:
    found = [line.split() for line in server.logs(run) if " ended at " in line]
    return {words[1]: int(words[-1]) for words in found}


def test_two_nodes_of_two_ranks_stop_at_the_same_step_and_leave_nothing(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, **GANG)
        training(client, run)
        assert sum(bool(slurm.processes(host)) for host in slurm.hosts) == 2
        client.pause(run)
        server.wait(run, "waiting")
        client.resume(run)
        until(lambda: len(client.run(run).phases[0].attempts) == 2, what="the second attempt")
        first = client.run(run).phases[0].attempts[0]
        training(client, run, above=first.last_step or 0)
        client.stop(run)
        view = server.wait(run)
        assert view.status == "completed", view.reason
        assert view.phases[0].attempts[1].resumed_from == first.last_step
        ends = ended(server, run)
        assert sorted(ends) == ["0", "1", "2", "3"]
        assert len(set(ends.values())) == 1
        clean(slurm)


def test_a_kill_leaves_no_process_on_any_node(server: ServerProcess, slurm: SlurmCluster, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, **GANG)
        training(client, run)
        client.kill(run)
        server.wait(run, "killed")
        clean(slurm)


def test_a_node_that_loses_its_power_is_replaced_by_the_spare(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, **GANG, checkpoint={"every": "20 steps"})
        training(client, run, above=50)
        busy = [host for host in slurm.hosts if slurm.processes(host)]
        slurm.power_off(busy[1])
        try:
            until(lambda: len(client.run(run).phases[0].attempts) == 2, what="the next attempt", within=120)
            first = client.run(run).phases[0].attempts[0]
            assert first.status in ("lost", "preempted"), first
            training(client, run, above=first.last_step or 0)
            second = client.run(run).phases[0].attempts[1]
            assert 0 < (second.resumed_from or 0) <= (first.last_step or 0)
            client.stop(run)
            assert server.wait(run).status == "completed"
        finally:
            slurm.power_on(busy[1])


def test_a_run_goes_on_while_server_and_controller_restart(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, pool="patient")
        training(client, run)
    slurm.settle()
    server.kill()
    slurm.stop_controller()
    server.start()
    with server.client() as client:
        training(client, run, above=client.run(run).phases[0].progress.step + 50)
        slurm.start_controller()
        training(client, run, above=client.run(run).phases[0].progress.step + 50)
        assert len(client.run(run).phases[0].attempts) == 1
        client.stop(run)
        assert server.wait(run).status == "completed"


def test_a_run_goes_on_without_the_server_for_longer_than_its_lease(server: ServerProcess, tmp_path: Path) -> None:
    """Its node asks Slurm, which counts on it."""
    said = tmp_path / "said"
    with server.client() as client:
        run = submit(server, tmp_path, env={"SAID": str(said)})
        training(client, run)
    server.kill()
    gone, before = time.monotonic(), int(said.read_text() or 0)
    try:
        until(lambda: time.monotonic() > gone + 1.6 * LEASE, within=60, what="more than a lease")
        until(lambda: int(said.read_text() or 0) > before + 100, what="steps while the server is away")
    finally:
        server.start()
    with server.client() as client:
        training(client, run, above=int(said.read_text() or 0))
        assert len(client.run(run).phases[0].attempts) == 1
        client.stop(run)
        assert server.wait(run).status == "completed"


def test_a_partition_of_higher_priority_takes_the_nodes_and_the_run_comes_back(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path)
        training(client, run, above=20)
        job = slurm.run(
            "sbatch", "--parsable", "-p", "high", "-N3", "--exclusive", "--output=/dev/null", "--wrap", "sleep 5"
        ).strip()
        until(lambda: client.run(run).phases[0].attempts[0].ended_at, what="it to leave", within=90)
        first = client.run(run).phases[0].attempts[0]
        assert first.reason == "preempted", first
        until(lambda: len(client.run(run).phases[0].attempts) == 2, what="the next attempt")
        until(
            lambda: (
                "Slurm job" in " ".join(e.text for e in client.events(run) if e.kind == "pending")
                or slurm.run("squeue", "-h", "-j", job, check=False).strip() == ""
            ),
            what="why it waits",
        )
        training(client, run, above=first.last_step or 0)
        assert client.run(run).phases[0].attempts[1].resumed_from == first.last_step
        client.kill(run)
        server.wait(run)


def test_a_pool_is_made_of_a_partition_with_one_command(server: ServerProcess, slurm: SlurmCluster) -> None:
    words = ["pools", "add", "counted", "--slurm", "high", "--setting", f"conf={slurm.env['SLURM_CONF']}", "--json"]
    made = spawn([*words, "--setting", "lease=10"], env=server.env, output=server.data / "added.json")
    assert made.wait(60) == 0, (server.data / "added.json").read_text()
    with server.client() as client:
        assert client.pool("counted").slots == 6
        assert client.pool("counted").engine == "slurm"
        client.remove_pool("counted")


def test_the_doctor_knows_how_the_cluster_is(server: ServerProcess, slurm: SlurmCluster) -> None:
    slurm.drain("n2", "new disk")
    try:
        with server.client() as client:
            found = {each.pool: each for each in client.clusters()}
    finally:
        slurm.run("scontrol", "update", "nodename=n2", "state=resume")
    batch, wrong = found["batch"], found["wrong"]
    assert (batch.reachable, batch.nodes, batch.text) == (True, 2, "not usable: n2 (drained, new disk)")
    assert re.fullmatch(r"Slurm \d\d\.\d\d\S*", batch.version)
    assert (wrong.reachable, wrong.nodes) == (True, 0)
    assert "there is no node in a partition nowhere" in wrong.text


def test_a_prolog_prepares_what_the_program_finds_and_the_phase_has_the_last_word(
    server: ServerProcess, tmp_path: Path
) -> None:
    words = "import os; print(os.environ['FROM_PROLOG'], os.environ['OWN'], 'SLURM_JOB_ID' in os.environ)"
    phase = {"name": "look", "kind": "task", "command": [sys.executable, "-c", words], "env": {"OWN": "phase"}}
    run = server.submit({**phase, "capacity": {"pools": ["patient"]}}, directory=tmp_path).id
    assert server.wait(run).status == "completed"
    assert "a module phase False" in server.logs(run)


def test_a_partition_that_is_not_there_is_a_failure_in_words(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, pool="wrong")
        until(lambda: client.run(run).phases[0].attempts[:1] and first_of(client, run).ended_at, what="the refusal")
        first = first_of(client, run)
        assert first.reason == "launch_failed"
        assert "Slurm does not take it" in (first.text or "")
        assert "partition" in (first.text or "").lower()
        assert first.credits == 0
        client.kill(run)
        server.wait(run)


def test_what_a_job_waits_for_is_shown_in_words_and_costs_nothing(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    slurm.drain("n1", "new disk")
    try:
        with server.client() as client:
            run = submit(server, tmp_path, pool="picky")
            words = "a node that it needs is not available"
            until(lambda: client.run(run).phases[0].attempts and words in first_of(client, run).waits_for, what="why")
            assert any(words in event.text for event in client.events(run) if event.kind == "pending")
            waited = first_of(client, run).started_at
            slurm.run("scontrol", "update", "nodename=n1", "state=resume")
            training(client, run)
            first = first_of(client, run)
            assert first.started_at > waited
            assert first.waits_for == ""
            assert first.reachable
            client.kill(run)
            server.wait(run)
    finally:
        slurm.run("scontrol", "update", "nodename=n1", "state=resume", check=False)


def test_a_kill_of_what_waits_leaves_nothing_in_the_queue(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    slurm.drain("n1", "new disk")
    try:
        with server.client() as client:
            run = submit(server, tmp_path, pool="picky")
            until(lambda: slurm.run("squeue", "-h", "-t", "PENDING"), what="its job")
            client.kill(run)
            assert server.wait(run).status == "killed"
            until(lambda: not slurm.run("squeue", "-h"), what="its job to be gone")
    finally:
        slurm.run("scontrol", "update", "nodename=n1", "state=resume")


def test_a_job_that_an_admin_cancels_goes_on_in_another_one(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path)
        training(client, run)
        slurm.run("scancel", job_of(slurm))
        first = ended_attempt(client, run)
        assert first.reason == "preempted"
        until(lambda: any("it was cancelled (scancel)" in each.text for each in client.events(run)), what="who did it")
        until(lambda: len(client.run(run).phases[0].attempts) == 2, what="the next attempt")
        training(client, run, above=first.last_step or 0)
        assert client.run(run).phases[0].attempts[1].resumed_from == first.last_step


def test_a_controller_that_is_away_is_waited_for_and_said(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    slurm.stop_controller()
    try:
        with server.client() as client:
            run = submit(server, tmp_path)
            words = "It is tried again"
            until(lambda: client.run(run).phases[0].attempts and words in first_of(client, run).waits_for, what="why")
    finally:
        slurm.start_controller()
    with server.client() as client:
        training(client, run)
        assert [each.number for each in client.run(run).phases[0].attempts] == [1]
        client.kill(run)
        server.wait(run)


def test_a_job_that_an_admin_requeues_is_not_started_twice(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path)
        training(client, run)
        job = job_of(slurm)
        assert "disabled" in slurm.run("sh", "-c", f"scontrol requeue {job} 2>&1", check=False)
        slurm.run("scontrol", "update", f"jobid={job}", "requeue=1")
        slurm.run("scontrol", "requeue", job)
        first = ended_attempt(client, run)
        assert first.reason == "preempted"
        training(client, run, above=first.last_step or 0)
        assert [each.number for each in client.run(run).phases[0].attempts] == [1, 2]
        assert client.run(run).phases[0].attempts[1].resumed_from == first.last_step
        until(lambda: job not in slurm.run("squeue", "-h", "-o", "%i").split(), what="the requeued job to be gone")
        assert len([line for line in server.logs(run) if line.startswith("rank 0 on")]) == 2


def test_a_runner_gets_all_cpus_of_its_slots(server: ServerProcess, slurm: SlurmCluster, tmp_path: Path) -> None:
    """From 22.05 on srun does not take them over from the job by itself, unless it has the whole job as here."""
    with server.client() as client:
        run = submit(server, tmp_path, slots=2)
        training(client, run)
        shown = slurm.run("scontrol", "--oneliner", "show", "step", f"{job_of(slurm)}.0")
        assert " CPUs=2 " in shown, shown
        client.kill(run)
        server.wait(run)


def test_before_the_time_of_a_job_is_up_the_run_is_told_and_goes_on_in_another_one(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, pool="short")
        training(client, run)
        first = ended_attempt(client, run, within=120)
        assert first.reason == "preempted", first
        assert "SIGUSR2" in (first.text or "")
        assert first.last_step
        training(client, run, above=first.last_step)
        assert client.run(run).phases[0].attempts[1].resumed_from == first.last_step


def test_a_node_that_hangs_is_replaced_and_writes_nothing_when_it_goes_on(
    server: ServerProcess, slurm: SlurmCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, checkpoint={"every": "20 steps"})
        training(client, run, above=50)
        (busy,) = [host for host in slurm.hosts if slurm.processes(host)]
        slurm.hang(busy)
        try:
            first = ended_attempt(client, run, within=120)
            assert first.reason == "host_lost", first
            training(client, run, above=first.last_step or 0)
        finally:
            slurm.go_on(busy)
        until(lambda: not slurm.processes(busy), within=60, what="the node to be clean")
        client.stop(run)
        view = server.wait(run)
        assert view.status == "completed"
        assert [each.number for each in view.phases[0].attempts] == [1, 2]
        assert view.phases[0].attempts[0].last_step == first.last_step
        assert len(ended(server, run)) == 1


def first_of(client: Client, run: str) -> AttemptView:
    return client.run(run).phases[0].attempts[0]


def ended_attempt(client: Client, run: str, *, within: float = 60) -> AttemptView:
    until(lambda: first_of(client, run).ended_at, within=within, what="the first attempt's end")
    return first_of(client, run)


def job_of(slurm: SlurmCluster) -> str:
    """The number of the only one that runs."""
    return slurm.run("squeue", "-h", "-t", "RUNNING", "-o", "%i").strip()


def clean(slurm: SlurmCluster) -> None:
    """At once: the end was proven before it was said. Slurm itself may still be tidying up."""
    assert {host: names(slurm, host) for host in slurm.hosts} == {host: [] for host in slurm.hosts}


def names(slurm: SlurmCluster, host: str) -> list[str]:
    found = []
    for pid in slurm.processes(host):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if words and "srun" not in words and "slurm_script" not in words:
            found.append(words[:200])
    return found
