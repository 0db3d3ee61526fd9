"""A real Ray cluster of several nodes on this machine: its nodes can be powered off, hung, drained, and lose the head.

Each cluster has a network namespace of its own, with nothing in it but loopback: several clusters may run at once, all
on the same addresses and ports, and nothing of them is reached from elsewhere. Each node has a cgroup of its own: what
its raylet has started, and whatever came of that, cannot leave it. A process of its own waits for the one that made the
cluster: when that one has gone, in order or by SIGKILL, nothing is left behind.
"""

import contextlib
import ctypes
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from whistlestop.engines import cgroups
from whistlestop.testing.missing import missing
from whistlestop.testing.wait import until

HEAD, PORT, DASHBOARD = "127.0.0.10", 26379, 28265
STORE = 80_000_000  # bytes of the object store of each node: Ray takes no less
# How Ray finds out that a node hangs, and a node that another head has taken the place of its own: within 10 s. Its own
# settings take more than a minute.
QUICK = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
    "raylet_liveness_self_check_interval_ms": 2000,
}
# All nodes share one machine: Ray would kill workers when others fill its memory, and keep spare ones on each.
ENVIRONMENT = {"RAY_memory_monitor_refresh_ms": "0", "RAY_prestart_worker_first_driver": "0"}
_NEWNET = 0x40000000
_ENTER_GROUP = 'echo $$ > "$1" && shift && exec "$@"'


