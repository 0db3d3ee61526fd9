"""Runners on this host: detached processes that outlive the server. A lock that only the living hold tells of them."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from whistlestop.domain.errors import EngineUnreachable
from whistlestop.engines import processes
from whistlestop.engines.attempt_files import (
    BEGAN,
    DONE,
    LAUNCH,
    LOCK,
    RUNNER_LOG,
    memory_of,
    read_began,
    read_program,
    seat_of,
    write,
)
from whistlestop.engines.base import Can, JobId, JobState, JobStatus
from whistlestop.engines.containment import FORCE, Tree
from whistlestop.engines.processes import Handle
from whistlestop.wire.launch import Launch

_LOCK_FD = 3  # in the runner
_LOG_LIMIT = 1 << 20
_PIPE = 1 << 20
_KEPT = ("WHISTLE_ATTEMPT", "WHISTLE_PREEMPT_GRACE")  # of our own variables; the others may hold secrets
_CATCHABLE = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_PATIENCE, _TRIES = 0.005, 10


class LocalEngine:
    """`attempts_root` holds one directory per attempt. `walk`: do without cgroups."""

    can = Can(prove_end=True, salvage=True)

    def __init__(self, attempts_root: Path, *, walk: bool | None = None) -> None:
        self._root = attempts_root
        self._walk = os.environ.get(FORCE) == "walk" if walk is None else walk
        self._guard = threading.Lock()  # asking who holds a lock takes it for a moment: never while one is launched
        self._children: set[int] = set()

    def launch(self, launch: Launch, secrets: Mapping[str, str]) -> JobId:
        """On several nodes: each is a runner of its own here, with its share of the slots."""
        share = len(launch.slots) // launch.nodes
        for node in range(launch.nodes):
            slots = launch.slots[node * share : (node + 1) * share]
            devices = launch.devices[node * share : (node + 1) * share] if launch.devices is not None else None
            self.launch_one(msgspec.structs.replace(launch, node=node, slots=slots, devices=devices), secrets)
        return JobId(launch.attempt_id)

    def launch_one(self, launch: Launch, secrets: Mapping[str, str]) -> None:
        """The runner of one node."""
        job = seat_of(launch.attempt_id, launch.node, launch.nodes)
        directory = self._directory(job)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._lock(directory, wait_for=directory / BEGAN) as lock:
                if lock is None or (directory / BEGAN).exists() or (directory / DONE).exists():
                    return
                write(
                    directory / LAUNCH, msgspec.json.encode(msgspec.structs.replace(launch, directory=str(directory)))
                )
                self._spawn(directory, lock, secrets, ["--walk"] if self._walk else [])
        except OSError as error:
            raise EngineUnreachable(f"The runner of {job} could not be started: {error}.") from error

    def poll(self, jobs: Collection[JobId]) -> Mapping[JobId, JobStatus]:
        self._reap()
        return {job: _together([self.status(seat) for seat in self.seats(job)]) for job in jobs}

    def cancel(self, job: JobId) -> None:
        for seat in self.seats(job):
            self._cancel(seat)

    def salvage(self, job: JobId) -> None:
        for seat in self.seats(job):
            self._salvage(seat)

    def forget(self, job: JobId) -> None:
        for seat in self.seats(job):
            self._forget(seat)

    def seats(self, job: JobId) -> list[str]:
        """The runners of a job that there are, or were, on this host, in the order of their nodes."""
        if self._directory(job).is_dir():
            return [job]
        found = [path.name for path in self._root.glob(f"{job}.*") if path.name.removeprefix(f"{job}.").isdecimal()]
        return sorted(found, key=lambda name: int(name.rpartition(".")[2])) or [job]

    def _cancel(self, job: str) -> None:
        directory = self._directory(job)
        began = read_began(directory)
        group = Path(began.group) if began is not None and began.group else None
        program = read_program(directory)
        runner = self._runner(directory) if self._held(directory) else None
        if runner is None:
            tree = Tree(job, group=group, program=program)
            tree.end()
            tree.remove()
            return
        try:
            # Stopped, it can neither start anything nor lose its place as the root of the tree.
            runner.send(signal.SIGSTOP)
            tree = Tree(job, group=group, root=runner.process.pid, program=program)
            try:
                tree.end()
            finally:
                runner.send(signal.SIGKILL)  # whatever went wrong: never left stopped
            runner.wait(10.0)
            tree.remove()
        finally:
            runner.close()
        self._reap()

    def _salvage(self, job: str) -> None:
        directory = self._directory(job)
        if not (directory / BEGAN).exists() or (directory / DONE).exists():
            return
        try:
            with self._lock(directory) as lock:
                if lock is not None:
                    self._spawn(directory, lock, {}, ["--salvage"])
        except OSError as error:
            raise EngineUnreachable(f"No runner could be started to salvage {job}: {error}.") from error

    def _forget(self, job: str) -> None:
        directory = self._directory(job)
        if directory.is_dir() and not self._held(directory):
            began = read_began(directory)
            if began is not None and began.group:
                Tree(job, group=Path(began.group)).remove()  # a runner that was killed at its very end left it
            shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            shutil.rmtree(memory_of(job), ignore_errors=True)

    def _directory(self, job: str) -> Path:
        if "/" in job or job.startswith("."):
            raise ValueError(f"{job!r} can't be the id of an attempt")
        return self._root.absolute() / job

    def status(self, job: str) -> JobStatus:
        """Of one runner."""
        directory = self._directory(job)
        if (directory / DONE).exists():
            return JobStatus(JobState.ENDED)
        if self._held(directory):
            return JobStatus(JobState.RUNNING)
        if (directory / DONE).exists():  # it left while we asked
            return JobStatus(JobState.ENDED)
        if (directory / BEGAN).exists():
            return JobStatus(
                JobState.DEAD, f"The runner of {job} died; its last words are in {directory / RUNNER_LOG}."
            )
        return JobStatus(JobState.UNKNOWN)

    @contextlib.contextmanager
    def _lock(self, directory: Path, *, wait_for: Path | None = None) -> Iterator[int | None]:
        """The attempt's lock as a file descriptor, or None while another one holds it."""
        with self._guard:
            fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                yield fd if _take(fd, wait_for) else None
            finally:
                os.close(fd)  # a runner that got a copy keeps the lock

    def _held(self, directory: Path) -> bool:
        with self._guard:
            try:
                fd = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(fd)
            return False

    def _spawn(self, directory: Path, lock: int, secrets: Mapping[str, str], options: list[str]) -> None:
        log = os.open(directory / RUNNER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if os.fstat(log).st_size > _LOG_LIMIT:
            os.ftruncate(log, 0)
        read_end, write_end = os.pipe()
        try:
            with contextlib.suppress(OSError):
                fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE)  # so that we don't wait for the reader
            # -S and the ready-made path save a third of the start-up; -P: nothing in the working directory is imported.
            command = [sys.executable, "-S", "-s", "-P", "-m", "whistlestop.runner", str(directory)]
            pid = os.posix_spawn(
                sys.executable,
                [*command, f"--lock={_LOCK_FD}", *options],
                _environment(),
                file_actions=_places([read_end, log, log, lock]),
                setsid=True,
                setsigmask=[],
                setsigdef=_CATCHABLE,  # an ignored SIGCHLD would lose every exit status
            )
            self._children.add(pid)
            with contextlib.suppress(BrokenPipeError):  # it died: the next poll says so
                _write_all(write_end, json.dumps(dict(secrets)).encode())
        finally:
            for fd in (log, read_end, write_end):
                os.close(fd)

    def _runner(self, directory: Path) -> Handle | None:
        """The process that holds the attempt's lock, proven by its open file, never by a pid that was written down."""
        try:
            wanted = os.stat(directory / LOCK)
        except FileNotFoundError:
            return None
        began = read_began(directory)
        likely = processes.read(began.pid) if began is not None else None
        for process in [*([likely] if likely is not None else []), *processes.every().values()]:
            handle = Handle.open(process) if process.pid != os.getpid() else None
            if handle is None:
                continue
            if _has_open(process.pid, wanted):
                return handle
            handle.close()
        return None

    def _reap(self) -> None:
        for pid in list(self._children):
            try:
                ended, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended = pid
            if ended:
                self._children.discard(pid)


