"""Lightning's own Trainer in real processes: stopped, paused and resumed, ended by a rule."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from whistlestop.channel.layout import ENV_STOP_WHEN, Loop, Word
from whistlestop.domain.stops import Stop
from whistlestop.runner.rehearsal import rehearse
from whistlestop.testing.example_program import example_program, quiet_environment
from whistlestop.testing.missing import missing

EXAMPLE = Path(__file__).parents[2] / "examples" / "lightning"
PER_EPOCH = 32


@pytest.fixture(autouse=True)
def _lightning() -> None:
    if importlib.util.find_spec("lightning") is None:
        missing("lightning is not installed")


def test_a_resumed_fit_comes_to_the_same_bits(tmp_path: Path) -> None:
    # Behind the last batch of an epoch: its validation and its end are still to come. Everywhere else, with every kind
    # of loader: test_lightning_resume.py.
    report = rehearse(
        [sys.executable, str(EXAMPLE / "train.py")],
        steps=PER_EPOCH + 13,
        at=PER_EPOCH,
        env=quiet_environment(EPOCHS="4"),
        cwd=tmp_path,
    )
    assert report.same, report.text
    assert {"lightning", "place"} <= set(report.parts)
    assert report.metrics["loss_step"] == PER_EPOCH + 13
    assert report.metrics["loss_epoch"] == report.metrics["val_loss"] == 1


def test_a_stop_ends_fit_at_the_next_batch(tmp_path: Path) -> None:
    with example_program(EXAMPLE, tmp_path, {"EPOCHS": "100000"}) as program:
        program.wait_for_step(PER_EPOCH + 5)
        ordered = program.order(Stop.FINISH_PHASE)
        assert program.end() == 0, program.stderr
        steps = program.series("loss_step")
        assert sum(at > ordered for _, at, values in program.points() if "loss_step" in values) <= 1
        assert program.loop == Loop.STOPPED
        assert program.saved()[0] == program.step == len(steps) == max(steps) + 1
        assert program.stdout.startswith("val_loss")  # what stands behind fit() has run
        assert program.control[Word.TOTAL] == 100000 * PER_EPOCH
        assert program.control[Word.BATCHES] == PER_EPOCH
        assert (program.control[Word.EPOCH], program.control[Word.BATCH]) == divmod(program.step, PER_EPOCH)
        validations = program.series("val_loss")
        assert list(validations) == [PER_EPOCH * n - 1 for n in range(1, len(validations) + 1)]
        # A stop behind an epoch's last batch cuts its validation short: the epoch has its mean, but no result.
        epochs = list(program.series("loss_epoch"))
        cut = program.step % PER_EPOCH == 0 and len(epochs) == len(validations) + 1
        assert epochs == [*validations, *([program.step - 1] if cut else [])]
        begun = program.control[Word.EVALUATIONS]
        assert len(program.events("evaluation")) == begun
        assert 1 <= len(validations) <= begun <= len(epochs)


@pytest.mark.long
def test_a_rule_ends_fit_and_says_why(tmp_path: Path) -> None:
    rule = json.dumps([{"below": {"metric": "val_loss", "value": 1000.0}}])
    with example_program(EXAMPLE, tmp_path, {ENV_STOP_WHEN: rule}) as program:
        assert program.end() == 0, program.stderr
        assert program.loop == Loop.STOPPED
        assert program.step == PER_EPOCH  # its validation was enough
        reasons = program.events("stop_reasons")[0]["reasons"]
        assert "val_loss" in reasons[0]["text"]
        assert program.saved()[0] == program.step
