"""What we have on each node of a Ray cluster: an actor that starts runners there, and looks at them, so that what is
said of a node is said by somebody who is there.

It travels as it is, by value: on the node there is nothing of ours, and whatever Python Ray has. So it uses the
standard library alone. Who lives is told as on one machine (engines/local.py): by the lock that only the living hold,
and the marks of beginning and end. All that takes more is done by the code that the attempt was started with.
"""

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whistlestop.engines.attempt_files import BEGAN, DONE, LAUNCH, LOCK, RUNNER_LOG

EVERY, RARELY = 0.1, 0.5  # seconds between two looks, where something lives and where nothing does
ALONE = 120.0  # seconds without a question after which it leaves: its server is gone, or of another version
ACTING = 60.0
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
        self._guard = threading.Lock()  # asking who holds a lock takes it for a moment: never while one is started
        self._news = threading.Event()
        self._asked = time.monotonic()
        threading.Thread(target=self._leave_when_alone, daemon=True).start()

    def start(self, seat: str, node: int, python: str, boot: str, ticket: dict[str, Any], devices: str | None) -> None:
        """A runner for the seat, unless there is or was one."""
        directory = self._attempts / seat
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._guard, self._locked(directory) as lock:
                if lock is None or (directory / BEGAN).exists() or (directory / DONE).exists():
                    return
                env = _environment(devices) | {
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
        self._news.set()

    def look(self) -> dict[str, str]:
        """All seats of this node: running, ended, dead or unknown, as in JobState."""
        self._asked = time.monotonic()
        with contextlib.suppress(FileNotFoundError):
            return {name: self._state(self._attempts / name) for name in os.listdir(self._attempts)}
        return {}

    def watch(self, known: Mapping[str, str], seconds: float) -> dict[str, str]:
        """The same, as soon as it is something else than is known, or after so many seconds."""
        end = time.monotonic() + seconds
        while True:
            self._news.clear()
            found = self.look()
            if found != known or time.monotonic() >= end:
                return found
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
            for pid in _holders(directory / LOCK):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            end = time.monotonic() + ACTING
            while self._state(directory) == "running" and time.monotonic() < end:
                time.sleep(0.01)
        elif what == "forget" and self._state(directory) != "running":
            shutil.rmtree(directory, ignore_errors=True)
        self._news.set()

    def _state(self, directory: Path) -> str:
        if (directory / DONE).exists():
            return "ended"
        with self._guard, self._locked(directory, make=False) as lock:
            held = lock is None
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


def _environment(devices: str | None) -> dict[str, str]:
    """Nothing that is Ray's, or another run's."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "WHISTLE_", "PYTHON"))}
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):  # Ray sets them for an actor without slots
        env.pop(name, None)
    return env if devices is None else env | {"CUDA_VISIBLE_DEVICES": devices}


def _tell(boot: str, ticket: dict[str, Any], node: int, text: str) -> None:
    """The server, in the way that boot.py does it."""
    functions: dict[str, Any] = {"__name__": "boot"}
    exec(compile(boot, "boot", "exec"), functions)
    functions["tell"](ticket, node, text)


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
