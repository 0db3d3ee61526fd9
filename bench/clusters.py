"""Runs on real clusters on this machine, beside what the cluster's own commands do.

    python bench/clusters.py [--quick] [--rounds 20] [--out FILE]

A Slurm and a Ray of three nodes each, one after the other, with a server beside them. Measured: submit → the program's
first line; stop → its loop has seen it; kill → no process of it is on any node; and 500 tiny runs that are submitted at
once, until the last has ended. Beside each, in the same minute: the same program without the SDK handed to sbatch and
ended by scancel, or to `ray job submit` and `ray job stop`; and 500 jobs of sbatch, or 500 of Ray's own tasks.
All nodes are on these two cores: 500 runs at once take turns on the slots of the pool, as they would anywhere.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from measuring import Result, alone, numbers_in, scratch

from whistlestop.client import Client
from whistlestop.testing.ray_cluster import RayCluster
from whistlestop.testing.server import ServerProcess, environment
from whistlestop.testing.slurm_cluster import SlurmCluster
from whistlestop.wire.spec_file import spec_to_text

SLOTS = 8  # of each node
TINY = 500
PROGRAM = """
import os, sys, time
began = time.monotonic()
mark = sys.argv[1]

def write(name, number):
    with open(f"{mark}.{name}.part", "w") as file:
        print(repr(number), file=file)
    os.rename(f"{mark}.{name}.part", f"{mark}.{name}")

write("started", began)
import whistlestop
with whistlestop.run("bench") as run:
    for step in run.steps():
        if step == 5:
            write("trains", time.monotonic())
        time.sleep(0.002)
    write("seen", time.monotonic())
"""
BARE = """
import os, signal, sys, time
began = time.monotonic()
mark, stopping = sys.argv[1], False

def write(name, number):
    with open(f"{mark}.{name}.part", "w") as file:
        print(repr(number), file=file)
    os.rename(f"{mark}.{name}.part", f"{mark}.{name}")

def stop(*_):
    global stopping
    stopping = True

signal.signal(signal.SIGTERM, stop)
write("started", began)
write("trains", time.monotonic())
while not stopping:
    time.sleep(0.002)
write("seen", time.monotonic())
"""


class Cluster(Protocol):
    """What is measured, and what it is measured beside."""

    name: str
    peer: str

    def processes(self) -> list[int]: ...

    def pool(self, directory: Path) -> str:
        """The file of pools that puts runs there."""

    def submit(self, command: list[str]) -> str:
        """By the cluster's own command; the job's name."""

    def stop(self, job: str) -> None:
        """As gracefully as it can."""

    def kill(self, job: str) -> None: ...

    def many(self, count: int) -> None:
        """So many tiny jobs of its own, at once, until the last has ended."""


class OnSlurm:
    name, peer = "Slurm", "sbatch and scancel"

    def __init__(self, cluster: SlurmCluster) -> None:
        self._cluster = cluster

    def processes(self) -> list[int]:
        return [pid for host in self._cluster.hosts for pid in self._cluster.processes(host)]

    def pool(self, directory: Path) -> str:
        return f"""
pools:
- {{name: local, slots: 0}}
- name: cluster
  slots: {3 * SLOTS}
  slurm: {{partition: low, python: {sys.executable}, directory: {directory}/nodes,
           conf: {self._cluster.env["SLURM_CONF"]}, shared: true}}
"""

    def submit(self, command: list[str]) -> str:
        words = ["sbatch", "--parsable", "-N1", "--output=/dev/null", "--wrap", f"exec srun {' '.join(command)}"]
        return self._cluster.run(*words).strip()

    def stop(self, job: str) -> None:
        self._cluster.run("scancel", "--signal=TERM", f"{job}.0")

    def kill(self, job: str) -> None:
        self._cluster.run("scancel", job)

    def many(self, count: int) -> None:
        def one(_: int) -> str:
            return self._cluster.run("sbatch", "--parsable", "-n1", "--output=/dev/null", "--wrap", "true")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, range(count)))
        wait(lambda: not self._cluster.run("squeue", "-h", "-t", "pending,running").strip(), "its jobs", within=600)


class OnRay:
    name, peer = "Ray", "ray job submit and stop"

    def __init__(self, cluster: RayCluster) -> None:
        from ray.job_submission import JobSubmissionClient

        self._cluster = cluster
        self._client = JobSubmissionClient(cluster.dashboard)

    def processes(self) -> list[int]:
        return [pid for host in self._cluster.hosts for pid in self._cluster.processes(host)]

    def pool(self, directory: Path) -> str:
        return f"""
pools:
- {{name: local, slots: 0}}
- name: cluster
  slots: {3 * SLOTS}
  ray: {{address: "{self._cluster.address}", resource: CPU, python: {sys.executable}, directory: {directory}/nodes,
         shared: true}}
