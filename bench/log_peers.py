"""One call per step that logs three scalars: ours beside other loggers, a line of JSON and a bare list append.

    python bench/log_peers.py [--quick] [--steps 20000] [--out FILE]

Each logger has a process of its own and works in turn with the others, in rounds: whatever else the machine does hits
all alike. Afterwards each logs some more at full speed and ends itself by SIGKILL right behind the last call; another
process then counts what can be read back. A peer that is not installed is named, not measured (`make bench` installs
them). How each is called is in peers.py.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

from measuring import Result, alone, percentile, scratch
from peers import PEERS, VALUES, Peer

ROUNDS = 10
MEDIAN = 2.0  # µs, ours
READ_SECONDS = 300.0


class Child:
    """A logger in its own process, which waits between its rounds."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root, self.logged = name, root, 0
        self.times = array("q")
        self._process = subprocess.Popen(
            command(name, "log", root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(root / "errors").open("wb"),
            env=environment(root),
        )

    def ready(self) -> str:
        """Its version. Raises with its last words when it does not come up."""
        return str(self._answer())

    def log(self, steps: int) -> None:
        self._ask({"steps": steps, "times": str(self.root / "times")})
        self._answer()
        with (self.root / "times").open("rb") as file:
            self.times.frombytes(file.read())
        self.logged += steps

    def log_and_die(self, steps: int) -> None:
        self._ask({"steps": steps, "times": None})
        if self._process.wait(READ_SECONDS) != -signal.SIGKILL:
            raise RuntimeError(f"{self.name} ended with {self._process.returncode} instead of SIGKILL: {self._last()}")
        self.logged += steps

    def found(self) -> int:
        """Points that another process can read back."""
        words = command(self.name, "count", self.root)
        done = subprocess.run(words, env=environment(self.root), capture_output=True, timeout=READ_SECONDS, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name} can't be read back: {done.stderr.decode()[-2000:]}")
        return int(done.stdout.split()[-1])

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _ask(self, request: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def _answer(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(self._last())
        return json.loads(line)

    def _last(self) -> str:
        words = (self.root / "errors").read_text(errors="replace").strip().splitlines()
        return words[-1] if words else "it said nothing"


def measure(steps: int) -> Result:
    result = Result()
    with scratch() as directory, contextlib.ExitStack() as stack:
        children = list(start(directory, result, stack))
        for _ in range(ROUNDS):
            for child, peer in children:
                child.log(max(1, peer.steps(steps) // ROUNDS))
        for child, peer in children:
            child.log_and_die(min(2_000, peer.steps(steps)))
        lost = {child.name: len(VALUES) * child.logged - child.found() for child, _ in children}
    for child, _ in children:
        add(result, child, lost[child.name])
    return result


def start(directory: Path, result: Result, stack: contextlib.ExitStack) -> Iterator[tuple[Child, Peer]]:
    for number, (name, peer) in enumerate(PEERS.items()):
        root = directory / str(number)
        root.mkdir()
        child = Child(name, root)
        stack.callback(child.close)
        try:
            version = child.ready()
        except RuntimeError as error:
            if name.startswith(("floor", "ours")):
                raise
            result.notes[name] = f"NOT measured: {error}"
            continue
        result.notes[name] = version
        yield child, peer


def add(result: Result, child: Child, lost: int) -> None:
    times = [each / 1000 for each in child.times]
    ours = child.name.startswith("ours")
    result.add(f"{child.name}: median", percentile(times, 50), "µs", aim=MEDIAN if ours else None)
    result.add(f"{child.name}: p99", percentile(times, 99), "µs")
    result.add(
        f"{child.name}: lost of {len(VALUES) * child.logged:,} points by SIGKILL",
        lost,
        "points",
        aim=0 if ours else None,
    )
    tenths = [round(percentile(times, tenth * 10), 2) for tenth in range(1, 10)]
    result.notes[child.name] = f"{result.notes[child.name]}; {len(times):,} steps; µs at each tenth: {tenths}"


def command(name: str, what: str, root: Path) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("peers.py")), what, name, str(root)]


def environment(root: Path) -> dict[str, str]:
    """Everything that a peer leaves, its settings too, stays in the scratch directory; nothing is sent anywhere."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("WHISTLE_", "WANDB_", "MLFLOW_"))
    }
    return clean | {
        "HOME": str(root),
        "TMPDIR": str(root),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(root),
        "WANDB_SILENT": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
        "TRACKIO_DIR": str(root / "trackio"),
        "OMP_NUM_THREADS": "1",
    }


if __name__ == "__main__":
    alone(measure, full=20_000, quick=1_000, doc=__doc__, what="steps")
