"""The Ray cluster that other tests stand on does to its nodes what it says, and Ray sees it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.testing.ray_cluster import HEAD, PORT, RayCluster
from whistlestop.testing.wait import until

# A driver says one thing, as JSON, and ends. `alive` are the hosts whose raylet Ray takes for alive.
DRIVER = """
import json, os, subprocess, sys, time
import ray
from ray._private.state import state
from ray.util import get_placement_group, placement_group, placement_group_table
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

def alive():
    return sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])

def until(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)

class Launcher:
    def launch(self, words):
        # Two forks: Ray kills the children of its workers with them, and leaves what is nobody's child.
        words = f"setsid {words} < /dev/null > /dev/null 2>&1 & echo $!"
        return int(subprocess.run(["sh", "-c", words], stdout=subprocess.PIPE).stdout)

def launcher(node):
    where = NodeAffinitySchedulingStrategy(node, soft=False)
    options = dict(name="launcher", lifetime="detached", num_cpus=0, get_if_exists=True)
    return ray.remote(Launcher).options(scheduling_strategy=where, **options).remote()

ray.init(address=sys.argv[1], namespace="test", log_to_driver=False, configure_logging=False)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    made = RayCluster(tmp_path_factory.mktemp("ray"))
    with made:
        yield made
        places = (Path("/run/netns") / made.namespace, made._group, made._temporary, made._shared)
        assert all(place.exists() for place in places)
    assert not any(place.exists() for place in places)


def told(cluster: RayCluster, says: str, *lines: str) -> Any:
    """What `says` is to a driver of its own that has run the lines."""
    program = "\n".join([DRIVER, *lines, f"print(json.dumps({says}))"])
    command = cluster.command(sys.executable, "-c", program, cluster.address)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_it_is_reached_from_inside_its_namespace_only(cluster: RayCluster) -> None:
    with cluster.entered(), socket.create_connection((HEAD, PORT), timeout=5):
        pass
    with pytest.raises(ConnectionRefusedError), socket.create_connection((HEAD, PORT), timeout=5):
        pass


def test_a_group_of_two_nodes_outlives_its_driver(cluster: RayCluster) -> None:
    assert told(cluster, "alive()") == [HEAD, *cluster.hosts]
    bundles = "[{'CPU': 2}, {'CPU': 2}]"
    held = f"group = placement_group({bundles}, strategy='STRICT_SPREAD', name='attempt', lifetime='detached')"
    assert told(cluster, "group.wait(30)", held)
    table = told(cluster, "placement_group_table(found)", "found = get_placement_group('attempt')")
    assert table["state"] == "CREATED"
    assert len(set(table["bundles_to_node_id"].values())) == 2
    told(cluster, "None", "ray.util.remove_placement_group(get_placement_group('attempt'))")


def launched(cluster: RayCluster, host: str, words: str) -> int:
    """The pid of a command on the host, whose actor has gone again."""
    launch = [f"actor = launcher({cluster.node_id(host)!r})", f"pid = ray.get(actor.launch.remote({words!r}))"]
    return int(told(cluster, "pid", *launch, "ray.kill(actor)"))


def test_a_node_without_power_has_no_process_left_and_comes_back_as_another(cluster: RayCluster) -> None:
    host = cluster.hosts[0]
    before = cluster.node_id(host)
    pid = launched(cluster, host, "sleep 600")
    cluster.kill_raylet(host)
    cluster.power_on(host)
    assert cluster.processes(host) == [pid]

    cluster.power_off(host)
    assert cluster.processes(host) == []
    left = [HEAD, *cluster.hosts[1:]]
    assert told(cluster, "alive()", f"until(lambda: alive() == {left!r})") == left

    cluster.power_on(host)
    assert cluster.node_id(host) != before
    assert told(cluster, "alive()") == [HEAD, *cluster.hosts]


def test_a_hung_node_stands_still_until_it_goes_on(cluster: RayCluster, tmp_path: Path) -> None:
    host, ticks = cluster.hosts[1], tmp_path / "ticks"
    pid = launched(cluster, host, f"sh -c 'while echo >> {ticks}; do sleep 0.02; done'")
    until(ticks.exists, what="the first tick")
    cluster.hang(host)
    seen = ticks.stat().st_size
    time.sleep(0.3)
    assert ticks.stat().st_size == seen
    cluster.go_on(host)
    until(lambda: ticks.stat().st_size > seen, what="the next tick")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not cluster.processes(host), what="the program to be gone")


def test_a_drained_node_is_told_with_its_deadline_and_goes_when_nothing_holds_it(cluster: RayCluster) -> None:
    host = cluster.hosts[2]
    node = cluster.node_id(host)
    held = f"group = placement_group([{{'node:{host}': 0.5}}], name='held', lifetime='detached')"
    assert told(cluster, "group.wait(30)", held)
    cluster.drain(host, 300)
    draining, now = told(cluster, "[state.get_draining_nodes(), time.time()]", "until(state.get_draining_nodes)")
    assert list(draining) == [node]
    assert 200 < draining[node] / 1000 - now <= 300

    let_go = "ray.util.remove_placement_group(get_placement_group('held'))"
    left = [HEAD, *cluster.hosts[:2]]
    assert told(cluster, "alive()", let_go, f"until(lambda: alive() == {left!r})") == left
    cluster.power_off(host)
    cluster.power_on(host)


def test_a_new_head_knows_nothing_and_has_all_its_nodes(cluster: RayCluster) -> None:
    held = "group = placement_group([{'CPU': 1}], name='forgotten', lifetime='detached')"
    assert told(cluster, "group.wait(30)", held)
    cluster.restart_head()
    assert told(cluster, "alive()", f"until(lambda: len(alive()) == {1 + len(cluster.hosts)})") == [
        HEAD,
        *cluster.hosts,
    ]
    assert told(cluster, "placement_group_table()") == {}
