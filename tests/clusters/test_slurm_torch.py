"""Real torch.distributed trainings over nodes of a real Slurm."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.testing.cluster_drill import Drill
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.slurm_cluster import SlurmCluster
from whistlestop.wire.api import AttemptView

KINDS = ("stop", "pause", "kill", "notice", "node", "server", "controller")


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    root = tmp_path_factory.mktemp("slurm")
    with (
        SlurmCluster(Path(f"/tmp/wd-{os.getpid()}")) as slurm,
        ServerProcess(root / "server", slots=1, same_port=True) as server,
    ):
        with server.client() as client:
            client.apply_pools(f"""
pools:
- {{name: local, slots: 0}}
- name: batch
  slots: 6
  slurm: {{partition: low, lease: 15, shared: true, directory: {root}/nodes, python: {sys.executable},
           conf: {slurm.env["SLURM_CONF"]}}}
""")

        def notice(attempt: AttemptView) -> None:
            """As Slurm says it to a job that has to go."""
            slurm.run("scancel", "--signal=TERM", f"--name=whistle-{attempt.id}")

        yield Drill(server, slurm, "batch", notice)


def test_one_training_over_two_nodes_comes_through_everything_and_stops_at_one_step(drill: Drill) -> None:
    drill.round("server", "notice", "node", "controller", "pause", "stop")


def test_a_kill_leaves_no_process_on_any_node(drill: Drill) -> None:
    drill.round("kill")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_twenty_rounds_leave_nothing_behind(drill: Drill) -> None:
    print(drill.run([KINDS[number % len(KINDS)] for number in range(20)]))
