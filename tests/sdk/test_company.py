"""Several processes, or several runs of one process, that all believe to be rank 0."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sdk.conftest import unhurried

import whistlestop
from whistlestop.channel import layout
from whistlestop.channel.control import Control
from whistlestop.channel.layout import Word
from whistlestop.domain.errors import Refused

Channel = Any  # tests/sdk/conftest.py
Wait = Callable[[Callable[[], bool], str], None]

TRAIN = """
import sys, whistlestop
state = {"who": sys.argv[0]}
with whistlestop.run(every=1) as run:
    run.track(state=state)
    for step in run.steps(5):
        run.log(loss=1.0)
        if step == 2:
            print("inside", flush=True)
            sys.stdin.readline()
"""


def test_two_processes_without_a_rank_leave_the_checkpoints_of_one(
    channel: Channel, program: Callable[..., Any]
) -> None:
    leader = program(TRAIN, channel.env)
    assert leader.line() == "inside"
    other = program(TRAIN, channel.env)
    assert other.line() == "inside"
    assert channel.control[Word.PID] == leader.process.pid
    other.process.stdin.write("\n")
    assert other.end() == 0, other.stderr
    assert other.stderr.count("is taken") == 1
    assert channel.control[Word.STEP] == 2
    leader.process.stdin.write("\n")
    assert leader.end() == 0, leader.stderr
    assert channel.steps() == [5, 4, 3, 2, 1]
    assert [each["step"] for each in channel.events("checkpoint")] == [1, 2, 3, 4, 5]
    assert [step for step, _ in channel.points()] == [0, 1, 2, 3, 4]
    for each in channel.store.list("train"):
        channel.store.verify(each)


def test_a_second_run_of_one_process_warns_and_harms_nothing(
    attached: Channel, capfd: pytest.CaptureFixture[str]
) -> None:
    with whistlestop.run(every=1) as first:
        first_steps = iter(first.steps(3))
        next(first_steps)
        first.log(loss=1.0)
        with whistlestop.run(every=1) as second:
            for _ in second.steps(5):
                second.log(loss=2.0)
        assert capfd.readouterr().err.count("is taken") == 1
        assert attached.control[Word.STEP] == 0
        for _ in unhurried(first, first_steps):
            first.log(loss=1.0)
    assert attached.points() == [(step, {"loss": 1.0}) for step in range(3)]
    assert attached.steps() == [3, 2, 1]


def test_without_a_runner_two_runs_of_one_process_do_not_share_a_training(alone: Path) -> None:
    with whistlestop.run("demo") as first:
        first_steps = first.steps(3)
        with whistlestop.run("demo") as second, pytest.raises(Refused, match="another"):
            second.steps(3)
        list(first_steps)


def test_a_resume_that_loads_nothing_says_so(attached: Channel, capfd: pytest.CaptureFixture[str]) -> None:
    for total in (3, 5):
        with whistlestop.run() as run:
            list(run.steps(total))
    assert capfd.readouterr().err.count("nothing of its checkpoint is loaded") == 1
    (message,) = attached.events("message")
    assert "goes on at step 3" in message["text"]


def test_a_program_that_restores_by_itself_is_not_warned(attached: Channel) -> None:
    for total in (3, 5):
        with whistlestop.run() as run:
            run.restore()
            list(run.steps(total))
    assert attached.events("message") == []


def test_epochs_of_unknown_length_are_not_waited_for_in_silence(attached: Channel) -> None:
    with whistlestop.run(every="1 epoch") as run:
        list(run.steps(3))
    (message,) = attached.events("message")
    assert "per_epoch" in message["text"]
    with whistlestop.run(every="1 epoch") as run:
        run.restore()
        list(run.steps(5, per_epoch=2))
    assert len(attached.events("message")) == 1


def test_importing_is_told_to_the_runner(tmp_path: Path) -> None:
    control = Control.create(tmp_path / layout.CONTROL_FILE)
    env = {layout.ENV_CHANNEL: str(tmp_path)}
    subprocess.run([sys.executable, "-c", "import whistlestop"], env=env, check=True)
    assert (control[Word.IMPORTED], control[Word.ATTACHED], control[Word.MAGIC]) == (1, 0, layout.MAGIC)
    assert [index for index, word in enumerate(control.words) if word] == [Word.MAGIC, Word.IMPORTED]
    control.close()


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_importing_beside_a_broken_channel_is_silent_and_touches_nothing(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / layout.CONTROL_FILE).write_bytes(content)
    child = subprocess.run(
        [sys.executable, "-c", "import whistlestop"],
        env={layout.ENV_CHANNEL: str(tmp_path)},
        capture_output=True,
        check=True,
    )
    assert child.stderr == b""
    assert [each.read_bytes() for each in tmp_path.iterdir()] == ([] if content is None else [content])


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_a_summary_of_anything_arrives(attached: Channel) -> None:
    with whistlestop.run() as run:
        run.summary.update(nan=float("nan"), huge=10**400, low=-(10**5000), big=2**70, fine=7, silent=Silent())
        run.summary["odd\udcff"] = "file-\udcff"
        list(run.steps(1))
    values = attached.events("summary")[0]["values"]
    assert "no words" in values.pop("silent")
    assert values == {
        "nan": "nan",
        "huge": "inf",
        "low": "-inf",
        "big": float(2**70),
        "fine": 7,
        "odd?": "file-?",
    }
