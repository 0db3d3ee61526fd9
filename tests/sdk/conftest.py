"""A channel directory as the runner makes it, and real child processes that use it."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.channel import layout
from whistlestop.channel.control import Control
from whistlestop.channel.journal import JournalReader
from whistlestop.channel.layout import Kind
from whistlestop.domain.ids import new_id

DEADLINE = 60.0
# A shell may have told its background jobs to ignore SIGINT; children would inherit that.
PREAMBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def wait_until(condition: Callable[[], bool], what: str = "the condition") -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {DEADLINE} s for {what}")
        time.sleep(0.002)


@dataclass
class Channel:
    """The runner's side."""

    root: Path
    control: Control
    extra: dict[str, str] = field(default_factory=dict)
    attempt: str = field(default_factory=lambda: new_id("a"))  # its own: places in memory are named by it

    @property
    def directory(self) -> Path:
        return self.root / "channel"

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(self.root / "checkpoints")

    @property
    def env(self) -> dict[str, str]:
        return {
            layout.ENV_CHANNEL: str(self.directory),
            layout.ENV_RUN_NAME: "test",
            layout.ENV_PHASE: "train",
            layout.ENV_ATTEMPT: self.attempt,
            layout.ENV_ATTEMPT_NUMBER: "1",
            layout.ENV_CHECKPOINTS: str(self.root / "checkpoints"),
            **self.extra,
        }

    def steps(self) -> list[int]:
        return [each.step for each in self.store.list("train")]

    def events(self, kind: str | None = None, rank: int = 0) -> list[dict[str, Any]]:
        reader = JournalReader(self.directory, layout.events_prefix(rank))
        found = [record.event() for record in reader.records()]
        reader.close()
        return [each for each in found if kind in (None, each["kind"])]

    def points(self, rank: int = 0) -> list[tuple[int, dict[str, float]]]:
        reader = JournalReader(self.directory, layout.metrics_prefix(rank))
        names: dict[int, tuple[str, ...]] = {}
        found = []
        for record in reader.records():
            if record.kind == Kind.SHAPE:
                names[record.shape] = record.names()
            else:
                step, _, values = record.point()
                found.append((step, dict(zip(names[record.shape], values, strict=True))))
        reader.close()
        return found


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    (tmp_path / "channel").mkdir()
    control = Control.create(tmp_path / "channel" / layout.CONTROL_FILE)
    yield Channel(tmp_path, control)
    control.close()


@pytest.fixture
def attached(channel: Channel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Channel:
    """This very process is the program."""
    for name, value in channel.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.chdir(tmp_path)
    return channel


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """This very process is the program, and there is no runner. Gives the working directory."""
    for name in list(os.environ):
        if name.startswith("WHISTLE_") or name == "RANK":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Program:
    """A child process that runs a script; `line` waits for what it prints."""

    def __init__(self, directory: Path, script: str, env: Mapping[str, str]) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WHISTLE_")}
        clean.pop("RANK", None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(script)],
            cwd=directory,
            env={**clean, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.stderr = ""

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """The exit code; what it printed last is in `stdout` and `stderr`."""
        self.stdout, self.stderr = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(script: str, env: Mapping[str, str] | None = None) -> Program:
        started.append(Program(tmp_path, script, env or {}))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()
        for stream in (each.process.stdin, each.process.stdout, each.process.stderr):
            if stream is not None:
                stream.close()


def unhurried(run: Any, steps: Iterable[Any]) -> Iterator[Any]:
    """Steps that take as long as a save needs to become durable: none is put off."""
    for step in steps:
        yield step
        run._saver.finish()


@pytest.fixture
def wait() -> Callable[[Callable[[], bool], str], None]:
    return wait_until
