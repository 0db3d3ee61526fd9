"""Stop rules at work in real loops: they see every value, before anything is saved, and the same after a resume."""

import math
from pathlib import Path
from typing import Any

import pytest
from tests.sdk.conftest import unhurried

import whistlestop
from whistlestop.channel.layout import Word
from whistlestop.domain.stops import Stop


def health(channel: Any) -> dict[int, bool]:
    return {each.step: each.healthy for each in channel.store.list("train")}


def test_every_value_is_seen_also_two_of_one_step(attached: Any) -> None:
    with whistlestop.run(stop_when=[whistlestop.non_finite("loss")]) as run:
        for _ in run.steps(10):
            run.log(loss=math.nan)
            run.log(loss=1.0)
    assert attached.control[Word.STEP] == 1
    assert attached.events("stop_reasons")[0]["reasons"][0]["reason"] == "non_finite_metric"


def test_a_value_that_is_not_finite_in_the_last_step_is_seen_before_it_is_saved(attached: Any) -> None:
    with whistlestop.run(stop_when=[whistlestop.non_finite()], every=2) as run:
        for step in run.steps(5):
            run.log(loss=math.nan if step == 4 else 1.0)
    assert health(attached) == {5: False, 4: True, 2: True}


def test_and_before_a_break_and_before_a_save_of_the_program(attached: Any) -> None:
    with whistlestop.run(stop_when=[whistlestop.non_finite()]) as run:
        for step in run.steps(5):
            run.log(loss=math.inf if step == 3 else 1.0)
            run.save()
            if step == 3:
                break
    assert health(attached) == {4: False, 3: True, 2: True, 1: True}


def test_a_run_goes_on_from_the_newest_healthy_checkpoint(alone: Path) -> None:
    begun = []
    for bad in (5, None):
        with whistlestop.run("demo", every=2, stop_when=[whistlestop.non_finite()]) as run:
            run.track(state={})
            for step in run.steps(8):
                begun.append(int(step))
                run.log(loss=math.nan if step == bad else 1.0)
    assert begun == [*range(6), *range(4, 8)]


def test_patience_counts_on_from_where_it_was(attached: Any) -> None:
    def train() -> int:
        rules = [whistlestop.plateau("loss", patience=6)]
        with whistlestop.run(stop_when=rules) as run:
            for step in run.steps(100):
                run.log(loss=1.0)
                if step == 3:
                    run.save()
        return run._at[0]

    attached.control[Word.STOP_LEVEL], attached.control[Word.STOP_AT_STEP] = Stop.PAUSE, 5
    with pytest.raises(whistlestop.Paused):
        train()
    attached.control[Word.STOP_LEVEL] = attached.control[Word.STOP_AT_STEP] = 0
    assert train() == 7


def test_a_rule_of_the_programs_own_knows_the_values_of_before_the_resume(attached: Any) -> None:
    def train() -> int:
        def enough(moment: Any) -> bool:
            return moment.latest.get("val", 0) > 0.5 and moment.step > 8

        with whistlestop.run(stop_when=[enough]) as run:
            for step in run.steps(100):
                if step == 3:
                    run.log(val=0.9)
        return run._at[0]

    attached.control[Word.STOP_LEVEL], attached.control[Word.STOP_AT_STEP] = Stop.PAUSE, 5
    with pytest.raises(whistlestop.Paused):
        train()
    attached.control[Word.STOP_LEVEL] = attached.control[Word.STOP_AT_STEP] = 0
    assert train() == 9


def test_a_rule_and_a_pause_at_one_boundary_are_a_stop(attached: Any) -> None:
    attached.control[Word.STOP_LEVEL], attached.control[Word.STOP_AT_STEP] = Stop.PAUSE, 5
    with whistlestop.run(stop_when=[whistlestop.below("loss", 0.5)]) as run:
        for step in run.steps(100):
            run.log(loss=0.1 if step == 4 else 1.0)
    assert attached.control[Word.STEP] == 5


def test_several_reasons_are_told_and_the_first_is_decisive(attached: Any) -> None:
    rules = [whistlestop.below("loss", 0.5), whistlestop.plateau("acc", patience=1), whistlestop.max_steps(2)]
    with whistlestop.run(stop_when=rules) as run:
        for _ in run.steps(100):
            run.log(loss=0.1, acc=1.0)
    (told,) = attached.events("stop_reasons")
    reasons = [(each["reason"], each["decisive"]) for each in told["reasons"]]
    assert reasons == [("threshold_reached", True)]
    assert attached.control[Word.STEP] == 1


