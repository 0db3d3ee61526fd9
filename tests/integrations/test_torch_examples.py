"""Loops of the user's own, in PyTorch and with Accelerate, in real processes: stopped, resumed.

A process of these takes seconds to start. A rule, which all loops of the user's own have from the same code of ours, is
proven in test_tensorflow_examples.py and test_jax_examples.py.
"""

import importlib.util
import random
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from whistlestop.channel.layout import Loop, Word
from whistlestop.domain.stops import Stop
from whistlestop.runner.rehearsal import rehearse
from whistlestop.testing.example_program import example_program, quiet_environment
from whistlestop.testing.missing import missing

PER_EPOCH = 32


class Example(NamedTuple):
    name: str
    needs: str
    parts: frozenset[str]
    metric: str  # of its evaluations, every 16 steps
    pause: int  # in mid-epoch, or between two
    says: str  # behind its loop

    @property
    def home(self) -> Path:
        return Path(__file__).parents[2] / "examples" / self.name


EXAMPLES = (
    Example(
        "pytorch",
        "torch",
        frozenset({"model", "averaged", "optimizer", "schedule", "scaler", "rng"}),
        "accuracy",
        random.Random(5).randrange(PER_EPOCH + 1, 2 * PER_EPOCH),
        "accuracy",
    ),
    Example("accelerate", "accelerate", frozenset({"accelerate", "rng"}), "val_loss", PER_EPOCH, "loss"),
)


def need(example: Example) -> None:
    if importlib.util.find_spec(example.needs) is None:
        missing(f"{example.needs} is not installed")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.name)
def test_a_resumed_loop_comes_to_the_same_bits(example: Example, tmp_path: Path) -> None:
    need(example)
    report = rehearse(
        [sys.executable, str(example.home / "train.py")],
        steps=2 * PER_EPOCH + 3,
        at=example.pause,
        env=quiet_environment(),
        cwd=tmp_path,
    )
    assert report.same, report.text
    assert report.steps == 2 * PER_EPOCH + 3  # of 4 epochs: stopped there
    assert set(report.parts) >= example.parts
    assert report.metrics["loss"] == report.metrics["lr"] == 2 * PER_EPOCH + 3
    assert report.metrics[example.metric] == 4


@pytest.mark.parametrize(
    "example", [EXAMPLES[0], pytest.param(EXAMPLES[1], marks=pytest.mark.long)], ids=lambda each: each.name
)
def test_a_stop_ends_the_loop_at_the_next_step(example: Example, tmp_path: Path) -> None:
    need(example)
    with example_program(example.home, tmp_path, {"EPOCHS": "1000"}) as program:
        program.wait_for_step(20)
        ordered = program.order(Stop.FINISH_PHASE)
        assert program.end() == 0, program.stderr
        losses = program.series("loss")
        assert sum(at > ordered for _, at, values in program.points() if "loss" in values) <= 1
        assert program.loop == Loop.STOPPED
        assert program.saved()[0] == program.step == len(losses) == max(losses) + 1
        assert program.stdout.startswith(example.says)  # what stands behind the loop has run
        assert program.control[Word.TOTAL] == 1000 * PER_EPOCH
        assert program.control[Word.BATCHES] == PER_EPOCH
        assert (program.control[Word.EPOCH], program.control[Word.BATCH]) == divmod(program.step, PER_EPOCH)
        assert len(program.events("evaluation")) == program.control[Word.EVALUATIONS] >= 1
        assert set(program.series(example.metric)) <= {16 * n - 1 for n in range(1, 1 + program.step // 16)}
