"""Loops in TensorFlow, alone and with MirroredStrategy on two logical devices, in real processes."""

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

EXAMPLES = Path(__file__).parents[2] / "examples"
PER_EPOCH = 32
MIDDLE = random.Random(3).randrange(PER_EPOCH + 1, 2 * PER_EPOCH)  # of an epoch


@pytest.fixture(autouse=True)
def _installed() -> None:
    for name in ("keras", "tensorflow"):
        if importlib.util.find_spec(name) is None:
            missing(f"{name} is not installed")


@pytest.mark.parametrize(
    ("example", "at", "epochs"),
    [
        ("tensorflow", MIDDLE, 3),
        pytest.param("tensorflow_mirrored", PER_EPOCH, 1, marks=pytest.mark.long),
    ],  # in mid-epoch, and between two
)
def test_a_resumed_loop_comes_to_the_same_bits(example: str, at: int, epochs: int, tmp_path: Path) -> None:
    steps = epochs * PER_EPOCH + 10
    report = rehearse(
        [sys.executable, str(EXAMPLES / example / "train.py")],
        steps=steps,
        at=at,
        env=quiet_environment(EPOCHS="5"),
        cwd=tmp_path,
        ignore=["data/*"],  # an iterator's file is never the same; where it is shows in the curves
    )
    assert report.same, report.text
    assert report.steps == steps  # of 5 epochs: stopped there
    assert report.parts["model"] > 3
    assert report.metrics == {"loss": steps, "val_loss": epochs}


def test_a_stop_ends_the_loop_at_the_next_step(tmp_path: Path) -> None:
    with example_program(EXAMPLES / "tensorflow", tmp_path, {"EPOCHS": "100000"}) as program:
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
    rules = '[{"plateau": {"metric": "val_loss", "patience": 1, "min_delta": 100}}]'
    with example_program(EXAMPLES / "tensorflow", tmp_path, {"EPOCHS": "50", "WHISTLE_STOP_WHEN": rules}) as program:
        assert program.end() == 0, program.stderr
        assert program.loop == Loop.STOPPED
        assert program.step == 2 * PER_EPOCH == program.saved()[0]
        (reasons,) = program.events("stop_reasons")
        assert [(each["reason"], each["decisive"]) for each in reasons["reasons"]] == [("early_stopped", True)]
        assert program.stdout.startswith("accuracy on held-out data")