def _together(found: Sequence[JobStatus]) -> JobStatus:
    """Of several nodes: it runs as long as one of them does."""
    if len(found) == 1:
        return found[0]
    states = [each.state for each in found]
    order = (JobState.RUNNING, JobState.DEAD, JobState.UNKNOWN, JobState.ENDED)
    text = " ".join(each.text for each in found if each.text)
    return JobStatus(min(states, key=order.index), text, nodes=tuple(states))


def _take(fd: int, wait_for: Path | None) -> bool:
    """Exclusively. Another server process may hold it for the moment of a question: a few tries, then it is held."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if wait_for is None or wait_for.exists():
                return False
            time.sleep(_PATIENCE)
    return False


def _environment() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("WHISTLE_") or name in _KEPT}
    env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(each) for each in sys.path if os.path.exists(each))
    return env


def _places(fds: list[int]) -> list[tuple[int, int] | tuple[int, int, int]]:
    """File actions that put fds[i] at place i, whatever numbers they have now."""
    aside = max(*fds, len(fds)) + 1
    actions: list[tuple[int, int] | tuple[int, int, int]] = []
    actions += [(os.POSIX_SPAWN_DUP2, fd, aside + place) for place, fd in enumerate(fds)]
    for place in range(len(fds)):
        actions += [(os.POSIX_SPAWN_DUP2, aside + place, place), (os.POSIX_SPAWN_CLOSE, aside + place)]
    return actions


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found = os.stat(f"/proc/{pid}/fd/{name}")
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return True
    except OSError:
        pass
    return False
