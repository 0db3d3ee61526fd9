"""The README's first example works when it is pasted into a file, also when Ctrl-C comes in the middle."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from whistlestop.blobs.checkpoints import CheckpointStore

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    found = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found
    for directory in ("whole", "parted"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "train.py").write_text(found[1])
    return tmp_path


def test_the_first_example_uses_what_it_promises(example: Path) -> None:
    text = (example / "whole" / "train.py").read_text()
    assert re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE) == ["random", "whistlestop"]
    for used in ("whistlestop.plateau(", "run.track(", "run.steps(", "run.log(", "run.evaluating("):
        assert used in text


def test_the_first_example_goes_on_after_ctrl_c_and_ends_as_if_it_had_not_come(example: Path) -> None:
    whole = _finish(_start(example / "whole"))
    assert "val_loss has not improved for 5 evaluations" in whole.stderr
    with _start(example / "parted") as child:
        assert child.stdout is not None
        before = [child.stdout.readline() for _ in range(8)]
        child.send_signal(signal.SIGINT)
        first = _finish(child)
    stopped = re.search(r"stopped at step (\d+); start it again", first.stderr)
    assert stopped, first.stderr
    step = int(stopped[1])
    assert 800 <= step < _last_step(whole.stdout)
    assert _newest(example / "parted") == step
    second = _finish(_start(example / "parted"))
    assert f"going on at step {step} from" in second.stderr
    evaluations = [line for line in whole.stdout.splitlines() if line.startswith("step ")]
    resumed = [*"".join(before).splitlines(), *first.stdout.splitlines(), *second.stdout.splitlines()]
    assert [line for line in resumed if line.startswith("step ")] == evaluations
    assert second.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1]
    assert _newest(example / "parted") == _newest(example / "whole")


def _start(directory: Path) -> "subprocess.Popen[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("WHISTLE_", "RANK", "WORLD_"))}
    with _interrupts_as_in_a_terminal():
        return subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=directory,
            env=clean,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@contextmanager
def _interrupts_as_in_a_terminal() -> Iterator[None]:
    """A child inherits an ignored SIGINT, as background jobs of a shell have it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _finish(child: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
    try:
        out, errors = child.communicate(timeout=180)
    finally:
        child.kill()
    assert child.returncode == 0, errors
    return subprocess.CompletedProcess(child.args, child.returncode, out, errors)


def _last_step(said: str) -> int:
    return int(re.findall(r"^step (\d+):", said, re.MULTILINE)[-1])


def _newest(directory: Path) -> int:
    return CheckpointStore(directory / "whistle-checkpoints" / "train").list("run-001")[0].step
