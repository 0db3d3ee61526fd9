"""The Slurm that other tests stand on is a real one: jobs over nodes, lost nodes, a controller that crashes."""

import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.engines import cgroups
from whistlestop.testing.slurm_cluster import SlurmCluster
from whistlestop.testing.wait import until

# One task on each node of the job, which leaves its orphan in a session of its own and then does what the test says.
TASK = "setsid sleep 1000 & echo $(hostname) $SLURM_NODEID >>{file}; {then}"


@pytest.fixture(scope="module")
def shared() -> Iterator[SlurmCluster]:
    with _directory() as directory, SlurmCluster(Path(directory) / "slurm", accounting=True) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: SlurmCluster) -> Iterator[SlurmCluster]:
    """With nothing on it, before and after."""
    yield shared
    shared.run("scancel", "--user", "root")
    until(lambda: not shared.run("squeue", "-h"), within=60, what="every job to be gone")
    assert not [pid for host in shared.hosts for pid in shared.processes(host)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "said"


def test_every_node_is_idle_and_has_its_feature(cluster: SlurmCluster) -> None:
    assert cluster.hosts == ["n1", "n2", "n3"]
    said = cluster.run("sinfo", "-h", "-N", "-p", "low", "-o", "%N %T %f").split("\n")
    assert said[:3] == ["n1 idle a", "n2 idle b", "n3 idle b"]
    assert set(cluster.run("sinfo", "-h", "-o", "%R").split()) == {"low", "high", "spot"}


def test_a_job_runs_on_two_nodes_and_leaves_no_process(cluster: SlurmCluster, file: Path) -> None:
    job = submit(cluster, file, "sleep 0.5", "--nodes=2", "--constraint=b")
    ended(cluster, job, "COMPLETED")
    assert sorted(file.read_text().splitlines()) == ["n2 0", "n3 1"]
    until(lambda: not cluster.processes("n2") + cluster.processes("n3"), within=30, what="the orphans to be gone")
    assert f"JobId={job} " in (cluster.directory / "log" / "completions").read_text()


def test_a_node_without_power_has_no_process_and_is_known_to_be_down(cluster: SlurmCluster, file: Path) -> None:
    job = submit(cluster, file, "sleep 1000", "--nodelist=n1,n2")
    until(lambda: len(lines(file)) == 2, within=60, what="both tasks")
    assert {name(pid) for pid in cluster.processes("n2")} >= {"sleep"}
    cluster.power_off("n2")
    assert not cluster.processes("n2")
    assert cluster.processes("n1")
    until(lambda: cluster.state("n2") == "down*", within=60, what="the loss to be known")
    ended(cluster, job, "NODE_FAIL")
    until(lambda: not cluster.processes("n1"), within=60, what="the other node to be clean")

    cluster.power_on("n2")
    assert cluster.state("n2") == "idle"
    file.unlink()
    ended(cluster, submit(cluster, file, "true", "--nodelist=n2"), "COMPLETED")
    assert lines(file) == ["n2 0"]


def test_what_runs_on_a_node_that_hangs_stands_still(cluster: SlurmCluster, file: Path) -> None:
    submit(cluster, file, "while sleep 0.05; do echo on >>{file}; done", "--nodelist=n3")
    until(lambda: len(lines(file)) > 1, within=60, what="the task")
    cluster.hang("n3")
    before = lines(file)
    with pytest.raises(AssertionError, match="not within"):
        until(lambda: lines(file) != before, within=0.5)
    cluster.go_on("n3")
    until(lambda: lines(file) != before, within=30, what="the task to go on")


def test_a_job_goes_on_and_ends_while_the_controller_is_away(cluster: SlurmCluster, file: Path) -> None:
    then = "while [ ! -e {file}.end ]; do sleep 0.1; done; echo end >>{file}"
    job = submit(cluster, file, then, "--nodes=2")
    until(lambda: len(lines(file)) == 2, within=60, what="both tasks")
    cluster.settle()
    cluster.stop_controller()
    assert "DOWN" in cluster.run("scontrol", "ping", check=False)
    file.with_name(f"{file.name}.end").touch()
    until(lambda: lines(file)[2:] == ["end", "end"], within=30, what="the tasks to end")
    cluster.start_controller()
    ended(cluster, job, "COMPLETED")


def test_a_running_job_is_still_known_to_a_new_controller(cluster: SlurmCluster, file: Path) -> None:
    job = submit(cluster, file, "sleep 1000")
    until(lambda: len(lines(file)) == 1, within=60, what="the task")
    cluster.settle()
    running = cluster.processes("n1")
    cluster.restart_controller()
    assert state(cluster, job) == "RUNNING"
    assert cluster.processes("n1") == running


def test_a_job_of_low_priority_is_told_before_it_has_to_go(cluster: SlurmCluster, file: Path) -> None:
    said = "trap 'echo TERM >>{file}; exit 0' TERM; while :; do sleep 0.1; done"
    job = submit(cluster, file, said, "--exclusive", "--nodelist=n1")
    until(lambda: len(lines(file)) == 1, within=60, what="the task")
    other = submit(cluster, file, "true", "--partition=high", "--nodelist=n1")
    until(lambda: "TERM" in lines(file), within=60, what="the notice")
    ended(cluster, job, "COMPLETED")  # it went by itself: that it was preempted is told by the time alone
    assert cluster.run("squeue", "-h", "-t", "all", "-j", job, "-O", "PreemptTime:|") != "N/A|\n"
    ended(cluster, other, "COMPLETED")


def test_a_job_that_ignores_the_notice_is_killed_some_time_after_its_grace(cluster: SlurmCluster, file: Path) -> None:
    """Between GraceTime and half a minute later: the controller looks every thirty seconds."""
    job = submit(cluster, file, "trap '' TERM; sleep 1000", "--exclusive", "--nodelist=n1")
    until(lambda: len(lines(file)) == 1, within=60, what="the task")
    submit(cluster, file, "true", "--partition=high", "--nodelist=n1")
    ended(cluster, job, "PREEMPTED")


def test_a_drained_node_takes_no_more_jobs(cluster: SlurmCluster, file: Path) -> None:
    cluster.drain("n1", "broken")
    job = submit(cluster, file, "true", "--constraint=a")
    reason = ("squeue", "-h", "-j", job, "-o", "%r")
    until(lambda: "UnavailableNodes:n1" in cluster.run(*reason), within=30, what="the reason")
    cluster.run("scontrol", "update", "nodename=n1", "state=resume")
    ended(cluster, job, "COMPLETED")


def test_two_clusters_have_jobs_of_the_same_number_on_nodes_of_the_same_name(shared: SlurmCluster, file: Path) -> None:
    with _directory() as directory:
        path = Path(directory) / "slurm"
        with SlurmCluster(path, nodes=1) as other:
            job = submit(other, file, "sleep 1000")
            until(lambda: len(lines(file)) == 1, within=60, what="the task")
            assert job == "1"
            assert other.processes("n1")
            assert not shared.processes("n1")
            assert "completions" not in Path(other.env["SLURM_CONF"]).read_text()
        assert not path.exists()


def test_nothing_is_left_of_a_cluster_whose_test_was_killed(file: Path) -> None:
    with _directory() as directory:
        path = Path(directory) / "slurm"
        program = f"""
import time
from pathlib import Path
from whistlestop.testing.slurm_cluster import SlurmCluster
with SlurmCluster(Path({str(path)!r}), nodes=1) as cluster:
    cluster.run("sbatch", "--output=none", "--wrap", "setsid sleep 1000 & sleep 1000")
    while len(cluster.processes("n1")) < 3:
        time.sleep(0.1)
    print(cluster._group, cluster._freezer, flush=True)
    time.sleep(1000)
"""
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as test:
            assert test.stdout is not None
            group, freezer = map(Path, test.stdout.readline().split())
            assert cgroups.members(group)
            test.send_signal(signal.SIGKILL)
        until(lambda: not any(each.exists() for each in (path, group, freezer)), within=60, what="all to be gone")


def submit(cluster: SlurmCluster, file: Path, then: str, *options: str) -> str:
    """The job's number. Its batch script is srun, as ours is."""
    task = file.with_name(f"{uuid.uuid4().hex}.sh")
    task.write_text(TASK.format(file=file, then=then.format(file=file)))
    words = f"exec srun --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 --output=none sh {task}"
    given = ("--parsable", "--no-requeue", "--output=none", *options)
    return cluster.run("sbatch", *given, "--wrap", words).strip()


def ended(cluster: SlurmCluster, job: str, how: str) -> None:
    over = {"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "PREEMPTED", "TIMEOUT"}
    found = until(lambda: {state(cluster, job)} & over, within=80, what=f"job {job} to be over")
    assert found == {how}


def state(cluster: SlurmCluster, job: str) -> str:
    return cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _directory() -> "tempfile.TemporaryDirectory[str]":
    """A short path, for the socket in it."""
    return tempfile.TemporaryDirectory(prefix="whistle-")
