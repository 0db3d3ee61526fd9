"""An example as a real process under a bare channel, as a runner would start it. Plays the runner towards it."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.channel import layout
from whistlestop.channel.control import Control
from whistlestop.channel.layout import Kind, Loop, Word
from whistlestop.channel.reader import JournalReader
from whistlestop.domain.ids import new_id
from whistlestop.domain.stops import Stop
from whistlestop.testing.wait import until

SECONDS = 240.0
# One thread each: sums in another order are other sums, and the machine has other users.
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "PYTHONWARNINGS": "default",
}


def quiet_environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WHISTLE_")}
    clean.pop("RANK", None)
    return {**clean, **QUIET, **more}


class ExampleProgram:
    """What the runner sees of it. `points` and `events` are read when it has ended."""

    def __init__(self, root: Path, process: subprocess.Popen[str], control: Control) -> None:
        self.root = root
        self.process = process
        self.control = control
        self.code: int | None = None
        self.stdout = self.stderr = ""

    @property
    def step(self) -> int:
        return self.control[Word.STEP]

    @property
    def loop(self) -> Loop:
        return Loop(self.control[Word.LOOP])

    def wait_for_step(self, step: int) -> None:
        until(
            lambda: self.step >= step or self.process.poll() is not None,
            within=SECONDS,
            what=f"step {step} of the example",
        )
        if self.process.poll() is not None:
            self.end()
            raise AssertionError(f"it ended early, with {self.code}: {self.stderr[-3000:]}")

    def order(self, level: Stop) -> float:
        """Give the order now. The time from which on it can be seen."""
        self.control[Word.STOP_LEVEL] = level
        self.control[Word.STOP_SEQ] += 1
        return time.time()

    def end(self) -> int:
        self.stdout, self.stderr = self.process.communicate(timeout=SECONDS)
        self.code = self.process.returncode
        return self.code

    def points(self) -> list[tuple[int, float, dict[str, float]]]:
        """Step, time, values."""
        names: dict[int, tuple[str, ...]] = {}
        found = []
        for record in self._records(layout.metrics_prefix(0)):
            if record.kind == Kind.SHAPE:
                names[record.shape] = record.names()
            else:
                step, at, values = record.point()
                found.append((step, at, dict(zip(names[record.shape], values, strict=True))))
        return found

    def series(self, name: str) -> dict[int, float]:
        return {step: values[name] for step, _, values in self.points() if name in values}

    def events(self, kind: str) -> list[dict[str, Any]]:
        found = [record.event() for record in self._records(layout.events_prefix(0))]
        return [each for each in found if each["kind"] == kind]

    def saved(self) -> list[int]:
        """The steps of the checkpoints that are there, newest first."""
        return [each.step for each in CheckpointStore(self.root / "checkpoints").list("train")]

    def _records(self, prefix: str) -> list[Any]:
        reader = JournalReader(self.root / "channel", prefix)
        try:
            return list(reader.records())
        finally:
            reader.close()


@contextmanager
def example_program(example: Path, root: Path, env: Mapping[str, str] | None = None) -> Iterator[ExampleProgram]:
    """Start `example`/train.py, copied to `root`. It is gone at the end of the block, however that ends."""
    home = root / "example"
    shutil.copytree(example, home, ignore=shutil.ignore_patterns("whistle-checkpoints", "__pycache__"))
    (root / "channel").mkdir()
    control = Control.create(root / "channel" / layout.CONTROL_FILE)
    told = {
        layout.ENV_CHANNEL: str(root / "channel"),
        layout.ENV_RUN_NAME: "example",
        layout.ENV_PHASE: "train",
        layout.ENV_ATTEMPT: new_id("a"),
        layout.ENV_ATTEMPT_NUMBER: "1",
        layout.ENV_CHECKPOINTS: str(root / "checkpoints"),
    }
    process = subprocess.Popen(
        [sys.executable, "train.py"],
        cwd=home,
        env=quiet_environment(**{**told, **(env or {})}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield ExampleProgram(root, process, control)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        control.close()
