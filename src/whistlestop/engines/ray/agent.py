"""What we have on each node of a Ray cluster: an actor that starts runners there, and looks at them, so that what is
said of a node is said by somebody who is there.

It travels as it is, by value: on the node there is nothing of ours, and whatever Python Ray has. So it uses the
standard library alone. Who lives is told as on one machine (engines/local.py): by the lock that only the living hold,
and the marks of beginning and end. All that takes more is done by the code that the attempt was started with.
"""

import contextlib
import fcntl
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whistlestop.engines.attempt_files import BEGAN, DONE, LAUNCH, LOCK, RUNNER_LOG

DEVICES, ALL = "devices", "all"  # beside a seat's other files: which GPUs it was given

EVERY, RARELY = 0.1, 0.5  # seconds between two looks, where something lives and where nothing does
ALONE = 120.0  # seconds without a question after which it leaves: its server is gone, or of another version
ACTING = 60.0
LIVES = ("pending", "running")
# A session of its own, and nobody's child: Ray ends its workers' children with them. Signals as they are at first.
_RUN = """
import os, signal
if os.fork():
    os._exit(0)
os.setsid()
signal.pthread_sigmask(signal.SIG_SETMASK, [])
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_DFL)
    except (OSError, ValueError):
        pass
exec(compile(os.environ.pop("WHISTLE_BOOT"), "boot", "exec"))
"""


