"""Every kind of loop: epochs, data, accumulated gradients, loops of frameworks; interrupted at any step, they go on
with the next one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whistlestop
from whistlestop.channel.layout import STEERING_FILE, Loop, ProgramStage, Word
from whistlestop.domain.errors import BadRequest
from whistlestop.domain.stops import Stop


def pause_at(channel: Any, step: int) -> None:
    channel.control[Word.STOP_AT_STEP] = step
    channel.control[Word.STOP_LEVEL] = Stop.PAUSE


def clear(channel: Any) -> None:
    for word in (Word.STOP_AT_STEP, Word.STOP_LEVEL):
        channel.control[word] = 0


def test_epochs_alone_are_steps(attached: Any) -> None:
    with whistlestop.run() as run:
        assert [(int(epoch), epoch.epoch, epoch.last) for epoch in run.epochs(3)] == [
            (0, 0, False),
            (1, 1, False),
            (2, 2, True),
        ]
    assert (attached.control[Word.EPOCH], attached.control[Word.TOTAL]) == (3, 3)


def test_accumulated_gradients_are_one_step(attached: Any) -> None:
    pause_at(attached, 2)
    seen = []

    def train() -> None:
        with whistlestop.run() as run:
            run.track(state={})
            seen.extend((int(step), step.micro, step.update) for step in run.steps(4, accumulate=3))

    with pytest.raises(whistlestop.Paused):
        train()
    assert seen == [(step, micro, micro == 2) for step in range(2) for micro in range(3)]
    assert attached.steps() == [2]


class Stream:
    """No length, no state: it can only be gone over from its beginning."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.given = 0

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.given += 1
            yield number


class Stateful(Stream):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < self.count:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def items_of(kind: str) -> Any:
    if kind == "list":
        return list(range(5))
    if kind == "batches":
        return whistlestop.Batches(10, 2, seed=3)
    return Stateful(5) if kind == "stateful" else Stream(5)


