"""Keras's own fit(), on both backends, in real processes: stopped, paused and resumed, ended by a rule."""

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

EXAMPLE = Path(__file__).parents[2] / "examples" / "keras"
PER_EPOCH = 32
MIDDLE = random.Random(4).randrange(PER_EPOCH + 1, 2 * PER_EPOCH)  # of an epoch


def need(*names: str) -> None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            missing(f"{name} is not installed")


@pytest.fixture(params=["tensorflow", pytest.param("torch", marks=pytest.mark.long)])
def backend(request: pytest.FixtureRequest) -> str:
    need("keras", request.param)
    return str(request.param)


def test_a_resumed_fit_comes_to_the_same_bits(backend: str, tmp_path: Path) -> None:
    # In the middle of an epoch; and behind the last batch of one, when its evaluation is still to come.
    at = MIDDLE if backend == "tensorflow" else 2 * PER_EPOCH  # each of them with each backend: test_keras_fit.py
    report = rehearse(
        [sys.executable, str(EXAMPLE / "train.py")],
        steps=3 * PER_EPOCH + 10,
        at=at,
        env=quiet_environment(KERAS_BACKEND=backend, EPOCHS="5"),
        cwd=tmp_path,
    )
    assert report.same, report.text
    assert {"model", "optimizer", "fit", "rng"} <= set(report.parts)
    assert report.metrics["loss"] == 3 * PER_EPOCH + 10
    assert report.metrics["val_loss"] == 3


def test_a_stop_ends_fit_at_the_next_batch(tmp_path: Path) -> None:
    need("keras", "tensorflow")  # with PyTorch: the rule below
    with example_program(EXAMPLE, tmp_path, {"EPOCHS": "100000", "KERAS_BACKEND": "tensorflow"}) as program:
        program.wait_for_step(PER_EPOCH + 5)
        ordered = program.order(Stop.FINISH_PHASE)
        assert program.end() == 0, program.stderr
        steps = program.series("loss")
        assert sum(at > ordered for _, at, values in program.points() if "loss" in values) <= 1
        assert program.loop == Loop.STOPPED
        assert program.saved()[0] == program.step == len(steps) == max(steps) + 1
        assert program.stdout.startswith("accuracy on held-out data")  # what stands behind fit() has run
        assert program.control[Word.TOTAL] == 100000 * PER_EPOCH
        assert program.control[Word.BATCHES] == PER_EPOCH
        assert (program.control[Word.EPOCH], program.control[Word.BATCH]) == divmod(program.step, PER_EPOCH)
        evaluations = program.events("evaluation")
        assert len(evaluations) == program.control[Word.EVALUATIONS] >= 1
        whole = program.series("val_loss")
        assert (
            list(whole) == list(program.series("epoch_loss")) == [PER_EPOCH * n - 1 for n in range(1, len(whole) + 1)]
        )
        assert program.series("epoch_loss")[PER_EPOCH - 1] == steps[PER_EPOCH - 1]


@pytest.mark.long
def test_a_rule_ends_fit_in_mid_epoch_and_its_reason_is_told(tmp_path: Path) -> None:
    need("keras", "torch")
    rules = '[{"below": {"metric": "loss", "value": 0.8}}]'
    env = {"KERAS_BACKEND": "torch", "EPOCHS": "50", "WHISTLE_STOP_WHEN": rules}
    with example_program(EXAMPLE, tmp_path, env) as program:
        assert program.end() == 0, program.stderr
        losses = program.series("loss")
        assert program.loop == Loop.STOPPED
        assert program.step == len(losses) == program.saved()[0]
        assert program.step % PER_EPOCH
        assert [step for step, loss in losses.items() if loss < 0.8] == [program.step - 1]
        # Keras evaluates after a stop, too: one batch of that is not what the name says.
        assert len(program.series("val_loss")) == program.step // PER_EPOCH == program.control[Word.EVALUATIONS]
        (reasons,) = program.events("stop_reasons")
        (reason,) = reasons["reasons"]
        assert reason["decisive"]
        assert "loss" in reason["text"]
        assert program.stdout.startswith("accuracy on held-out data")