class Agent:
    """`root`: this node's own directory, also where nodes share a file system."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self._attempts = self._root / "attempts"
        # Of a seat: asking who holds its lock takes it for a moment, never while its runner is started. One that takes
        # its time keeps nobody from hearing of the others.
        self._guards: dict[str, threading.Lock] = {}
        self._starting: set[str] = set()
        self._looks = itertools.count(1)
        self._news = threading.Event()
        self._asked = time.monotonic()
        threading.Thread(target=self._leave_when_alone, daemon=True).start()

    def start(
        self,
        seat: str,
        node: int,
        python: str,
        boot: str,
        ticket: dict[str, Any],
        devices: str | None,
        spare: Sequence[str] = (),
    ) -> tuple[list[str], tuple[int, dict[str, str]]]:
        """A runner for the seat, unless there is or was one. `devices`: the GPUs that Ray gives it; `spare`: what Ray
        has given to others of ours here. The answer: who holds what it needs, in which case it was not started; and a
        look that was begun after that."""
        held_by = self._start(seat, node, python, boot, ticket, devices, spare)
        self._news.set()
        return held_by, self.look()

    def _start(
        self,
        seat: str,
        node: int,
        python: str,
        boot: str,
        ticket: dict[str, Any],
        devices: str | None,
        spare: Sequence[str],
    ) -> list[str]:
        directory = self._attempts / seat
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._being_started(seat), self._locked(directory) as lock:
                if lock is None or (directory / BEGAN).exists() or (directory / DONE).exists():
                    return []
                given, held_by = self._give(directory, devices, spare)
                if held_by:
                    return held_by
                env = _environment(given) | {
                    "WHISTLE_TICKET": json.dumps({**ticket, "root": str(self._root), "node": node}),
                    "WHISTLE_BOOT": boot,
                    "WHISTLE_LOCK": str(lock),
                }
                with open(directory / RUNNER_LOG, "ab") as log:
                    subprocess.run(
                        [*shlex.split(python), "-c", _RUN],
                        env=env,
                        cwd="/",
                        pass_fds=[lock],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                        check=True,
                    )
        except (OSError, subprocess.CalledProcessError) as error:
            _tell(boot, ticket, node, f"no runner could be started with {python} on {self._root.name}: {error}")
        return []

    def look(self) -> tuple[int, dict[str, str]]:
        """All seats of this node: running, pending, ended, dead or unknown, as in JobState. The first is the number of
        this look, drawn as it begins: answers overtake each other on their way, and the one with the higher number
        has seen all that was started before it."""
        self._asked = time.monotonic()
        number, found = next(self._looks), {}
        with contextlib.suppress(FileNotFoundError):
            found = {name: self._state(self._attempts / name) for name in os.listdir(self._attempts)}
        return number, found

    def watch(self, known: Mapping[str, str], seconds: float) -> tuple[int, dict[str, str]]:
        """The same, as soon as it is something else than is known, or after so many seconds."""
        end = time.monotonic() + seconds
        while True:
            self._news.clear()
            number, found = self.look()
            if found != known or time.monotonic() >= end:
                return number, found
            self._news.wait(EVERY if "running" in found.values() else RARELY)

    def act(self, what: str, seat: str, python: str) -> None:
        """cancel, salvage or forget it."""
        self._asked = time.monotonic()
        directory = self._attempts / seat
        if not directory.is_dir():
            return
        try:
            kit = json.loads((directory / LAUNCH).read_bytes())["sdk_path"]
        except (OSError, ValueError, KeyError):
            self._act_early(what, directory)  # it is still being laid out
            return
        words = ["-s", "-P", "-m", "whistlestop.engines.node_side", str(self._attempts), what, seat]
        done = subprocess.run(
            [*shlex.split(python), *words],
            env=_environment(None) | {"PYTHONPATH": kit},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ACTING,
        )
        self._news.set()
        if done.returncode != 0:
            raise RuntimeError(f"{what} of {seat} on {self._root.name}: {done.stderr.strip()[-500:]}")

    def _act_early(self, what: str, directory: Path) -> None:
        """There is no program yet, nor anything to salvage."""
        if what == "cancel":
            end = time.monotonic() + ACTING
            while self._state(directory) in LIVES and time.monotonic() < end:
                for pid in _holders(directory / LOCK):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)
        elif what == "forget" and self._state(directory) not in LIVES:
            shutil.rmtree(directory, ignore_errors=True)
        self._news.set()

    def _give(self, directory: Path, devices: str | None, spare: Sequence[str]) -> tuple[str | None, list[str]]:
        """The GPUs that a seat gets, and who holds what it would need. After its raylet was started again, Ray knows
        nothing of the GPUs that are in use: what lives here tells. The seat's lock is held by then, and what it gets is
        written down before it begins, so that it counts among them for everybody, an agent of another time included."""
        if devices is None:
            return None, []
        with open(self._root / ".devices", "ab") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            held = {
                each: path.parent.name
                for path in self._attempts.glob(f"*/{DEVICES}")
                if path.parent != directory and self._uses_devices(path.parent)
                for each in path.read_text().split(",")
            }
            given = choose(devices, spare, held)
            if given is None:
                return None, sorted(set(held.values()))
            (directory / DEVICES).write_text(given)
            return given, []

    def _uses_devices(self, seat: Path) -> bool:
        """One whose runner has died may have a program that lives; it may also be of before the node's last start."""
        state = self._state(seat)
        return state in LIVES or (state == "dead" and _has_processes(seat))

    @contextlib.contextmanager
    def _being_started(self, seat: str) -> Iterator[None]:
        with self._guards.setdefault(seat, threading.Lock()):
            self._starting.add(seat)
            try:
                yield
            finally:
                self._starting.discard(seat)

    def _state(self, directory: Path) -> str:
        if (directory / DONE).exists():
            return "ended"
        if directory.name in self._starting:
            return "pending"
        guard = self._guards.setdefault(directory.name, threading.Lock())
        while not guard.acquire(timeout=0.01):
            if directory.name in self._starting:
                return "pending"
        try:
            with self._locked(directory, make=False) as lock:
                held = lock is None
        finally:
            guard.release()
        if held:
            return "running"
        if (directory / DONE).exists():  # it left while we asked
            return "ended"
        return "dead" if (directory / BEGAN).exists() else "unknown"

    @contextlib.contextmanager
    def _locked(self, directory: Path, *, make: bool = True) -> Iterator[int | None]:
        """The lock, or None while another one holds it. -1: there is none."""
        try:
            fd = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o600)
        except FileNotFoundError:
            yield -1
            return
        try:
            fcntl.flock(fd, (fcntl.LOCK_EX if make else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield fd
        finally:
            os.close(fd)  # a runner that got a copy keeps the lock

    def _leave_when_alone(self) -> None:
        while time.monotonic() - self._asked < ALONE:
            time.sleep(ALONE / 60)
        os._exit(0)


def choose(devices: str, spare: Sequence[str], held: Mapping[str, str]) -> str | None:
    """As many as Ray gives, none of which is held. Ray's own come first; where one of them is in use by an attempt that
    Ray takes to be on another one, that other one is free. None: there are not enough."""
    if devices == ALL or ALL in held:
        return None if held else devices
    wanted = devices.split(",")
    free = [each for each in dict.fromkeys([*wanted, *spare]) if each not in held]
    return ",".join(free[: len(wanted)]) if len(free) >= len(wanted) else None


def _environment(devices: str | None) -> dict[str, str]:
    """Nothing that is Ray's, or another run's."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "WHISTLE_", "PYTHON"))}
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):  # Ray sets them for an actor without slots
        env.pop(name, None)
    return env if devices in (None, ALL) else env | {"CUDA_VISIBLE_DEVICES": devices}


def _tell(boot: str, ticket: dict[str, Any], node: int, text: str) -> None:
    """The server, in the way that boot.py does it."""
    functions: dict[str, Any] = {"__name__": "boot"}
    exec(compile(boot, "boot", "exec"), functions)
    functions["tell"](ticket, node, text)


def _has_processes(seat: Path) -> bool:
    """Of the program of a runner that has died: by its cgroup, or by the mark that all of its processes bear."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        group = json.loads((seat / BEGAN).read_bytes())["group"]
        if group and "populated 1" in Path(group, "cgroup.events").read_text():
            return True
    mark = f"{'WHISTLE_JOB' if '.' in seat.name else 'WHISTLE_ATTEMPT'}={seat.name}".encode()  # as in containment.py
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return True
    return False


def _holders(path: Path) -> list[int]:
    wanted = os.stat(path)
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                has = os.stat(f"/proc/{pid}/fd/{fd}")
                if pid != os.getpid() and (has.st_dev, has.st_ino) == (wanted.st_dev, wanted.st_ino):
                    found.append(pid)
                    break
    return found
