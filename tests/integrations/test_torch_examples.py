"""Loops of the user's own, in PyTorch and with Accelerate, in real processes: stopped, resumed, ended by a rule."""

import importlib.util
import json
import random
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from whistlestop.channel.layout import ENV_STOP_WHEN, Loop, Word
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
    prints: str

    @property
    def home(self) -> Path:
        return Path(__file__).parents[2] / "examples" / self.name


EXAMPLES = (
    Example(
        "pytorch",
        "torch",
        frozenset({"model", "averaged", "optimizer", "schedule", "scaler", "rng"}),
        "accuracy",
        "accuracy",
    ),
    Example("accelerate", "accelerate", frozenset({"accelerate", "rng"}), "val_loss", "loss"),
)


@pytest.fixture(params=EXAMPLES, ids=lambda each: each.name)
def example(request: pytest.FixtureRequest) -> Example:
    found: Example = request.param
    if importlib.util.find_spec(found.needs) is None:
        missing(f"{found.needs} is not installed")
    return found


def test_a_resumed_loop_comes_to_the_same_bits(example: Example, tmp_path: Path) -> None:
    at = random.Random(5).sample(range(1, 2 * PER_EPOCH), 2)
    report = rehearse(
        [sys.executable, str(example.home / "train.py")],
        steps=2 * PER_EPOCH + 3,
        at=at,
        env=quiet_environment(),
        cwd=tmp_path,
    )
    assert report.same, report.text
    assert set(report.parts) >= example.parts
    assert report.metrics["loss"] == report.metrics["lr"] == 2 * PER_EPOCH + 3
    assert report.metrics[example.metric] == 4


def test_a_stop_ends_the_loop_at_the_next_step(example: Example, tmp_path: Path) -> None:
    with example_program(example.home, tmp_path, {"EPOCHS": "1000"}) as program:
        program.wait_for_step(20)
        ordered = program.order(Stop.FINISH_PHASE)
        assert program.end() == 0, program.stderr
        losses = program.series("loss")
        assert sum(at > ordered for _, at, values in program.points() if "loss" in values) <= 1
        assert program.loop == Loop.STOPPED
        assert program.saved()[0] == program.step == len(losses) == max(losses) + 1
        assert program.stdout.startswith(example.prints)  # what stands behind the loop has run
        assert program.control[Word.TOTAL] == 1000 * PER_EPOCH
        assert program.control[Word.BATCHES] == PER_EPOCH
        assert (program.control[Word.EPOCH], program.control[Word.BATCH]) == divmod(program.step, PER_EPOCH)
        assert len(program.events("evaluation")) == program.control[Word.EVALUATIONS] >= 1
        assert set(program.series(example.metric)) <= {16 * n - 1 for n in range(1, 1 + program.step // 16)}


def test_a_rule_ends_the_loop_and_says_why(example: Example, tmp_path: Path) -> None:
    rule = json.dumps([{"plateau": {"metric": example.metric, "patience": 1, "min_delta": 100}}])
    with example_program(example.home, tmp_path, {ENV_STOP_WHEN: rule}) as program:
        assert program.end() == 0, program.stderr
        assert program.loop == Loop.STOPPED
        assert program.step == 32
        (told,) = program.events("stop_reasons")
        assert [(each["reason"], each["decisive"]) for each in told["reasons"]] == [("early_stopped", True)]
        assert program.saved()[0] == 32