"""

    def submit(self, command: list[str]) -> str:
        return str(self._client.submit_job(entrypoint=" ".join(command), entrypoint_num_cpus=1))

    def stop(self, job: str) -> None:
        self._client.stop_job(job)

    def kill(self, job: str) -> None:
        self._client.stop_job(job)

    def many(self, count: int) -> None:
        code = (
            "import ray, subprocess; ray.init(log_to_driver=False)\n"
            "one = ray.remote(num_cpus=1)(lambda: subprocess.run(['true']))\n"
            f"ray.get([one.remote() for _ in range({count})])\n"
        )
        job = self._client.submit_job(entrypoint=f'{sys.executable} -c "{code}"')
        wait(lambda: self._client.get_job_status(job).is_terminal(), "its tasks", within=600)


def measure(rounds: int) -> Result:
    result = Result()
    with scratch() as directory:
        (directory / "slurm").mkdir()
        with SlurmCluster(Path(f"/tmp/wb-{os.getpid()}"), cpus=SLOTS) as slurm:
            compare(result, OnSlurm(slurm), directory / "slurm", rounds)
    with scratch() as directory:
        (directory / "ray").mkdir()
        with RayCluster(directory / "cluster", slots=SLOTS, dashboard=True) as ray, ray.entered():
            compare(result, OnRay(ray), directory / "ray", rounds)
    return result


def compare(result: Result, cluster: Cluster, directory: Path, rounds: int) -> None:
    (directory / "program.py").write_text(PROGRAM)
    (directory / "bare.py").write_text(BARE)
    times: dict[str, list[float]] = {}

    def took(name: str, seconds: float) -> None:
        times.setdefault(name, []).append(seconds)

    with serving(directory / "server") as server, server.client() as client:
        client.apply_pools(cluster.pool(directory))
        for number in range(rounds + 1):  # the first one brings the code there, and is not counted
            counted: Callable[[str, float], None] = took if number else lambda *_: None
            ours(client, cluster, directory, f"ours-{number}", counted)
            bare(cluster, directory, f"bare-{number}", counted)
        tiny = {"name": "tiny", "kind": "task", "command": ["true"]}
        spec = spec_to_text({"name": "tiny", "project": "tiny", "phases": [tiny]})
        count = TINY if rounds > 5 else 20
        began = time.monotonic()
        for _ in range(count):
            client.submit(spec, in_place=str(directory), env=environment())
        wait(lambda: client.runs(project="tiny", status=["completed"], limit=1).total == count, "the runs", within=1200)
        took(f"{count} tiny runs", time.monotonic() - began)
        began = time.monotonic()
        cluster.many(count)
        took(f"{count} tiny of its own", time.monotonic() - began)
    for name in ("submit → first line", "stop → the loop has seen it", "kill → no process on any node"):
        ours_, theirs = times[f"ours: {name}"], times[f"bare: {name}"]
        result.add_times(f"{cluster.name}: {name}", ours_)
        result.add_times(f"{cluster.name}: {cluster.peer}: {name}", theirs)
        result.add_ratio(f"{cluster.name}: {name}", ours_, theirs)
    result.add(f"{cluster.name}: {count} tiny runs at once", times[f"{count} tiny runs"][0], "s")
    result.add(f"{cluster.name}: {count} tiny jobs of its own at once", times[f"{count} tiny of its own"][0], "s")


def ours(client: Client, cluster: Cluster, directory: Path, mark: str, took: Callable[[str, float], None]) -> None:
    for name, end in (("stop → the loop has seen it", client.stop), ("kill → no process on any node", client.kill)):
        place = directory / f"{mark}-{end.__name__}"
        phase: dict[str, Any] = {"name": "train", "command": [sys.executable, "program.py", str(place)]}
        spec = spec_to_text({"name": mark, "phases": [phase]})
        asked = time.monotonic()
        run = client.submit(spec, in_place=str(directory), env=environment())
        took("ours: submit → first line", numbers_in(place.with_name(f"{place.name}.started"))[0] - asked)
        numbers_in(place.with_name(f"{place.name}.trains"))
        asked = time.monotonic()
        end(run.id)
        if end == client.stop:
            took(f"ours: {name}", numbers_in(place.with_name(f"{place.name}.seen"))[0] - asked)
        wait(lambda: not cluster.processes(), "its nodes to be clean")
        if end == client.kill:
            took(f"ours: {name}", time.monotonic() - asked)
        wait(lambda run=run: client.run(run.id).ended_at, "its end")  # type: ignore[misc]


def bare(cluster: Cluster, directory: Path, mark: str, took: Callable[[str, float], None]) -> None:
    for name, end in (("stop → the loop has seen it", cluster.stop), ("kill → no process on any node", cluster.kill)):
        place = directory / f"{mark}-{end.__name__}"
        asked = time.monotonic()
        job = cluster.submit([sys.executable, str(directory / "bare.py"), str(place)])
        took("bare: submit → first line", numbers_in(place.with_name(f"{place.name}.started"))[0] - asked)
        asked = time.monotonic()
        end(job)
        if end == cluster.stop:
            took(f"bare: {name}", numbers_in(place.with_name(f"{place.name}.seen"))[0] - asked)
        wait(lambda: not cluster.processes(), "its nodes to be clean")
        if end == cluster.kill:
            took(f"bare: {name}", time.monotonic() - asked)


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(directory, slots=1)
    try:
        with server:
            yield server
    except BaseException:
        with contextlib.suppress(OSError):
            sys.stderr.write(server.output()[-3000:])
        raise


def wait(condition: Callable[[], Any], what: str, *, within: float = 120) -> None:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within:g} s")
        time.sleep(0.003)


if __name__ == "__main__":
    alone(measure, full=20, quick=2, doc=__doc__)
