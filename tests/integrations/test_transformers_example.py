"""The transformers Trainer in real processes: stopped, paused and resumed, ended by a rule."""

import importlib.util
import json
import random
import sys
from pathlib import Path

import pytest

from whistlestop.channel.layout import ENV_STOP_WHEN, Loop, Word
from whistlestop.domain.stops import Stop
from whistlestop.runner.rehearsal import rehearse
from whistlestop.testing.example_program import example_program, quiet_environment
from whistlestop.testing.missing import missing

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformers"
PER_EPOCH = 32
QUIET = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(autouse=True)
def _transformers() -> None:
    if importlib.util.find_spec("transformers") is None:
        missing("transformers is not installed")


def test_a_resumed_trainer_comes_to_the_same_bits(tmp_path: Path) -> None:
    # In the middle of an epoch; where one ends: test_transformers_saves.py.
    report = rehearse(
        [sys.executable, str(EXAMPLE / "train.py")],
        steps=PER_EPOCH + 13,
        at=random.Random(2).randrange(1, PER_EPOCH),
        env=quiet_environment(**QUIET),
        cwd=tmp_path,
        ignore=["*_runtime", "*_per_second"],  # the Trainer keeps how long each evaluation took
    )
    assert report.same, report.text
    assert "trainer" in report.parts
    assert report.metrics["loss"] == report.metrics["learning_rate"] == PER_EPOCH + 13
    assert report.metrics["eval_loss"] == 4
    assert list((tmp_path / "trainer").iterdir()) == []  # the Trainer's own copies are gone


def test_a_stop_ends_the_trainer_at_the_next_step(tmp_path: Path) -> None:
    with example_program(EXAMPLE, tmp_path, {"EPOCHS": "1000", **QUIET}) as program:
        program.wait_for_step(PER_EPOCH + 5)
        ordered = program.order(Stop.FINISH_PHASE)
        assert program.end() == 0, program.stderr
        losses = program.series("loss")
        # The Trainer logs a step behind its end: that of the step before the next one may come after the order, too.
        assert sum(at > ordered for _, at, values in program.points() if "loss" in values) <= 2
        assert program.loop == Loop.STOPPED
        assert program.saved()[0] == program.step == len(losses) == max(losses) + 1
        assert program.stdout.startswith("eval_loss")  # what stands behind train() has run
        assert program.control[Word.TOTAL] == 1000 * PER_EPOCH
        assert program.control[Word.BATCHES] == PER_EPOCH
        assert (program.control[Word.EPOCH], program.control[Word.BATCH]) == divmod(program.step, PER_EPOCH)
        evaluations = program.series("eval_loss")
        assert list(evaluations)[:3] == [9, 19, 29]
        assert len(program.events("evaluation")) == program.control[Word.EVALUATIONS] >= 3


@pytest.mark.long
def test_a_rule_ends_the_trainer_and_says_why(tmp_path: Path) -> None:
    rule = json.dumps([{"plateau": {"metric": "eval_loss", "patience": 1, "min_delta": 100}}])
    with example_program(EXAMPLE, tmp_path, {ENV_STOP_WHEN: rule, **QUIET}) as program:
        assert program.end() == 0, program.stderr
        assert program.loop == Loop.STOPPED
        (told,) = program.events("stop_reasons")
        assert [(each["reason"], each["decisive"]) for each in told["reasons"]] == [("early_stopped", True)]
        assert program.saved()[0] == program.step == 21  # the step behind the evaluation that decided it
