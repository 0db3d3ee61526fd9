"""Under a runner: the test holds the runner's end of the channel."""

import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sdk.conftest import unhurried

import whistlestop
from whistlestop.channel import mapping
from whistlestop.channel.layout import EXIT_PAUSED, Loop, ProgramStage, Word
from whistlestop.domain.stops import Stop
from whistlestop.sdk import staging

Channel = Any  # tests/sdk/conftest.py
Wait = Callable[[Callable[[], bool], str], None]

ENDLESS = """
import whistlestop
state = {"sum": 0}
with whistlestop.run() as run:
    run.track(state=state)
    for step in run.steps(total=10**9, per_epoch=100):
        state["sum"] += step
        run.log(loss=1.0 / (step + 1), lr=0.1)
    print("behind", flush=True)
"""


def order(channel: Channel, level: Stop, seq: int = 1) -> None:
    channel.control[Word.STOP_LEVEL] = level
    channel.control[Word.STOP_SEQ] = seq


def started(channel: Channel, wait: Wait) -> None:
    wait(lambda: channel.control[Word.STEP] > 20, "some steps")


def test_the_control_block_tells_where_the_program_is(attached: Channel) -> None:
    control = attached.control
    with whistlestop.run() as run:
        assert (control[Word.ATTACHED], control[Word.PID]) == (1, os.getpid())
        assert (control[Word.LOOP], control[Word.STAGE]) == (Loop.NONE, ProgramStage.STARTING)
        for step in run.steps(total=10, per_epoch=4):
            assert control[Word.STEP] == step
            assert (control[Word.EPOCH], control[Word.BATCH]) == (step.epoch, step.batch)
            assert (control[Word.TOTAL], control[Word.BATCHES]) == (10, 4)
            assert (control[Word.LOOP], control[Word.STAGE]) == (Loop.INSIDE, ProgramStage.TRAINING)
            assert abs(control.seconds(Word.PROGRESS_AT) - time.time()) < 60
            if step == 5:
                with run.evaluating():
                    assert control[Word.STAGE] == ProgramStage.EVALUATING
        assert (control[Word.LOOP], control[Word.STAGE]) == (Loop.FINISHED, ProgramStage.FINISHING)
    assert (control[Word.STEP], control[Word.EPOCH], control[Word.EVALUATIONS]) == (10, 2, 1)
    assert (control[Word.SAVING], control[Word.SAVED_STEP]) == (0, 11)
    assert control.seconds(Word.SAVE_SECONDS) > 0
    assert control.seconds(Word.LOOP_STARTED_AT) > 0
    assert [each["step"] for each in attached.events("evaluation")] == [5]


def test_the_end_of_all_steps_is_told_with_its_checkpoint(attached: Channel) -> None:
    with whistlestop.run(every=4) as run:
        run.summary["best"] = 0.25
        for step in run.steps(10):
            run.log(loss=float(step), bad=math.nan)
    assert attached.steps() == [10, 8, 4]
    told = attached.events("checkpoint")
    assert [each["step"] for each in told] == [4, 8, 10]
    assert [each["dir"] for each in told] == [str(each.path) for each in reversed(attached.store.list("train"))]
    newest = attached.store.list("train")[0]
    assert newest.meta["metrics"] == {"loss": 9.0, "bad": None}
    assert (newest.attempt_id, newest.attempt_number) == (attached.attempt, 1)
    (reasons,) = attached.events("stop_reasons")
    assert reasons["reasons"] == [{"reason": "all_steps_done", "decisive": True, "text": "all 10 steps done"}]
    assert attached.events("summary")[0]["values"] == {"best": 0.25}


def test_with_a_runner_the_program_removes_no_checkpoint(attached: Channel) -> None:
    with whistlestop.run(every=1, keep=1) as run:
        list(unhurried(run, run.steps(5)))
    assert attached.steps() == [5, 4, 3, 2, 1]