def test_rules_of_the_spec_and_of_the_code_both_hold(attached: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHISTLE_STOP_WHEN", '[{"max_steps": 4}]')
    with whistlestop.run(stop_when=[whistlestop.max_steps(6)]) as run:
        assert len(list(run.steps(100))) == 4


def test_a_training_has_only_so_much_time_over_all_its_attempts(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    for name in ("training.time.monotonic", "training.time.time", "looping._time"):
        monkeypatch.setattr(f"whistlestop.sdk.{name}", lambda: clock[0])
    done = []
    for _ in range(2):
        with whistlestop.run("demo", stop_when=[whistlestop.max_time(100)]) as run:
            for step in run.steps(50):
                done.append(int(step))
                clock[0] += 15.0
                run.log(loss=1.0)
                if step == 3:
                    run.finish("enough")
    assert done == [0, 1, 2, 3, 4, 5, 6]


# Privacy.


def budget(steps: float) -> list[Any]:
    return [whistlestop.privacy_budget(steps, spent=float)]


@pytest.mark.parametrize("driven", [False, True])
def test_a_privacy_budget_is_never_exceeded_also_over_discarded_steps(alone: Path, driven: bool) -> None:
    """Each start saves at step 5 and is lost at step 8: three of its steps are run again, and count twice."""
    ran = []

    def go(until: int) -> None:
        with whistlestop.run("demo", every=5, stop_when=budget(20)) as run:
            run.track(state={})
            if driven:
                loop = run.driven(1000)
                step = loop.start
                while not loop.done(step):
                    ran.append(step)
                    step += 1
                    if step == until:
                        raise OSError("lost")
            else:
                for step in run.steps(1000):
                    ran.append(int(step))
                    if step + 1 == until:
                        raise OSError("lost")

    for until in (8, 8):
        with pytest.raises(OSError, match="lost"):
            go(until)
    go(-1)
    assert ran == [*range(8), *range(5, 8), *range(5, 14)]
    assert len(ran) == 20


def test_a_budget_that_nobody_can_compute_runs_no_step(alone: Path) -> None:
    def broken(steps: int) -> float:
        raise RuntimeError("no accountant")

    ran = []
    rules = [whistlestop.privacy_budget(1.0, spent=broken)]
    with pytest.raises(Exception, match="no accountant"), whistlestop.run("demo", stop_when=rules) as run:
        ran.extend(run.steps(10))
    assert ran == []


# What is odd.


def test_the_final_evaluation_behind_a_stopped_loop_is_whole(attached: Any) -> None:
    with whistlestop.run() as run:
        for _ in run.steps(5):
            run.finish("enough")
        with run.evaluating() as over:
            seen = list(over(range(3)))
    assert seen == [0, 1, 2]


def test_a_training_whose_last_save_failed_is_not_finished(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = {"fails": False, "begun": []}

    def save() -> int:
        if box["fails"]:
            raise OSError("No space left on device")
        return 1

    for fails in (True, False):
        with whistlestop.run("demo", every=2) as run:
            run.saves(save=save, load=lambda state: None)
            for step in run.steps(3):
                box["begun"].append(int(step))  # type: ignore[attr-defined]
                box["fails"] = fails and step == 2
    assert box["begun"] == [0, 1, 2, 2]


def test_a_loop_of_the_programs_own_is_told_to_end_by_rules_and_orders(attached: Any) -> None:
    with whistlestop.run(stop_when=[whistlestop.below("loss", 0.5)]) as run:
        rounds = 0
        while not run.should_stop:
            rounds += 1
            run.log(loss=1.0 / rounds)
    assert rounds == 3


def test_a_save_that_failed_once_does_not_end_saving_by_the_clock(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, failures = [1000.0], [OSError("full")]
    monkeypatch.setattr("whistlestop.sdk.looping._time", lambda: clock[0])
    monkeypatch.setattr("whistlestop.sdk.training.time.time", lambda: clock[0])

    def save() -> int:
        if failures:
            raise failures.pop()
        return 1

    with whistlestop.run("demo", every="1 minute", keep=100, stop_when=[whistlestop.below("loss", -1)]) as run:
        run.saves(save=save, load=lambda state: None)
        for _ in unhurried(run, run.steps(20)):
            run.log(loss=1.0)
            clock[0] += 25.0
    store = whistlestop.sdk.place.CheckpointStore(alone / "whistle-checkpoints" / "demo")  # type: ignore[attr-defined]
    assert len(store.list("run-001")) >= 6


def test_a_training_that_a_rule_has_ended_stays_ended_until_the_rule_changes(alone: Path) -> None:
    ran = []

    def train(patience: int) -> None:
        with whistlestop.run("demo", stop_when=[whistlestop.plateau("loss", patience=patience)]) as run:
            run.track(state={})
            for step in run.steps(100):
                ran.append(int(step))
                run.log(loss=1.0)

    train(3)
    train(3)
    assert ran == [0, 1, 2, 3]
    train(5)
    assert ran == [0, 1, 2, 3, 4, 5]


def test_a_rule_that_fires_behind_a_save_of_the_same_step_is_saved_with_it(attached: Any) -> None:
    with whistlestop.run(stop_when=[whistlestop.below("val", 0.5)]) as run:
        run.track(state={})
        loop = run.driven(100)
        attached.control[Word.CHECKPOINT_NOW] += 1
        assert not loop.done(4)
        run.log(val=0.1)
        assert loop.done(4)
    newest = attached.store.list("train")[0]
    assert (newest.step, newest.meta["fired"]) == (4, True)


def test_a_rule_that_waits_for_a_name_that_nobody_logs_is_told(attached: Any) -> None:
    with whistlestop.run(stop_when=["val_los < 3"]) as run:
        for _ in run.steps(2):
            run.log(val_loss=1.0, loss=1.0)
    (said,) = attached.events("message")
    assert "val_los, which was never logged; logged were: loss, val_loss" in said["text"]


def test_a_part_that_is_tracked_no_more_is_told(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for parts in ({"model": {}, "optimizer": {}}, {"optimizer": {}}):
        with whistlestop.run("demo") as run:
            run.track(**parts)
            for step in run.steps(10):
                if step == 3:
                    run.finish("enough")
    assert "also holds model, which is not tracked" in capsys.readouterr().err
