"""One run, three engines: what one cluster takes away goes on in the next, and at last on this machine."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.client import Client
from whistlestop.testing.ray_cluster import RayCluster
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.slurm_cluster import SlurmCluster
from whistlestop.testing.wait import until

STEPS = 1_000
PROGRAM = f"""
import os, time, whistlestop
with whistlestop.run() as run:
    state = {{"sum": 0, "steps": 0}}
    run.track(state=state)
    for step in run.steps(total={STEPS}):
        state["sum"] += int(step)
        state["steps"] += 1
        time.sleep(0.01)
print(f"sum {{state['sum']}} in {{state['steps']}} steps", flush=True)
"""
PRICES = {"batch": 0.1, "cloud": 0.2, "local": 1.0}  # the cheapest first


@pytest.fixture
def ray(tmp_path: Path) -> Iterator[RayCluster]:
    """All is inside its network namespace: the nodes of both clusters and the server reach each other there."""
    with RayCluster(tmp_path / "ray", nodes=1) as started, started.entered():
        # Slurm asks for names of hosts with addresses as this one has them; 127.0.0.1 alone counts as none.
        subprocess.run(["ip", "address", "add", "127.0.0.2/32", "dev", "lo"], check=True)
        yield started


@pytest.fixture
def slurm(ray: RayCluster) -> Iterator[SlurmCluster]:
    with SlurmCluster(Path(f"/tmp/ws-{os.getpid()}-failover"), nodes=1) as started:
        yield started


@pytest.fixture
def server(ray: RayCluster, slurm: SlurmCluster, tmp_path: Path) -> Iterator[ServerProcess]:
    on_nodes = f"python: {sys.executable}, shared: true, lease: 5"
    with ServerProcess(tmp_path / "server", slots=1) as started:
        with started.client() as client:
            client.apply_pools(f"""
pools:
- {{name: local, slots: 1, price: {PRICES["local"]}}}
- name: batch
  slots: 2
  market: spot
  price: {PRICES["batch"]}
  slurm: {{partition: low, conf: {slurm.env["SLURM_CONF"]}, directory: {tmp_path}/batch, {on_nodes}}}
- name: cloud
  slots: 2
  market: spot
  price: {PRICES["cloud"]}
  ray: {{address: "{ray.address}", resource: CPU, directory: {tmp_path}/cloud, {on_nodes}}}
""")
        yield started


def test_a_run_goes_from_slurm_to_ray_to_this_machine_and_finishes(
    server: ServerProcess, slurm: SlurmCluster, ray: RayCluster, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    phase = {"name": "train", "command": [sys.executable, "train.py"], "checkpoint": {"every": "20 steps"}}
    with server.client() as client:
        run = server.submit(phase, directory=tmp_path).id
        saved(client, run, on="batch")
        client.set_pool("batch", slots=0)  # it does not come back
        slurm.power_off("n1")
        saved(client, run, on="cloud")
        client.set_pool("cloud", slots=0)
        ray.power_off(ray.hosts[0])
        view = server.wait(run, within=240)
        assert view.status == "completed", view.reason
        attempts = view.phases[0].attempts
        assert [attempt.pool for attempt in attempts] == ["batch", "cloud", "local"]
        assert [attempt.status for attempt in attempts] == ["lost", "lost", "completed"]
        for before, after in itertools.pairwise(attempts):
            assert 0 < (after.resumed_from or 0) <= (before.last_step or 0), "it begins anew nowhere"
        assert f"sum {sum(range(STEPS))} in {STEPS} steps" in server.logs(run)


def saved(client: Client, run: str, *, on: str) -> None:
    """It trains there, and has saved there."""

    def safe() -> bool:
        attempt = client.run(run).phases[0].attempts
        if not attempt or attempt[-1].pool != on:
            return False
        return any(found.attempt == attempt[-1].number for found in client.checkpoints(run))

    until(safe, within=240, what=f"a checkpoint made on {on}: {client.run(run).reason}")