def test_the_specs_cadence_wins_over_the_programs(attached: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHISTLE_CHECKPOINT_EVERY", "3 steps,1 epoch")
    with whistlestop.run(every=1) as run:
        list(unhurried(run, run.steps(8, per_epoch=4)))
    assert attached.steps() == [8, 6, 4, 3]


def test_a_stop_ends_the_loop_at_the_next_boundary_and_runs_what_is_behind(attached: Channel) -> None:
    with whistlestop.run() as run:
        for step in run.steps(100):
            if step == 6:
                assert not run.should_stop
                order(attached, Stop.FINISH_PHASE, seq=7)
                assert run.should_stop
        assert step == 6
        assert attached.control[Word.LOOP] == Loop.STOPPED
    assert attached.control[Word.ACK_SEQ] == 7
    assert attached.steps() == [7]


def test_a_stop_that_came_before_the_loop_leaves_a_checkpoint_of_step_0(attached: Channel) -> None:
    order(attached, Stop.FINISH_PHASE)
    with whistlestop.run() as run:
        run.track(state={"a": 1})
        assert list(run.steps(100)) == []
    assert attached.steps() == [0]
    assert attached.control[Word.LOOP] == Loop.STOPPED


def test_a_stop_at_a_step_waits_for_that_step(attached: Channel) -> None:
    attached.control[Word.STOP_AT_STEP] = 5
    order(attached, Stop.FINISH_PHASE)
    with whistlestop.run() as run:
        assert list(run.steps(100)) == [0, 1, 2, 3, 4]
    assert attached.steps() == [5]


def test_a_checkpoint_on_request_comes_once_per_request(attached: Channel) -> None:
    with whistlestop.run() as run:
        for step in unhurried(run, run.steps(10)):
            if step in (2, 5):
                attached.control[Word.CHECKPOINT_NOW] += 1
            if step == 7:
                run.save(now=False)
    assert attached.steps() == [10, 8, 6, 3]


def test_a_pause_saves_and_leaves_by_its_exit_code(channel: Channel, program: Callable[..., Any], wait: Wait) -> None:
    child = program(ENDLESS, channel.env)
    started(channel, wait)
    order(channel, Stop.PAUSE)
    assert child.end() == EXIT_PAUSED, child.stderr
    assert "behind" not in child.stdout
    assert channel.control[Word.LOOP] == Loop.PAUSED
    assert channel.steps() == [channel.control[Word.STEP]]
    assert len(channel.points()) == channel.control[Word.STEP]
    assert "Traceback" not in child.stderr


def test_a_pause_from_the_last_checkpoint_saves_nothing(
    channel: Channel, program: Callable[..., Any], wait: Wait
) -> None:
    child = program(ENDLESS, channel.env)
    started(channel, wait)
    channel.control[Word.PAUSE_LATEST] = 1
    order(channel, Stop.PAUSE)
    assert child.end() == EXIT_PAUSED
    assert channel.steps() == []


def test_notice_of_preemption_saves_and_leaves(channel: Channel, program: Callable[..., Any], wait: Wait) -> None:
    child = program(ENDLESS, channel.env)
    started(channel, wait)
    channel.control.set_seconds(Word.PREEMPT_DEADLINE, time.time() + 30)
    assert child.end() == EXIT_PAUSED
    assert channel.steps() == [channel.control[Word.STEP]]


def test_a_kill_leaves_at_the_boundary_without_saving(
    channel: Channel, program: Callable[..., Any], wait: Wait
) -> None:
    child = program(ENDLESS, channel.env)
    started(channel, wait)
    order(channel, Stop.KILL)
    assert child.end() == 137
    assert channel.steps() == []
    assert "behind" not in child.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_of_the_ladder_is_the_stop_that_was_ordered(
    channel: Channel, program: Callable[..., Any], wait: Wait, number: signal.Signals
) -> None:
    child = program(ENDLESS.replace("state[", "run.should_stop; state["), channel.env)
    started(channel, wait)
    order(channel, Stop.FINISH_PHASE)
    try:
        child.send(number)
        child.send(number)
    except ProcessLookupError:
        pass
    assert child.end() == 0, child.stderr
    assert "behind" in child.stdout
    assert channel.control[Word.LOOP] == Loop.STOPPED


def test_a_signal_that_nobody_ordered_saves_and_is_not_taken_for_the_end(
    channel: Channel, program: Callable[..., Any], wait: Wait
) -> None:
    child = program(ENDLESS, channel.env)
    started(channel, wait)
    child.send(signal.SIGTERM)
    assert child.end() == EXIT_PAUSED
    assert channel.steps() == [channel.control[Word.STEP]]


def test_sigkill_right_after_a_log_loses_nothing(channel: Channel, program: Callable[..., Any]) -> None:
    child = program(
        """
        import os, signal, whistlestop
        with whistlestop.run() as run:
            for step in run.steps(30_000):
                run.log(a=step, b=2.0, c=3.0)
                if step.last:
                    os.kill(os.getpid(), signal.SIGKILL)
        """,
        channel.env,
    )
    assert child.end() == -signal.SIGKILL
    assert [step for step, _ in channel.points()] == list(range(30_000))
    assert channel.control[Word.LOOP] == Loop.INSIDE


def test_a_crash_in_the_loop_is_not_an_end(attached: Channel) -> None:
    def crash() -> None:
        with whistlestop.run() as run:
            for step in run.steps(10):
                if step == 4:
                    raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        crash()
    assert (attached.control[Word.LOOP], attached.control[Word.STEP]) == (Loop.INSIDE, 4)
    assert attached.steps() == []
    assert attached.events("stop_reasons") == []


def test_a_break_is_told_as_the_programs_own_end(attached: Channel) -> None:
    with whistlestop.run() as run:
        for step in run.steps(10):
            if step == 4:
                break
        assert attached.control[Word.LOOP] == Loop.LEFT
    assert attached.steps() == [4]  # whether the body of step 4 had done its work nobody knows
    assert attached.events("stop_reasons")[0]["reasons"][0]["reason"] == "custom"


@pytest.mark.parametrize(
    ("reason", "told", "text"),
    [("early_stopped", "early_stopped", "early stopped"), ("good enough", "custom", "good enough")],
)
def test_the_program_may_end_its_loop_with_a_reason(attached: Channel, reason: str, told: str, text: str) -> None:
    with whistlestop.run() as run:
        for step in run.steps(10):
            if step == 4:
                run.finish(reason)
    assert attached.steps() == [5]
    assert attached.events("stop_reasons")[0]["reasons"] == [{"reason": told, "decisive": True, "text": text}]


def test_it_goes_on_from_the_checkpoint_that_the_runner_chose(
    attached: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(until: int) -> tuple[list[int], dict[str, int]]:
        state = {"sum": 0}
        with whistlestop.run() as run:
            run.track(state=state)
            seen = []
            for step in run.steps(20):
                seen.append(int(step))
                state["sum"] += step
                if step == until:
                    run.finish()
        return seen, state

    train(9)
    monkeypatch.setenv("WHISTLE_ATTEMPT", "a-2")
    monkeypatch.setenv("WHISTLE_ATTEMPT_NUMBER", "2")
    monkeypatch.setenv("WHISTLE_RESTORE", str(attached.store.list("train")[0].path))
    seen, state = train(99)
    assert seen == list(range(10, 20))
    assert state == {"sum": sum(range(20))}
    assert attached.control[Word.RESUMED_STEP] == 10
    assert [(each.step, each.attempt_number) for each in attached.store.list("train")] == [(20, 2), (10, 1)]


def test_restarted_within_its_attempt_it_goes_on_from_what_it_saved_itself(attached: Channel) -> None:
    for until, first in ((10, 0), (20, 10)):
        with whistlestop.run() as run:
            run.track(state={})
            assert list(run.steps(until)) == list(range(first, until))


def test_a_checkpoint_to_start_from_that_can_not_be_read_stops_the_start(
    attached: Channel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WHISTLE_RESTORE", str(tmp_path / "gone"))
    with whistlestop.run() as run, pytest.raises(whistlestop.RestoreFailed, match="gone"):
        run.steps(10)
    assert attached.control[Word.LOOP] == Loop.NONE


class Stubborn:
    def __float__(self) -> float:
        raise RuntimeError("no")


def test_a_bad_value_is_left_out_and_never_raises(attached: Channel, capfd: pytest.CaptureFixture[str]) -> None:
    with whistlestop.run() as run:
        for _ in run.steps(3):
            run.log(good=1, text="abc", nothing=None, stubborn=Stubborn(), number="2.5", inf=math.inf)
    assert attached.points() == [(step, {"good": 1.0, "number": 2.5, "inf": math.inf}) for step in range(3)]
    said = capfd.readouterr().err
    assert said.count("log(text=…)") == said.count("log(stubborn=…)") == 1


def test_a_full_disk_drops_metrics_and_counts_them(
    attached: Channel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, size: int) -> None:
        raise OSError(28, "No space left on device")

    with whistlestop.run() as run:
        monkeypatch.setattr(mapping, "create", full)
        for _ in run.steps(5):
            run.log(loss=1.0)
        monkeypatch.undo()
    assert attached.control[Word.DROPPED] >= 5
    assert "the disk is full" in capfd.readouterr().err


def test_a_save_that_fails_is_told_and_the_words_are_exact(attached: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        assert attached.control[Word.SAVING] == 5
        assert attached.control[Word.STAGE] == ProgramStage.SAVING
        raise OSError(28, "No space left on device")

    with whistlestop.run(every=4) as run:
        run.track(state={})
        for step in run.steps(6):
            if step == 0:
                monkeypatch.setattr("whistlestop.sdk.staging.plan_state", fail)
            if step == 4:
                assert attached.control[Word.SAVING] == 0
                assert attached.control[Word.SAVED_STEP] == 0
                assert attached.control[Word.STAGE] == ProgramStage.TRAINING
                monkeypatch.undo()
                for name, value in attached.env.items():
                    monkeypatch.setenv(name, value)
    assert attached.steps() == [6]
    assert "step 4 could not be saved" in attached.events("message")[0]["text"]


def test_a_pause_whose_save_fails_trains_on_until_it_can_save(
    attached: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whistlestop.sdk.looping._RETRY_SAVE_SECONDS", 0.0)
    failures = [OSError(28, "full"), OSError(28, "full")]
    real = staging.plan_state

    def fail_twice(plan: Any, name: str, state: object) -> None:
        if failures:
            raise failures.pop()
        real(plan, name, state)

    monkeypatch.setattr("whistlestop.sdk.staging.plan_state", fail_twice)
    seen = []

    def train() -> None:
        with whistlestop.run() as run:
            run.track(state={})
            for step in run.steps(100):
                seen.append(step)
                if step == 3:
                    order(attached, Stop.PAUSE)

    with pytest.raises(whistlestop.Paused) as left:
        train()
    assert left.value.code == EXIT_PAUSED
    assert seen == [0, 1, 2, 3, 4, 5]
    assert attached.steps() == [6]


def test_other_ranks_log_into_their_own_journal_and_leave_progress_alone(
    attached: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    with whistlestop.run(every=1) as run:
        for step in run.steps(5):
            run.log(loss=1.0)
            if step == 2:
                order(attached, Stop.FINISH_PHASE)
    assert len(attached.points(rank=3)) == 3
    assert attached.steps() == []
    assert (attached.control[Word.ATTACHED], attached.control[Word.STEP]) == (0, 0)


def test_a_forked_worker_does_not_write_into_the_parents_journal(channel: Channel, program: Callable[..., Any]) -> None:
    child = program(
        """
        import os, whistlestop
        with whistlestop.run() as run:
            for step in run.steps(3):
                run.log(parent=1.0)
                worker = os.fork()
                if worker == 0:
                    run.log(worker=1.0)
                    os._exit(0)
                os.waitpid(worker, 0)
        """,
        channel.env,
    )
    assert child.end() == 0, child.stderr
    assert channel.points() == [(step, {"parent": 1.0}) for step in range(3)]
    assert channel.control[Word.LOOP] == Loop.FINISHED


def test_stop_rules_of_the_spec_are_not_ignored_in_silence(attached: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHISTLE_STOP_WHEN", '[{"metric": "loss"}]')
    with whistlestop.run() as run:
        list(run.steps(1))
    assert "stop_when" in attached.events("message")[0]["text"]