@pytest.mark.parametrize("kind", ["list", "batches", "stateful", "stream"])
@settings(max_examples=15, deadline=None)
@given(stops=st.lists(st.integers(1, 14), unique=True, max_size=3).map(sorted))
def test_data_comes_once_and_in_order_over_every_interruption(
    kind: str, stops: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("each")

    def train(until: int | None) -> list[tuple[int, Any]]:
        seen = []
        with whistlestop.run("each", checkpoints=place, keep=100) as run:
            for step, item in run.each(items_of(kind), epochs=3):
                seen.append((int(step), item))
                if until is not None and step + 1 == until:
                    run.finish("enough")
        return seen

    whole = [seen for until in (*stops, None) for seen in train(until)]
    straight = []
    with whistlestop.run("straight", checkpoints=place / "straight") as run:
        straight = [(int(step), item) for step, item in run.each(items_of(kind), epochs=3)]
    assert whole == straight
    assert len(straight) == 15


def test_data_without_length_ends_where_it_ends_and_epochs_are_told(attached: Any) -> None:
    with whistlestop.run() as run:
        assert [item for _, item in run.each(Stream(3), epochs=2)] == [0, 1, 2, 0, 1, 2]
    assert attached.control[Word.LOOP] == Loop.FINISHED
    assert attached.steps() == [6]
    assert [(each["epoch"], each["step"]) for each in attached.events("epoch")] == [(1, 3)]


def test_data_that_can_only_be_replayed_says_so(attached: Any) -> None:
    pause_at(attached, 2)

    def train() -> list[int]:
        with whistlestop.run() as run:
            return [item for _, item in run.each(Stream(4))]

    with pytest.raises(whistlestop.Paused):
        train()
    clear(attached)
    assert train() == [2, 3]
    assert "goes over 2 items again" in str(attached.events("message"))


def test_a_break_in_a_loop_over_data_is_a_break(attached: Any) -> None:
    with whistlestop.run() as run:
        for step, _ in run.each([1, 2, 3]):
            if step == 1:
                break
    assert attached.control[Word.LOOP] == Loop.LEFT
    assert attached.steps() == [1]


def test_no_data_is_the_end_and_not_for_ever(attached: Any) -> None:
    with whistlestop.run() as run:
        assert list(run.each(Stream(0), epochs=None)) == []
    assert attached.control[Word.LOOP] == Loop.FINISHED


def test_an_evaluation_is_left_for_a_stop_and_nothing_of_it_is_logged(attached: Any) -> None:
    seen = []
    with whistlestop.run() as run:
        for step in run.steps(10):
            if step == 2:
                with run.evaluating() as over:
                    for item in over(range(100)):
                        seen.append(item)
                        if item == 3:
                            attached.control[Word.STOP_LEVEL] = Stop.FINISH_PHASE
                    run.log(val_loss=1.0)
            run.log(loss=1.0)
    assert seen == [0, 1, 2, 3]
    assert [list(values) for _, values in attached.points()] == [["loss"]] * 3
    assert attached.control[Word.STEP] == 3
    assert attached.control[Word.STAGE] == ProgramStage.FINISHING


def test_evaluations_may_be_nested_and_are_marked(attached: Any) -> None:
    with whistlestop.run() as run:
        for _ in run.steps(1):
            with run.evaluating(), run.evaluating() as over:
                assert list(over([1, 2])) == [1, 2]
                assert attached.control[Word.STAGE] == ProgramStage.EVALUATING
            assert attached.control[Word.STAGE] == ProgramStage.TRAINING
    assert attached.control[Word.EVALUATIONS] == 2


def test_a_save_in_the_body_counts_the_item_as_done(alone: Path) -> None:
    seen = []

    def train() -> None:
        with whistlestop.run("demo") as run:
            for step, item in run.each(Stream(5)):
                seen.append(item)
                if step == 2 and len(seen) == 3:
                    run.save()
                    raise OSError("lost")

    with pytest.raises(OSError, match="lost"):
        train()
    train()
    assert seen == [0, 1, 2, 3, 4]


def test_a_loop_over_data_can_be_extended(attached: Any) -> None:
    seen = []
    with whistlestop.run() as run:
        for step, item in run.each([0, 1, 2], epochs=2):
            seen.append(item)
            if step == 1:
                steer(attached, {"seq": 1, "name": "total", "value": 8})
    assert seen == [0, 1, 2, 0, 1, 2, 0, 1]


def test_an_epoch_shorter_than_it_says_is_resumed_where_it_was(alone: Path) -> None:
    class Short(Stream):
        def __len__(self) -> int:
            return self.count + 1

    seen = []
    for until in (5, None):
        with whistlestop.run("demo", checkpoints=alone / "kept") as run:
            for step, item in run.each(Short(3), epochs=3):
                seen.append((int(step), item))
                if step + 1 == until:
                    run.finish("enough")
    assert [item for _, item in seen] == [0, 1, 2] * 3


# Loops of frameworks.


def drive(run: Any, total: int) -> list[int]:
    """As a trainer does it."""
    loop = run.driven(total=total, per_epoch=4)
    done = list[int]()
    if loop.done(loop.start):
        return done
    for step in range(loop.start, total):
        done.append(step)
        if loop.done(step + 1):
            return done
    return done


def test_a_driven_loop_stops_pauses_and_goes_on(attached: Any) -> None:
    def train() -> list[int]:
        with whistlestop.run(every="3 steps") as run:
            run.track(state={})
            return drive(run, 10)

    pause_at(attached, 5)
    with pytest.raises(whistlestop.Paused):
        train()
    assert attached.steps() == [5, 3]
    attached.control[Word.STOP_LEVEL], attached.control[Word.STOP_AT_STEP] = Stop.FINISH_PHASE, 7
    assert train() == [5, 6]
    clear(attached)
    assert train() == [7, 8, 9]
    assert attached.control[Word.LOOP] == Loop.FINISHED
    assert (attached.control[Word.EPOCH], attached.control[Word.BATCH]) == (2, 2)
    assert attached.steps() == [10, 9, 7, 6, 5, 3]


def test_a_framework_that_saves_by_itself_gives_its_files(attached: Any, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "weights").write_text("w")
    with whistlestop.run() as run:
        loop = run.driven()
        loop.epoch(1)
        attached.control[Word.STOP_LEVEL] = Stop.FINISH_PHASE
        due = loop.look(3)
        assert (due.save, due.stop, due.leave) == (True, True, False)
        assert loop.settle(due, {"trainer": tmp_path / "own"})
    (kept,) = attached.store.list("train")
    assert (kept.path / "trainer" / "weights").read_text() == "w"
    assert attached.control[Word.EPOCH] == 1


def test_files_of_a_framework_are_a_part_like_any_other(attached: Any) -> None:
    box = {"value": 0}

    def save(directory: Path) -> None:
        (directory / "value").write_text(str(box["value"]))

    def load(directory: Path) -> None:
        box["value"] = int((directory / "value").read_text())

    def train() -> None:
        with whistlestop.run() as run:
            run.saves_files(save=save, load=load, name="own")
            for _ in run.steps(4):
                box["value"] += 1

    pause_at(attached, 2)
    with pytest.raises(whistlestop.Paused):
        train()
    clear(attached)
    box["value"] = 100
    train()
    assert box["value"] == 4


# Steering.


def steer(channel: Any, *changes: dict[str, Any]) -> None:
    text = json.dumps({"changes": [{"actor": "ann", "step": None, **change} for change in changes]})
    (channel.directory / STEERING_FILE).write_text(text)
    channel.control[Word.STEERING] += 1


def test_a_parameter_changes_at_a_step_that_is_told(attached: Any) -> None:
    seen = []
    with whistlestop.run() as run:
        for step in run.steps(6):
            seen.append(run.param("lr", 0.1, low=0.0))
            if step == 2:
                steer(attached, {"seq": 1, "name": "param:lr", "value": 0.01})
    assert seen == [0.1, 0.1, 0.1, 0.01, 0.01, 0.01]
    assert [(each["seq"], each["step"]) for each in attached.events("steered")] == [(1, 3)]
    assert attached.events("params")[-1]["params"]["lr"]["value"] == 0.01


def test_what_an_earlier_attempt_changed_is_changed_at_the_same_steps(attached: Any) -> None:
    steer(
        attached,
        {"seq": 1, "name": "param:lr", "value": 0.5, "step": 2},
        {"seq": 2, "name": "total", "value": 7, "step": 4},
        {"seq": 3, "name": "param:lr", "value": 0.25, "step": 5},
    )
    seen = []
    with whistlestop.run() as run:
        seen.extend((int(step), run.param("lr", 1.0), step.total) for step in run.steps(5))
    assert [value for _, value, _ in seen] == [1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert [total for _, _, total in seen] == [5, 5, 5, 5, 7, 7, 7]
    assert attached.control[Word.TOTAL] == 7


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "param:lr", "value": "much"}, "not a number"),
        ({"name": "param:lr", "value": -1.0}, "below 0"),
        ({"name": "total", "value": 1}, "can't end at step 1"),
        ({"name": "total", "value": 2.5}, "not a number of steps"),
        ({"name": "total", "value": 10**30}, "can't end at step"),
        ({"name": "param:lr", "value": 10**400}, "not changed"),
        ({"name": "colour", "value": "red"}, "can't be changed"),
    ],
)
def test_a_change_that_can_not_be_made_is_refused_in_words(attached: Any, change: dict[str, Any], words: str) -> None:
    with whistlestop.run() as run:
        for step in run.steps(5):
            assert run.param("lr", 0.1, low=0) == 0.1
            if step == 2:
                steer(attached, {"seq": 1, **change})
    (refused,) = attached.events("steering_refused")
    assert words in refused["text"]
    assert attached.control[Word.STEP] == 5


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"changes": [{"seq": 1}]}', '{"changes": [{"seq": "1", "name": "a", "value": 1}]}', "[" * 100_000],
)
def test_changes_that_can_not_be_read_change_nothing(attached: Any, text: str) -> None:
    (attached.directory / STEERING_FILE).write_text(text)
    with whistlestop.run() as run:
        assert len(list(run.steps(3))) == 3
    assert "changes can't be read" in attached.events("message")[0]["text"]


