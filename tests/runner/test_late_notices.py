"""Which came first, the notice or the program's end: with a real process, moment by moment."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from whistlestop.channel.control import Control
from whistlestop.channel.layout import Loop, Word
from whistlestop.domain.stops import Stop
from whistlestop.runner.climb import Climber
from whistlestop.runner.fitting import Fitting
from whistlestop.runner.ladder import Times
from whistlestop.runner.notices import Kind, Notice
from whistlestop.runner.preempted import LEAST, USUAL_GRACE, Preemption
from whistlestop.runner.program import Program
from whistlestop.wire.frames import Order

GOES = Notice("aws", Kind.FINAL, 4e9, "AWS takes it back")


class Watched:
    """A program, and what its runner would have heard. It has not come to the SDK."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        self.pidfd = os.pidfd_open(self.process.pid)
        self.told: list[str] = []
        self.control = control = Control.create(directory / "control")
        program = SimpleNamespace(pidfd=self.pidfd, started_at=1.0, signal=self._signal)
        times = Times(flag=1, interrupt=1, terminate=1, attach=1, kill_save=1)
        self.climber = Climber(control, times, task=False, tell=self._tell, kill=self.process.kill)
        self.preemption = Preemption(
            control,
            cast("Program", program),
            self.climber,
            Fitting(control, None),
            tell=self._tell,
            kill=self.process.kill,
            cancel=lambda: None,
            busy=lambda: False,
            answering=lambda: 0.0,
        )

    def _tell(self, kind: str, text: str, /, **data: Any) -> None:
        self.told.append(text)

    def _signal(self, number: int) -> None:
        os.kill(self.process.pid, number)  # Popen would reap it, and its number might belong to others then

    def dies_of(self, number: signal.Signals) -> int:
        """Its status, as the kernel has it; nobody has told the runner yet."""
        self._signal(number)
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        return int(number)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.process.kill()
    made.process.wait()
    os.close(made.pidfd)


def test_a_notice_that_comes_behind_the_end_did_not_cause_it(watched: Watched) -> None:
    async def act() -> str:
        status = watched.dies_of(signal.SIGKILL)
        watched.preemption.take(GOES)
        return await watched.preemption.words(status)

    assert asyncio.run(act()) == ""
    assert watched.preemption.notice is None
    assert watched.told == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_notice_right_behind_the_signal_has_the_same_cause(watched: Watched, number: signal.Signals) -> None:
    """A cluster may signal every process of a job."""

    async def act() -> str:
        status = watched.dies_of(number)
        watched.preemption.ended()
        asyncio.get_running_loop().call_later(0.02, watched.preemption.take, GOES)
        return await watched.preemption.words(status)

    assert asyncio.run(act()) == "AWS takes it back"


def test_advice_behind_a_sigterm_is_not_its_cause(watched: Watched) -> None:
    async def act() -> str:
        status = watched.dies_of(signal.SIGTERM)
        watched.preemption.take(replace(GOES, kind=Kind.ADVISORY))
        return await watched.preemption.words(status)

    assert asyncio.run(act()) == ""


def test_nobody_waits_long_for_a_notice_that_does_not_come(watched: Watched) -> None:
    assert asyncio.run(watched.preemption.words(watched.dies_of(signal.SIGTERM))) == ""


def test_a_notice_that_was_there_first_counts_whatever_ends_the_program(watched: Watched) -> None:
    async def act() -> str:
        watched.preemption.take(GOES)
        status = watched.dies_of(signal.SIGKILL)
        watched.preemption.ended()
        return await watched.preemption.words(status)

    assert asyncio.run(act()) == "AWS takes it back"


@pytest.mark.parametrize(
    ("said", "seconds"), [("0", LEAST), ("7", 7.0), ("nan", USUAL_GRACE), ("-1", USUAL_GRACE), ("soon", USUAL_GRACE)]
)
def test_the_grace_of_a_signal_is_what_was_said_if_it_can_be(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, said: str, seconds: float
) -> None:
    monkeypatch.setenv("WHISTLE_PREEMPT_GRACE", said)

    async def act() -> None:
        watched.preemption.listen(asyncio.get_running_loop())
        signal.raise_signal(signal.SIGTERM)
        while watched.preemption.notice is None:
            await asyncio.sleep(0.001)
        watched.preemption.ended()

    asyncio.run(act())
    assert watched.control.seconds(Word.PREEMPT_DEADLINE) == pytest.approx(time.time() + seconds, abs=0.5)


@pytest.mark.parametrize(("ahead", "seconds"), [(60.0, 60.0), (900.0, 900.0), (-60.0, USUAL_GRACE)])
def test_slurms_end_counts_unless_it_is_over(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, ahead: float, seconds: float
) -> None:
    """It is as it was when the job began: it may have been given more time since."""
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + ahead)))

    async def act() -> None:
        watched.preemption.listen(asyncio.get_running_loop())
        signal.raise_signal(signal.SIGUSR2)
        while watched.preemption.notice is None:
            await asyncio.sleep(0.001)
        watched.preemption.ended()

    asyncio.run(act())
    assert watched.control.seconds(Word.PREEMPT_DEADLINE) == pytest.approx(time.time() + seconds, abs=1.5)


@pytest.mark.parametrize("step", [-100.0, 100.0])
def test_a_clock_that_is_set_while_the_notice_runs_changes_nothing(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    watched.control[Word.ATTACHED] = 1

    async def act() -> None:
        asked = Order(seq=1, preempt_deadline=time.time() + 20)
        watched.preemption.on_order(asked)
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + step)
        watched.preemption.on_order(asked)  # it stands, and is sent again
        assert watched.preemption.patience() == pytest.approx(19.5, abs=1)
        watched.preemption.ended()

    asyncio.run(act())
    assert len(watched.told) == 1


def test_a_pause_behind_a_notice_in_which_no_save_fits_does_not_ask_for_one(watched: Watched) -> None:
    control = watched.control
    control[Word.ATTACHED], control[Word.LOOP], control[Word.DURABLE_STEP] = 1, Loop.INSIDE, 6
    control.set_seconds(Word.SAVE_SECONDS, 30.0)

    async def act() -> None:
        watched.preemption.look()
        watched.preemption.take(replace(GOES, deadline=time.time() + 10))
        assert control[Word.PAUSE_LATEST] == 1
        watched.climber.take(Order(seq=1, stop=Stop.PAUSE, actor="ann"))
        watched.preemption.ended()

    asyncio.run(act())
    assert control[Word.PAUSE_LATEST] == 1
