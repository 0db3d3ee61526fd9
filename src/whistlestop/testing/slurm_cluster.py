"""A real Slurm of several nodes on this one machine, for as long as a test needs it; not a place to learn Slurm from.

A node is a slurmd with a host name of its own, inside a cgroup v2 of its own: what jobs start there is in it as well,
since Slurm itself follows them by the v1 freezer, another hierarchy. So a node can lose its power or hang as a whole.
A process beside the test waits for the test's end, in order or by SIGKILL, and takes everything down.
"""

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self

from whistlestop.engines import cgroups
from whistlestop.testing.missing import missing
from whistlestop.testing.wait import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "unshare")
SYSTEM = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin{os.pathsep}/sbin"  # daemons live there
CONTROLLER, MUNGE = "controller", "munge"
OWN = ("slurmd", "slurmstepd")  # of a node's processes those that are not a job's

# Without the CommunicationParameters everything would listen on all interfaces. A requeued job waits for the end of
# its credential, two minutes by default.
SETTINGS = {
    "ClusterName": "test",
    "SlurmctldHost": f"{CONTROLLER}(127.0.0.1)",
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "CommunicationParameters": "NoInAddrAny,NoCtldInAddrAny",
    "AuthType": "auth/munge",
    "CredType": "cred/munge",
    "ProctrackType": "proctrack/cgroup",  # the others lose a grandchild that is forked twice
    "TaskPlugin": "task/none",
    "SwitchType": "switch/none",
    "MpiDefault": "none",
    "ReturnToService": "2",
    "SlurmdTimeout": "6",  # the controller is told of a lost node by nothing but silence
    "MessageTimeout": "5",  # it asks again only when a question has come to nothing; ten seconds by default
    "TCPTimeout": "1",
    "SlurmdParameters": "config_overrides",  # a node has the CPUs that we say it has
    "KillWait": "2",
    "SchedulerType": "sched/backfill",
    "SchedulerParameters": "sched_min_interval=0,sched_interval=1,bf_interval=1,batch_sched_delay=0",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "JobAcctGatherType": "jobacct_gather/none",
    "AccountingStorageType": "accounting_storage/none",
}
PARTITIONS = (
    "PartitionName=low Nodes=ALL Default=YES State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=4",
    "PartitionName=high Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF",
    "PartitionName=spot Nodes=ALL State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=6",
)
CGROUP_CONF = """
CgroupPlugin=cgroup/v1
CgroupAutomount=no
CgroupMountpoint={mount}
ConstrainCores=no
ConstrainRAMSpace=no
ConstrainDevices=no
"""

_ENTER = 'echo 0 >"$1/cgroup.procs"; shift; exec "$@"'
# Its own name; every node's name is known; and a corner of the freezer's hierarchy that is its own, since Slurm calls
# its groups by the node's name and the job's number, which another test's cluster has as well.
_AS_HOST = (
    'hostname "$1"; mount --bind "$2" /etc/hosts; mount --bind "$3" "$4"; mount --bind "$5" "$6"; shift 6; exec "$@"'
)


