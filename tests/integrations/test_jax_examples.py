"""A loop in JAX with Flax, Optax and Orbax, in real processes."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

from whistlestop.channel.layout import Loop, Word
from whistlestop.domain.stops import Stop
from whistlestop.runner.rehearsal import rehearse
from whistlestop.testing.example_program import example_program, quiet_environment
from whistlestop.testing.missing import missing

EXAMPLE = Path(__file__).parents[2] / "examples" / "jax"
PER_EPOCH = 32


@pytest.fixture(autouse=True)
def _installed() -> None:
    for name in ("jax", "flax", "optax", "orbax"):
        if importlib.util.find_spec(name) is None:
            missing(f"{name} is not installed")


def test_a_resumed_loop_comes_to_the_same_bits(tmp_path: Path) -> None:
    report = rehearse(
        [sys.executable, str(EXAMPLE / "train.py")],
        steps=3 * PER_EPOCH + 10,
        at=random.Random(5).randrange(PER_EPOCH + 1, 2 * PER_EPOCH),  # in mid-epoch
        env=quiet_environment(EPOCHS="5"),
        cwd=tmp_path,
    )
    assert report.same, report.text
    assert "orbax" in report.parts
    assert report.metrics == {"loss": 3 * PER_EPOCH + 10, "val_loss": 3}


@pytest.mark.long  # the loop is the user's own, as in PyTorch and TensorFlow
def test_a_stop_ends_the_loop_at_the_next_step(tmp_path: Path) -> None:
    with example_program(EXAMPLE, tmp_path, {"EPOCHS": "100000"}) as program:
        program.wait_for_step(PER_EPOCH + 5)
        ordered = program.order(Stop.FINISH_PHASE)
        assert program.end() == 0, program.stderr
        assert sum(at > ordered for _, at, values in program.points() if "loss" in values) <= 1
        assert program.loop == Loop.STOPPED
        assert program.saved()[0] == program.step == len(program.series("loss"))
        assert program.stdout.startswith("accuracy on held-out data")  # what stands behind the loop has run
        assert program.control[Word.TOTAL] == 100000 * PER_EPOCH
        assert (program.control[Word.EPOCH], program.control[Word.BATCH]) == divmod(program.step, PER_EPOCH)
        assert len(program.events("evaluation")) == program.control[Word.EVALUATIONS] == len(program.series("val_loss"))


@pytest.mark.long
def test_a_rule_ends_the_loop_and_its_reason_is_told(tmp_path: Path) -> None:
    rules = '[{"below": {"metric": "loss", "value": 0.9}}]'
    with example_program(EXAMPLE, tmp_path, {"EPOCHS": "50", "WHISTLE_STOP_WHEN": rules}) as program:
        assert program.end() == 0, program.stderr
        losses = list(program.series("loss").values())
        assert program.loop == Loop.STOPPED
        assert program.step == len(losses) < 50 * PER_EPOCH
        assert any(loss < 0.9 for loss in losses)  # looked at when it is computed, a moment later
        (reasons,) = program.events("stop_reasons")
        (reason,) = reasons["reasons"]
        assert reason["decisive"]
        assert "loss" in reason["text"]