class RayCluster:
    """`with RayCluster(directory) as cluster`: a head without slots, and `nodes` workers with `slots` each.

    The directory gets what `ray start` prints. `env` is added to what all of Ray's processes see, `options` to the
    words of `ray start` of every worker. Drivers run inside the namespace: see `command` and `entered`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        slots: int = 2,
        quick: bool = True,
        dashboard: bool = False,
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.address = f"{HEAD}:{PORT}"
        self.hosts = [f"127.0.0.{11 + number}" for number in range(nodes)]
        self.namespace = f"ray-{uuid.uuid4().hex[:8]}"
        self.dashboard = f"http://{HEAD}:{DASHBOARD}" if dashboard else ""  # Ray's own jobs are submitted there
        self._directory, self._slots, self._quick = directory, slots, quick
        self._env, self._options = dict(env or {}), tuple(options)
        self._group = self._temporary = self._shared = Path()
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._prepare()
        try:
            self._start_head()
            self._start_workers(self.hosts)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process of every node, and take away all that the cluster had made outside its directory."""
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.close()
            assert self._keeper.wait(60) == 0, f"something of {self.namespace} is left"
            self._keeper = None

    # --- being a driver -----------------------------------------------------------------------------------------

    def command(self, *argv: str) -> list[str]:
        """The same command, inside the cluster's network namespace."""
        return ["nsenter", f"--net={_path(self.namespace)}", *argv]

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread, and all that it starts, is inside the cluster's network namespace.

        Not for Ray itself where one process has to do with several clusters: the threads that gRPC keeps stay in the
        namespace in which they were started.
        """
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            with open(_path(self.namespace), "rb") as inside:
                _set_namespace(inside.fileno())
            try:
                yield
            finally:
                _set_namespace(before)
        finally:
            os.close(before)

    # --- what happens to nodes ----------------------------------------------------------------------------------

    def power_off(self, host: str) -> None:
        """Everything on the node is dead at once, in whatever session it is."""
        cgroups.kill(self._node(host))
        assert cgroups.wait_empty(self._node(host), time.monotonic() + 30), f"{host} goes on"

    def power_on(self, host: str) -> None:
        """A new raylet with the same address and resources, and a node id of its own. What lives on the node stays."""
        assert self._find_raylet(host) is None, f"{host} is on"
        self._start_workers([host])

    def kill_raylet(self, host: str) -> None:
        """Only the raylet dies by SIGKILL. Ray's workers follow it within seconds, and take their children with them;
        what is nobody's child lives on."""
        raylet = self._raylet(host)
        os.kill(raylet, signal.SIGKILL)
        until(lambda: raylet not in cgroups.members(self._node(host)), within=30, what=f"{host}'s raylet to be gone")

    def hang(self, host: str) -> None:
        """No process of the node gets any further, until `go_on`."""
        self._freeze(host, True)

    def go_on(self, host: str) -> None:
        self._freeze(host, False)

    def drain(self, host: str, seconds: int) -> None:
        """The cloud's notice: this node is taken away in so many seconds. Ray places nothing on it from now on.

        The raylet ends by itself as soon as neither an actor nor a placement group holds the node: if none does, at
        once. It does not when the time is up: that is what `power_off` is for.
        """
        words = ["drain-node", f"--address={self.address}", f"--node-id={self.node_id(host)}"]
        words += ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=the test wants it back"]
        self._ray("drain", self._group, [*words, f"--deadline-remaining-seconds={seconds}"])

    def kill_head(self) -> None:
        """Every process of the head dies by SIGKILL, and with it all that Ray knows: it has written it nowhere."""
        self.power_off(HEAD)

    def start_head(self) -> None:
        """A new head on the same address, which knows nothing. Raylets that have died of the change start again."""
        self._start_head()
        session = self._session()
        until(lambda: all(self._settled(host, session) for host in self.hosts), within=90, what="old raylets to go")
        self._start_workers([host for host in self.hosts if self._find_raylet(host) is None])

    def restart_head(self) -> None:
        self.kill_head()
        self.start_head()

    # --- looking ------------------------------------------------------------------------------------------------

    def node_id(self, host: str) -> str:
        """Of the raylet that runs there now."""
        return _option(self._raylet(host), "--node_id")

    def processes(self, host: str) -> list[int]:
        """The living members of the node's group that are not Ray's own: what its workers have started.

        Ray's own run a program or a script out of Ray's package, or are workers, which call themselves `ray::…`. A
        process that a worker has forked without running another program bears its name, and is not among these.
        """
        return [pid for pid in cgroups.members(self._node(host)) if _is_foreign(pid)]

    # --- inside -------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        lacking = [each for each in ("ip", "nsenter") if shutil.which(each) is None]
        if lacking or os.geteuid() != 0:
            missing(f"no Ray cluster: it takes root, `ip` and `nsenter`; without {', '.join(lacking) or 'root'}")
        if importlib.util.find_spec("ray") is None:
            missing("no Ray cluster: ray is not installed")
        group = cgroups.create(self.namespace)
        if group is None:
            missing("no Ray cluster: there are no cgroups of version 2 here, or none may be made")
        self._group = group
        # Short, because Ray's sockets live below it: a path of a socket has at most 107 characters.
        self._temporary = Path(tempfile.mkdtemp(prefix="ray-"))
        self._shared = Path(tempfile.mkdtemp(prefix="ray-", dir="/dev/shm"))
        self._directory.mkdir(parents=True, exist_ok=True)
        words = [self.namespace, str(self._group), str(self._temporary), str(self._shared)]
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "whistlestop.testing.ray_cluster", *words],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the test: the keeper goes last
        )
        subprocess.run(["ip", "netns", "add", self.namespace], check=True)
        subprocess.run(self.command("ip", "link", "set", "lo", "up"), check=True)
        for host in (HEAD, *self.hosts):
            self._node(host).mkdir()

    def _start_head(self) -> None:
        settings = json.dumps(QUICK if self._quick else {})
        words = ["--head", f"--port={PORT}", "--num-cpus=0"]
        # Where the raylets of an earlier head go on, Ray takes what this file says for a head that runs.
        (self._place(HEAD) / "ray_current_cluster").unlink(missing_ok=True)
        words += ["--no-monitor", f"--system-config={settings}", f"--include-dashboard={bool(self.dashboard)}".lower()]
        words += [f"--dashboard-host={HEAD}", f"--dashboard-port={DASHBOARD}"] if self.dashboard else []
        self._start(HEAD, words)

    def _start_workers(self, hosts: Sequence[str]) -> None:
        words = [f"--address={self.address}", f"--num-cpus={self._slots}", *self._options]
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            list(pool.map(lambda host: self._start(host, words), hosts))

    def _start(self, host: str, words: Sequence[str]) -> None:
        always = [f"--node-ip-address={host}", f"--object-store-memory={STORE}", f"--plasma-directory={self._shared}"]
        # Of its own: nodes that start at once in one directory take the same names for their sockets.
        always += [f"--temp-dir={self._place(host)}"]
        always += ["--min-worker-port=0", "--max-worker-port=0"]  # any that is free: the nodes share one namespace
        always += ["--include-log-monitor=false", "--disable-usage-stats"]
        try:
            self._ray(host, self._node(host), ["start", *words, *always])
        except AssertionError:  # Ray waits for 30 s, whatever else the machine has to do
            self._end_ray(host)
            self._ray(host, self._node(host), ["start", *words, *always])

    def _end_ray(self, host: str) -> None:
        """What a start has left that failed. What others have started on the node goes on."""
        for pid in set(cgroups.members(self._node(host))) - set(self.processes(host)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _ray(self, name: str, group: Path, words: Sequence[str]) -> None:
        program = str(Path(sys.executable).with_name("ray"))
        entering = ["sh", "-c", _ENTER_GROUP, "sh", str(group / "cgroup.procs")]
        output = self._directory / f"{name}.out"
        with output.open("ab") as file:
            code = subprocess.run(
                [*entering, *self.command(program, *words)],
                env={**_environment(), **ENVIRONMENT, **self._env},
                cwd=self._temporary,
                start_new_session=True,  # Ray's processes stay in it: Ctrl-C is for the test
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                timeout=120,
            ).returncode
        assert code == 0, f"ray {words[0]} for {name} ended with {code}: {output.read_text(errors='replace')[-3000:]}"

    def _node(self, host: str) -> Path:
        return self._group / host

    def _place(self, host: str) -> Path:
        return self._temporary / host.rpartition(".")[2]

    def _raylet(self, host: str) -> int:
        found = self._find_raylet(host)
        assert found is not None, f"no raylet runs on {host}"
        return found

    def _find_raylet(self, host: str) -> int | None:
        named = (pid for pid in cgroups.members(self._node(host)) if Path(_words(pid)[0]).name == "raylet")
        return next(named, None)

    def _session(self) -> str:
        return _option(self._raylet(HEAD), "--session-name")

    def _settled(self, host: str, session: str) -> bool:
        """The node's raylet has died, or belongs to the head that runs now."""
        raylet = self._find_raylet(host)
        return raylet is None or _option(raylet, "--session-name") == session

    def _freeze(self, host: str, frozen: bool) -> None:
        group = self._node(host)
        (group / "cgroup.freeze").write_text(str(int(frozen)))
        says = f"frozen {int(frozen)}"
        until(lambda: says in (group / "cgroup.events").read_text(), within=30, what=f"{host} to be {says}")


def _environment() -> dict[str, str]:
    """Nothing of the test's own: what Ray's processes see, the programs that they start see as well."""
    env = {key: os.environ[key] for key in ("HOME", "LANG") if key in os.environ}
    return {**env, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def _path(namespace: str) -> str:
    return f"/run/netns/{namespace}"


def _set_namespace(handle: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, _NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _words(pid: int) -> list[str]:
    """Its command line; one empty word if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [""]


def _option(pid: int, name: str) -> str:
    return next((word.partition("=")[2] for word in _words(pid) if word.startswith(f"{name}=")), "")


def _is_foreign(pid: int) -> bool:
    words = _words(pid)
    if not words[0] or words[0].startswith("ray::"):
        return False
    package = importlib.util.find_spec("ray")
    assert package is not None
    assert package.submodule_search_locations is not None
    places = tuple(f"{place}/" for place in package.submodule_search_locations)
    return not any(word.startswith(places) for word in words)


# --- the process that keeps it ------------------------------------------------------------------------------------


def keep(namespace: str, group: Path, *directories: Path) -> None:
    """Wait until nobody holds the other end of our input, then leave nothing of the cluster."""
    sys.stdin.buffer.read()
    cgroups.kill(group)
    assert cgroups.wait_empty(group, time.monotonic() + 30), f"something goes on in {group}"
    cgroups.remove(group)
    if os.path.exists(_path(namespace)):
        subprocess.run(["ip", "netns", "delete", namespace], check=True)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    keep(sys.argv[1], *(Path(word) for word in sys.argv[2:]))