class SlurmCluster:
    """`with SlurmCluster(directory) as cluster`. The directory is the cluster's own, and goes with it; its path is
    short, because of the socket in it. `private` is a directory that is another one on every host, as a disk of its own
    is: `disk` says which. `settings` are lines of slurm.conf that a test wants otherwise."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        cpus: int = 2,
        accounting: bool = False,
        private: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.hosts = [f"n{number}" for number in range(1, nodes + 1)]
        self.env = {"SLURM_CONF": str(directory / "etc" / "slurm.conf")}
        self._cpus = cpus
        self._private = private
        self._settings = dict(settings or {})
        if accounting:  # as far as it goes without a database: `sacct -c`
            record = {"JobCompType": "jobcomp/filetxt", "JobCompLoc": str(directory / "log" / "completions")}
            self._settings = {**record, **self._settings}
        self._group = self._freezer = Path()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        freezer = _check()
        name = f"slurm-{os.getpid()}-{random.randrange(10**9)}"
        group = cgroups.create(name)
        if group is None:
            missing("no Slurm cluster: cgroups may not be made here")
        self._group, self._freezer = group, freezer / f"whistlestop-{name}"
        self._keeper = _keep(self._group, self._freezer, self.directory)
        try:
            self._write()
            self._start_munge()
            self.start_controller()
            for host in self.hosts:
                self._start_host(host, ["slurmd", "-D", "-N", host])
            until(lambda: all(self._serves(host) for host in self.hosts), within=60, what="every node to be idle")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, *argv: str, check: bool = True) -> str:
        """What a client's command prints."""
        env = {**os.environ, "PATH": SYSTEM, **self.env}
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    # --- what happens to nodes ------------------------------------------------------------------------------------

    def power_off(self, host: str) -> None:
        """All that runs there is gone at once, and nobody is told."""
        cgroups.kill(self._group / host)
        _thaw(self._freezer / host)  # Slurm freezes what it signals, and what is frozen does not die
        assert cgroups.wait_empty(self._group / host, time.monotonic() + 30), f"{host} did not lose all its processes"
        self._daemons.pop(host).wait(30)

    def power_on(self, host: str) -> None:
        """It has started anew, with what was on its disk; the controller, if it is there, gives it jobs again."""
        self.go_on(host)
        cgroups.remove(self._freezer / host)
        now = int(time.time())
        self._start_host(host, ["slurmd", "-D", "-N", host])
        if CONTROLLER in self._daemons:
            until(lambda: self._serves(host, now), within=60, what=f"{host} to be back")

    def hang(self, host: str) -> None:
        """Nothing there goes on; connections are accepted all the same, by the kernel."""
        self._freeze(host, "1")

    def go_on(self, host: str) -> None:
        self._freeze(host, "0")

    def drain(self, host: str, reason: str) -> None:
        """No new jobs; those that run go on. `scontrol update nodename=… state=resume` takes it back."""
        self.run("scontrol", "update", f"nodename={host}", "state=drain", f"reason={reason}")

    def processes(self, host: str) -> list[int]:
        """What lives there of jobs: batch scripts, srun, tasks and their descendants, wherever they have hidden."""
        return [pid for pid in cgroups.members(self._group / host) if _name(pid) not in (*OWN, "")]

    def disk(self, host: str) -> Path:
        """What `private` is on this host."""
        return self.directory / "disk" / host

    def state(self, host: str) -> str:
        """As the controller sees it: "idle", "mixed", "allocated", "down", …; with a "*": it does not answer."""
        return self.run("sinfo", "-h", "-N", "-p", "low", "-n", host, "-o", "%T").strip()

    # --- what happens to the controller -----------------------------------------------------------------------------

    def stop_controller(self) -> None:
        """SIGKILL: what a crash is. Jobs go on, those that it has written down (see `settle`)."""
        cgroups.kill(self._group / CONTROLLER)
        self._daemons.pop(CONTROLLER).wait(30)

    def start_controller(self) -> None:
        """On the state that the last one left, if there was one."""
        self._start_host(CONTROLLER, ["slurmctld", "-D"])
        until(lambda: "UP" in self._answer(CONTROLLER, "scontrol", "ping"), within=60, what="the controller to answer")

    def restart_controller(self) -> None:
        self.stop_controller()
        self.start_controller()

    def settle(self) -> None:
        """What the controller knows now outlives it from here on. It writes it down five seconds late, and nothing says
        when. A job that it has forgotten is killed on its node, and its number is given to another one."""
        time.sleep(6)

    def close(self) -> None:
        """Nothing is left. The keeper does the same when the test is killed."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.communicate()
            for daemon in self._daemons.values():
                daemon.wait(30)
            self._daemons.clear()
            assert not keeper.returncode, f"{self.directory}: not everything of the cluster is gone"

    # --- how it is made -----------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """One key a line. The ports are below those that the system hands out by itself."""
        for name in ("etc", "log", "run", "state", MUNGE, "cgroup/freezer", *(f"spool/{host}" for host in self.hosts)):
            (self.directory / name).mkdir(parents=True)
        top, (port, *ports) = self.directory, _free_ports(len(self.hosts) + 1)
        settings = {
            **SETTINGS,
            "SlurmctldPort": str(port),
            "AuthInfo": f"socket={self._socket},cred_expire=5",
            "StateSaveLocation": f"{top}/state",
            "SlurmdSpoolDir": f"{top}/spool/%n",
            "SlurmctldPidFile": f"{top}/run/{CONTROLLER}.pid",
            "SlurmdPidFile": f"{top}/run/%n.pid",
            **self._settings,
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        for host, number in zip(self.hosts, ports, strict=True):
            feature = "a" if host == "n1" else "b"
            node = f"NodeName={host} NodeAddr=127.0.0.1 Port={number} CPUs={self._cpus} RealMemory=4000"
            lines.append(f"{node} Feature={feature} State=UNKNOWN")
        (top / "etc" / "slurm.conf").write_text("\n".join([*lines, *PARTITIONS, ""]))
        (top / "etc" / "cgroup.conf").write_text(CGROUP_CONF.format(mount=top / "cgroup"))
        (top / "etc" / "hosts").write_text(f"127.0.0.1 localhost {CONTROLLER} {' '.join(self.hosts)}\n")

    @property
    def _socket(self) -> Path:
        return self.directory / MUNGE / "socket"

    def _start_munge(self) -> None:
        top = self.directory / MUNGE
        (top / "key").write_bytes(os.urandom(128))
        (top / "key").chmod(0o400)
        words = [f"--{name}-file={top / name}" for name in ("key", "pid", "log", "seed")]
        # By force: a directory that only its owner may enter is no place for a socket, it thinks.
        self._start(MUNGE, ["munged", "--foreground", "--force", f"--socket={self._socket}", *words])
        until(lambda: self._lives(MUNGE) and self._socket.exists(), within=30, what="munge to be up")

    def _start_host(self, name: str, words: Sequence[str]) -> None:
        freezer = self._freezer / name
        freezer.mkdir(parents=True, exist_ok=True)
        disk, private = self.disk(name), self._private or self.disk(name)
        for each in (disk, private):
            each.mkdir(parents=True, exist_ok=True)
        places = [str(self.directory / "etc" / "hosts"), str(freezer), str(self.directory / "cgroup" / "freezer")]
        places += [str(disk), str(private)]
        self._start(name, ["unshare", "--mount", "--uts", "sh", "-ec", _AS_HOST, "sh", name, *places, *words])

    def _start(self, name: str, words: Sequence[str]) -> None:
        assert name not in self._daemons, f"{name} runs"
        group = self._group / name
        group.mkdir(exist_ok=True)
        with (self.directory / "log" / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                ["sh", "-ec", _ENTER, "sh", str(group), *words],
                env={**_without_slurm(os.environ), "PATH": SYSTEM, **self.env},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _serves(self, host: str, since: int = 0) -> bool:
        """The controller gives it jobs, and knows the slurmd that was started then or later, not the one before."""
        if not self._lives(host):
            return False
        shown = self._shown(host)
        started = re.search(r"SlurmdStartTime=(\d\S+)", shown)
        serving = re.search(r"State=(IDLE|MIXED|ALLOCATED)(\+DRAIN)? ", shown)
        return bool(serving and started and datetime.fromisoformat(started[1]).timestamp() >= since)

    def _shown(self, host: str) -> str:
        return self.run("scontrol", "--oneliner", "show", "node", host, check=False)

    def _answer(self, name: str, *argv: str) -> str:
        return self.run(*argv, check=False).strip() if self._lives(name) else ""

    def _lives(self, name: str) -> bool:
        if self._daemons[name].poll() is not None:
            log = (self.directory / "log" / f"{name}.log").read_text(errors="replace")
            raise AssertionError(f"{name} ended: {log[-3000:]}")
        return True

    def _freeze(self, host: str, word: str) -> None:
        (self._group / host / "cgroup.freeze").write_text(word)
        events = self._group / host / "cgroup.events"
        until(lambda: f"frozen {word}" in events.read_text(), within=30, what=f"{host} to be frozen: {word}")


def _check() -> Path:
    """Where the v1 freezer is, once everything that is needed is known to be here."""
    for program in PROGRAMS:
        if shutil.which(program, path=SYSTEM) is None:
            missing(f"no Slurm cluster: {program} is not installed")
    if os.geteuid():
        missing("no Slurm cluster: it takes root")
    found = _freezer()
    return found if found is not None else missing("no Slurm cluster: the freezer of cgroup v1 is not mounted")


def _freezer() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup ") and "freezer" in right.split()[-1].split(","):
            return Path(left.split()[4])
    return None


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(11_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found


def _without_slurm(env: Mapping[str, str]) -> dict[str, str]:
    """The tests themselves may run in a job."""
    return {key: value for key, value in env.items() if not key.startswith(("SLURM", "SBATCH", "SRUN"))}


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""  # gone meanwhile


# --- the process that takes it down --------------------------------------------------------------------------------


def _keep(*places: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "whistlestop.testing.slurm_cluster", *map(str, places)],
        stdin=subprocess.PIPE,  # its end is ours
        start_new_session=True,  # Ctrl-C is for the test
    )


def take_down(group: Path, freezer: Path, directory: Path) -> bool:
    """True if nothing is left."""
    cgroups.kill(group)
    _thaw(freezer)
    gone = cgroups.wait_empty(group, time.monotonic() + 30)
    for each in (group, freezer):
        cgroups.remove(each)
    shutil.rmtree(directory, ignore_errors=True)
    return gone and not any(each.exists() for each in (group, freezer, directory))


def _thaw(freezer: Path) -> None:
    for directory, _, _ in os.walk(freezer):
        with contextlib.suppress(OSError):
            (Path(directory) / "freezer.state").write_text("THAWED")


if __name__ == "__main__":
    sys.stdin.buffer.read()
    sys.exit(not take_down(*map(Path, sys.argv[1:])))