def test_a_parameter_with_an_impossible_default_is_an_error_of_the_program(alone: Path) -> None:
    with whistlestop.run() as run, pytest.raises(BadRequest, match="above 1"):
        run.param("lr", 3.0, high=1)


def test_a_driven_loop_that_is_made_shorter_ends_there(attached: Any) -> None:
    with whistlestop.run() as run:
        loop = run.driven(20)
        done = 0
        while not loop.done(done):
            done += 1
            if done == 3:
                steer(attached, {"seq": 1, "name": "total", "value": 7})
            if done == 4:
                steer(attached, {"seq": 2, "name": "total", "value": 30})
    assert done == 7
    assert "its framework ends at step 20" in attached.events("steering_refused")[0]["text"]


def test_a_loop_looks_closer_only_when_something_is_due(attached: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind the step at which it would have ended, and behind changes of an earlier attempt."""
    steer(attached, {"seq": 1, "name": "param:lr", "value": 0.5, "step": 3}, {"seq": 2, "name": "total", "value": 50})
    looks = []
    with whistlestop.run(every="20 steps") as run:
        real = run._look
        monkeypatch.setattr(run, "_look", lambda step: looks.append(step) or real(step))
        assert len(list(run.steps(10))) == 50
    assert looks == [0, 3, 20, 40, 50]
