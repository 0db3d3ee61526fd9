"""Runs on a real Ray of three nodes, without a shared directory: what the nodes need they fetch."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.client import Client
from whistlestop.testing.ray_cluster import RayCluster
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import RunView

LOOP = """
import os, subprocess, time, whistlestop
rank = os.environ.get("RANK", "0")
if os.environ.get("STRAY"):
    subprocess.Popen(["setsid", "sleep", "1000"])
with whistlestop.run() as run:
    state = {"steps": 0}
    run.track(state=state)
    for step in run.steps(total=100000):
        state["steps"] += 1
        time.sleep(0.01)
print(f"rank {rank} ended at {int(state['steps'])}", flush=True)
"""

TORCH = """
import os, time, torch, whistlestop
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(8, 1)
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
with whistlestop.run() as run:
    state = {"steps": 0}
    run.track(model=model, optimizer=optimizer, state=state)
    for step in run.steps(total=100000):
        data = torch.randn(16, 8)
        optimizer.zero_grad()
        (wrapped(data) - data.sum(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()
        state["steps"] += 1
        time.sleep(0.01)
print(f"rank {rank} ended at {int(state['steps'])}", flush=True)
dist.destroy_process_group()
"""

GANG = {"nodes": 2, "slots": 2, "ranks": 2}
GROUPS = """
import json, sys, ray
from ray.util import placement_group_table
ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
print(json.dumps([each["name"] for each in placement_group_table().values() if each["state"] == "CREATED"]))
"""


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with RayCluster(tmp_path_factory.mktemp("ray"), options=["--num-gpus=2"]) as started, started.entered():
        yield started


@pytest.fixture(scope="module")
def server(ray: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("server")
    settings = f'address: "{ray.address}", python: {sys.executable}, directory: {root}/nodes, shared: true, lease: 5'
    # Nodes know a server by its address: it comes back to the same one. In a namespace of our own every port is free.
    with ServerProcess(root / "data", slots=1, extra=["--port", "7333"]) as started:
        with started.client() as client:
            client.apply_pools(f"""
pools:
- {{name: local, slots: 0}}
- {{name: cpus, slots: 8, ray: {{{settings}, resource: CPU}}}}
- {{name: gpus, slots: 6, ray: {{{settings}}}}}
- {{name: there, ray: {{{settings}, resource: CPU}}}}
""")
        yield started
        assert not started.complaints()


def submit(server: ServerProcess, directory: Path, program: str = LOOP, *, pool: str = "cpus", **phase: Any) -> str:
    (directory / "train.py").write_text(program)
    asked = {"name": "train", "command": [sys.executable, "train.py"], **phase, "capacity": {"pools": [pool]}}
    return server.submit(asked, directory=directory).id


def training(client: Client, run: str, *, above: int = 5, within: float = 60) -> RunView:
    until(lambda: client.run(run).phases[0].progress.step > above, what="steps", within=within)
    return client.run(run)


def busy(ray: RayCluster) -> list[str]:
    return [host for host in ray.hosts if ray.processes(host)]


def clean(ray: RayCluster) -> None:
    """The programs at once: their end was proven before it was said. The runners say so, and leave."""
    programs = {host: [name for name in names(ray, host) if "whistlestop.runner" not in name] for host in ray.hosts}
    assert programs == {host: [] for host in ray.hosts}
    until(lambda: not busy(ray), what="the runners to leave")


def names(ray: RayCluster, host: str) -> list[str]:
    found = []
    for pid in ray.processes(host):
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [words for words in found if words]


def ended(server: ServerProcess, run: str) -> dict[str, int]:
    found = [line.split() for line in server.logs(run) if " ended at " in line]
    return {words[1]: int(words[-1]) for words in found}


def reserved(ray: RayCluster) -> list[str]:
    """The attempts that Ray holds slots for."""
    command = ray.command(sys.executable, "-c", GROUPS, ray.address)
    return list(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]))


def test_a_run_trains_on_a_node_and_is_stopped(server: ServerProcess, ray: RayCluster, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path)
        view = training(client, run)
        assert reserved(ray) == [view.phases[0].attempts[0].id]
        client.stop(run)
        view = server.wait(run)
        assert view.status == "completed", (view.reason, view.phases[0].attempts, server.output())
        assert view.phases[0].attempts[0].host in ray.hosts
        found = {each.pool: (each.reachable, each.nodes, each.text) for each in client.clusters()}
        assert found == dict.fromkeys(("cpus", "gpus", "there"), (True, 3, ""))
        assert client.clusters()[0].version.startswith("Ray 2.")
    clean(ray)
    until(lambda: reserved(ray) == [], what="the slots to be given back")


def test_a_kill_leaves_no_process_on_any_node(server: ServerProcess, ray: RayCluster, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, **GANG, env={"STRAY": "1"})
        training(client, run)
        assert len(busy(ray)) == 2
        client.kill(run)
        server.wait(run, "killed")
        clean(ray)


def test_a_torch_training_on_two_nodes_of_two_ranks_is_paused_loses_a_node_and_stops_at_one_step(
    server: ServerProcess, ray: RayCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        env = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        run = submit(server, tmp_path, TORCH, **GANG, env=env, checkpoint={"every": "20 steps"})
        training(client, run, within=120)
        client.pause(run)
        server.wait(run, "waiting")
        clean(ray)
        client.resume(run)
        until(lambda: len(client.run(run).phases[0].attempts) == 2, what="the second attempt")
        first = client.run(run).phases[0].attempts[0]
        training(client, run, above=(first.last_step or 0) + 50, within=120)
        lost = busy(ray)[1]
        ray.power_off(lost)
        try:
            until(lambda: len(client.run(run).phases[0].attempts) == 3, what="the third attempt", within=120)
            second = client.run(run).phases[0].attempts[1]
            training(client, run, above=(second.last_step or 0) + 5, within=120)
            assert lost not in busy(ray)
            client.stop(run)
            view = server.wait(run)
        finally:
            ray.power_on(lost)
        third = view.phases[0].attempts[2]
        assert view.status == "completed", view.reason
        assert (second.status, second.resumed_from) == ("lost", first.last_step)
        assert third.resumed_from == newest_before(client, run, third.number)
        assert (third.resumed_from or 0) > (first.last_step or 0)
        ends = ended(server, run)
        assert sorted(ends) == ["0", "1", "2", "3"]
        assert len(set(ends.values())) == 1
    clean(ray)


def test_a_node_that_hangs_is_replaced_and_leaves_by_itself_when_it_goes_on(
    server: ServerProcess, ray: RayCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, checkpoint={"every": "20 steps"})
        training(client, run, above=50)
        host = busy(ray)[0]
        ray.hang(host)
        try:
            until(lambda: len(client.run(run).phases[0].attempts) == 2, what="the next attempt", within=120)
            first = client.run(run).phases[0].attempts[0]
            assert first.status == "lost", first
            training(client, run, above=first.last_step or 0)
        finally:
            ray.go_on(host)
        until(lambda: host not in busy(ray), what="the old one to leave")
        assert client.run(run).phases[0].attempts[1].host != host
        client.stop(run)
        assert server.wait(run).status == "completed"
        clean(ray)
        ray.power_off(host)
        ray.power_on(host)


def newest_before(client: Client, run: str, attempt: int) -> int:
    """The last step that was safe when that attempt was placed."""
    steps = [0]
    for event in client.events(run):
        if event.kind == "placed" and f"attempt {attempt} " in event.text:
            break
        if found := re.search(r"Checkpoint of step (\d+) is safe", event.text):
            steps.append(int(found[1]))
    return max(steps)


def test_a_node_that_is_drained_is_left_in_time_and_goes(
    server: ServerProcess, ray: RayCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path)
        training(client, run, above=20)
        host = busy(ray)[0]
        ray.drain(host, 300)
        until(lambda: client.run(run).phases[0].attempts[0].ended_at, what="it to leave")
        first = client.run(run).phases[0].attempts[0]
        assert first.reason == "preempted", first
        assert any(f"Ray drains node {host}" in event.text for event in client.events(run))
        training(client, run, above=first.last_step or 0)
        assert client.run(run).phases[0].attempts[1].resumed_from == first.last_step
        assert client.run(run).phases[0].attempts[1].host != host
        client.stop(run)
        assert server.wait(run).status == "completed"
        until(lambda: ray._find_raylet(host) is None, what="the node to go", within=60)
        until(lambda: slots(client, "there") == 4, what="a smaller pool")
        ray.power_off(host)
        ray.power_on(host)
        until(lambda: slots(client, "there") == 6, what="the pool as it was")


def slots(client: Client, pool: str) -> int:
    return next(each.slots for each in client.pools() if each.name == pool)


def test_a_run_goes_on_while_server_and_head_restart(server: ServerProcess, ray: RayCluster, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, **GANG)
        attempt = training(client, run).phases[0].attempts[0]
    server.kill()
    server.start()
    with server.client() as client:
        training(client, run, above=client.run(run).phases[0].progress.step + 50)
        assert reserved(ray) == [attempt.id]
        ray.kill_head()
        training(client, run, above=client.run(run).phases[0].progress.step + 50)
        ray.start_head()
        until(lambda: reserved(ray) == [attempt.id], what="its slots to be reserved again", within=90)
        training(client, run, above=client.run(run).phases[0].progress.step + 50)
        assert len(client.run(run).phases[0].attempts) == 1
        client.stop(run)
        assert server.wait(run).status == "completed"
        clean(ray)
        until(lambda: reserved(ray) == [], what="the slots to be given back")


def test_a_raylet_and_our_driver_die_and_the_run_goes_on(
    server: ServerProcess, ray: RayCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        run = submit(server, tmp_path)
        training(client, run)
        host = busy(ray)[0]
        ray.kill_raylet(host)
        ray.power_on(host)
        os.kill(driver_of(server), signal.SIGKILL)
        training(client, run, above=client.run(run).phases[0].progress.step + 50)
        until(lambda: len(reserved(ray)) == 1, what="its slots to be reserved again", within=60)
        assert len(client.run(run).phases[0].attempts) == 1
        client.kill(run)
        server.wait(run, "killed")
        clean(ray)


def driver_of(server: ServerProcess) -> int:
    """Ended with the server's end of its input; known by the directory of its records."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            continue
        if "whistlestop.engines.ray.driver" in words and any(word.startswith(str(server.data)) for word in words):
            return int(pid)
    raise AssertionError("there is no driver")


def test_what_ray_has_no_room_for_waits_and_says_for_what(
    server: ServerProcess, ray: RayCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        wide = submit(server, tmp_path, nodes=4, slots=2)
        pending = until(lambda: [each.text for each in client.events(wide) if each.kind == "pending"], what="a word")
        until(lambda: "4 nodes with 2 CPU each" in client.events(wide)[-1].text, what="what it waits for")
        assert pending
        client.kill(wide)
        server.wait(wide, "killed")


def test_a_host_that_was_excluded_gets_nothing(server: ServerProcess, ray: RayCluster, tmp_path: Path) -> None:
    with server.client() as client:
        first = submit(server, tmp_path)
        host = training(client, first).phases[0].attempts[0].host
        assert host is not None
        client.kill(first)
        server.wait(first, "killed")
        client.exclude_host("cpus", host)
        runs = [submit(server, tmp_path) for _ in range(4)]
        for run in runs:
            assert training(client, run, above=0).phases[0].attempts[0].host != host
        client.readmit_host("cpus", host)
        for run in runs:
            client.kill(run)
            server.wait(run, "killed")


def test_gpus_that_ray_gives_to_one_run_are_not_given_to_another(
    server: ServerProcess, ray: RayCluster, tmp_path: Path
) -> None:
    with server.client() as client:
        program = f"import os\nprint('gpus', os.environ['CUDA_VISIBLE_DEVICES'])\n{LOOP}"
        runs = [submit(server, tmp_path, program, pool="gpus") for _ in range(6)]
        for run in runs:
            training(client, run, above=0)
        seen = {run: (client.run(run).phases[0].attempts[0].host or "", gpus(server, run)) for run in runs}
        assert sorted(seen.values()) == [(host, device) for host in ray.hosts for device in "01"]

        # A new raylet knows nothing of the GPUs that are in use: it takes the one that is left to be on the first.
        host = ray.hosts[0]
        ended, stays = (next(run for run in runs if seen[run] == (host, device)) for device in "01")
        client.kill(ended)
        server.wait(ended, "killed")
        ray.kill_raylet(host)
        ray.power_on(host)
        held = client.run(stays).phases[0].attempts[0].id
        until(lambda: held in reserved(ray), what="its slots to be reserved again", within=60)
        runs = [run for run in runs if run != ended] + [submit(server, tmp_path, program, pool="gpus")]
        training(client, runs[-1], above=0)
        assert client.run(runs[-1]).phases[0].attempts[-1].host == host
        assert (gpus(server, stays), gpus(server, runs[-1])) == ("1", "0")
        assert [len(client.run(run).phases[0].attempts) for run in runs] == [1] * len(runs)
        for run in runs:
            client.kill(run)
        for run in runs:
            server.wait(run, "killed")


def gpus(server: ServerProcess, run: str) -> str:
    return until(lambda: [line for line in server.logs(run) if "gpus" in line], what="the line")[-1].split()[1]


def stopped(server: ServerProcess, ray: RayCluster, run: str) -> None:
    with server.client() as client:
        client.stop(run)
    assert server.wait(run).status == "completed"


def killed(server: ServerProcess, ray: RayCluster, run: str) -> None:
    with server.client() as client:
        client.kill(run)
    server.wait(run, "killed")


def paused(server: ServerProcess, ray: RayCluster, run: str) -> None:
    with server.client() as client:
        client.pause(run)
    server.wait(run, "waiting")
    killed(server, ray, run)


def bereft(server: ServerProcess, ray: RayCluster, run: str) -> None:
    lost = busy(ray)[0]
    ray.power_off(lost)
    with server.client() as client:
        until(lambda: len(client.run(run).phases[0].attempts) == 2, what="the next attempt", within=120)
        training(client, run, above=(client.run(run).phases[0].attempts[0].last_step or 0) + 5)
    stopped(server, ray, run)
    ray.power_on(lost)


def restarted(server: ServerProcess, ray: RayCluster, run: str) -> None:
    server.kill()
    server.start()
    with server.client() as client:
        training(client, run, above=client.run(run).phases[0].progress.step + 20)
    killed(server, ray, run)


@pytest.mark.long
def test_twenty_rounds_leave_nothing_behind(server: ServerProcess, ray: RayCluster, tmp_path: Path) -> None:
    for number in range(20):
        run = submit(server, tmp_path, **GANG, env={"STRAY": "1"}, checkpoint={"every": "20 steps"})
        with server.client() as client:
            training(client, run, above=30)
        end = (stopped, killed, paused, bereft, restarted)[number % 5]
        end(server, ray, run)
        clean(ray)
        until(lambda: reserved(ray) == [], what=f"the slots to be given back after {number} {end.__name__}")
        until(lambda: not list(server.data.glob("ray/*/*.json")), what="the records to be gone")
        driver = Path(f"/proc/{driver_of(server)}")
        assert len(list((driver / "fd").iterdir())) < 200
        assert len(list((driver / "task").iterdir())) < 200
