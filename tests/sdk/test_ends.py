"""How a loop ends: what counts as done, what is saved, and what is not taken for the end of training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whistlestop
from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.channel.layout import Loop, Word

Channel = Any  # tests/sdk/conftest.py


def stored(directory: Path) -> list[int]:
    store = CheckpointStore(directory / "whistle-checkpoints" / "demo")
    return [each.step for each in store.list("run-001")]


def finished(directory: Path) -> bool:
    return (directory / "whistle-checkpoints" / "demo" / "run-001" / "finished").exists()


def test_a_break_while_somebody_holds_the_iterator_is_a_break_too(attached: Channel) -> None:
    """As a progress bar does."""
    with whistlestop.run() as run:
        bar = run.steps(10)
        for step in bar:
            if step == 4:
                break
        assert attached.control[Word.LOOP] == Loop.INSIDE
    assert attached.control[Word.LOOP] == Loop.LEFT
    assert attached.steps() == [4]
    assert attached.events("stop_reasons")[0]["reasons"][0]["reason"] == "custom"
    assert list(bar) == []


def test_an_error_while_somebody_holds_the_iterator_is_not_a_break(attached: Channel) -> None:
    bars = []

    def crash() -> None:
        with whistlestop.run() as run:
            bars.append(run.steps(10))
            for step in bars[0]:
                if step == 4:
                    raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        crash()
    bars.clear()
    assert (attached.control[Word.LOOP], attached.control[Word.STEP]) == (Loop.INSIDE, 4)
    assert attached.steps() == []


def test_a_break_saves_what_is_there_even_if_that_step_was_saved_before_its_work(attached: Channel) -> None:
    state = {"sum": 0}
    with whistlestop.run(every=4) as run:
        run.track(state=state)
        for step in run.steps(10):
            state["sum"] += 1
            if step == 4:
                break
    newest = attached.store.list("train")[0]
    assert (newest.step, newest.revision) == (4, 1)
    with whistlestop.run() as run:
        again = {"sum": 0}
        run.track(state=again)
        run.restore()
    assert again == {"sum": 5}


def test_a_program_that_saves_and_then_breaks_keeps_what_it_saved(attached: Channel) -> None:
    with whistlestop.run() as run:
        for step in run.steps(10):
            if step == 4:
                run.save()
                break
    assert attached.steps() == [5]
    assert attached.control[Word.STEP] == 5


def test_what_was_saved_before_the_loop_is_not_taken_for_the_result_of_a_break(attached: Channel) -> None:
    with whistlestop.run() as run:
        run.save()
        for _ in run.steps(10):
            break
    assert [(each.step, each.revision) for each in attached.store.list("train")] == [(0, 1), (0, 0)]


def test_an_iterator_that_was_not_begun_is_left_alone(alone: Path) -> None:
    with whistlestop.run("demo") as run:
        steps = run.steps(3)
    assert list(steps) == [0, 1, 2]


def test_a_loader_that_ends_first_leaves_only_finished_steps(attached: Channel) -> None:
    with whistlestop.run() as run:
        for _ in zip(run.steps(), range(10), strict=False):
            pass
    assert attached.steps() == [10]
    assert attached.control[Word.STEP] == 10


@pytest.mark.parametrize("way", ["sys.exit(1)", "sys.exit()", "1 / 0"])
@pytest.mark.parametrize("loop", ["run.steps()", "bar"])
def test_an_exit_in_a_loop_without_a_with_block_is_not_the_end_of_training(
    program: Callable[..., Any], tmp_path: Path, way: str, loop: str
) -> None:
    child = program(
        f"""
        import sys, whistlestop
        run = whistlestop.run("demo", every=4)
        run.track(state={{}})
        bar = run.steps() if "{loop}" == "bar" else None
        for step in {loop}:
            if step == 6:
                {way}
        """
    )
    assert child.end() == (0 if way == "sys.exit()" else 1)
    assert stored(tmp_path) == [4]
    assert not finished(tmp_path)
    assert ("does not count as the end" in child.stderr) == (way != "1 / 0")
    again = program(
        """
        import whistlestop
        with whistlestop.run("demo") as run:
            run.track(state={})
            print(int(next(run.steps())), flush=True)
        """
    )
    assert again.line() == "4"


def test_with_a_runner_such_an_exit_is_told_as_inside_the_loop(channel: Channel, program: Callable[..., Any]) -> None:
    child = program(
        """
        import sys, whistlestop
        bar = whistlestop.run().steps()
        for step in bar:
            if step == 6:
                sys.exit(0)
        """,
        channel.env,
    )
    assert child.end() == 0
    assert (channel.control[Word.LOOP], channel.control[Word.STEP]) == (Loop.INSIDE, 6)
    assert channel.steps() == []
    assert "does not count as the end" in channel.events("message")[0]["text"]


def test_the_final_export_is_saved_behind_the_loop(attached: Channel, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"exported")
    with whistlestop.run() as run:
        run.track(state={"a": 1})
        list(run.steps(5))
        saved = run.save(files={"model.bin": tmp_path / "model.bin"})
        assert saved is not None
    newest = attached.store.list("train")[0]
    assert newest == saved.checkpoint()
    assert (newest.step, newest.revision, sorted(newest.files)) == (5, 1, ["model.bin", "parts/state.pickle"])
    assert [each["dir"] for each in attached.events("checkpoint")][-1] == str(newest.path)


def test_without_a_runner_the_export_takes_the_place_of_the_last_checkpoint(alone: Path) -> None:
    (alone / "model.bin").write_bytes(b"exported")
    with whistlestop.run("demo") as run:
        for step in run.steps(10):
            if step == 4:
                break
        run.save(files={"model.bin": alone / "model.bin"})
        saved = run.save(files={"model.bin": alone / "model.bin"})
        assert saved is not None
    (only,) = CheckpointStore(alone / "whistle-checkpoints" / "demo").list("run-001")
    assert only == saved.checkpoint()
    assert (only.revision, sorted(only.files)) == (1, ["model.bin"])
