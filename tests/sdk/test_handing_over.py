"""With a runner: saves are handed over in slots, and training goes on."""

import json
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import whistlestop
from whistlestop.blobs import staged
from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.channel import layout
from whistlestop.channel.layout import EXIT_PAUSED, Loop, Word
from whistlestop.domain.stops import Stop
from whistlestop.sdk import room
from whistlestop.sdk.saver import PERIODIC
from whistlestop.sdk.training import Training


@pytest.fixture
def channel(channel: Any, tmp_path: Path) -> Any:
    """With a directory for the slots. What is done with them is up to the test."""
    (tmp_path / "stage").mkdir()
    channel.extra |= {layout.ENV_STAGE: str(tmp_path / "stage")}
    yield channel
    shutil.rmtree(room.MEMORY / f"whistle-{channel.attempt}", ignore_errors=True)


@pytest.fixture
def stage(attached: Any, tmp_path: Path) -> Path:
    return tmp_path / "stage"


def make_durable(attached: Any, slot: Path) -> int:
    found = staged.read(slot)
    assert found is not None
    attached.store.commit(found)
    staged.release(slot)
    attached.control[Word.DURABLE_STEP] = found.step + 1
    return found.step


def published(stage: Path) -> list[Path]:
    return [slot for slot in staged.slots(stage) if not staged.is_free(slot)]


def test_a_save_lies_in_a_slot_and_the_runner_is_told(attached: Any, stage: Path) -> None:
    model = torch.nn.Linear(200, 200)
    with whistlestop.run(every=5) as run:
        run.track(model=model, state={"a": 1})
        for step in run.steps(8):
            if step == 5:
                (told,) = attached.events("staged")
                found = staged.read(Path(told["dir"]))
                assert found is not None
                assert (found.step, found.attempt_number, found.phase) == (5, 1, "train")
                assert found.block_seconds > 0
                assert attached.control[Word.STAGED_STEP] == attached.control[Word.SAVED_STEP] == 6
                assert attached.steps() == []
    assert [each["step"] for each in attached.events("staged")] == [5, 8]
    assert attached.events("checkpoint") == []
    assert [make_durable(attached, slot) for slot in published(stage)] == [5, 8]
    (newest, _) = attached.store.list("train")
    stored = whistlestop.load(newest.path)
    assert stored["state"] == {"a": 1}
    assert torch.equal(stored["model"]["weight"], model.weight)


def test_a_periodic_save_is_put_off_while_both_slots_are_the_runners(attached: Any, stage: Path) -> None:
    handed = []
    with whistlestop.run(every=2) as run:
        run.track(state={})
        for step in run.steps(20):
            handed.append(len(attached.events("staged")))
            if step == 9:
                assert make_durable(attached, stage / "slot-0") == 2
            if step in (15, 19):
                for slot in published(stage):
                    make_durable(attached, slot)
    assert handed[4:10] == [2] * 6
    assert [each["step"] for each in attached.events("staged")][:4] == [2, 4, 10, 16]


def test_nothing_is_prepared_for_a_save_that_is_put_off(
    attached: Any, stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at = []
    settle = Training._settle_values
    monkeypatch.setattr(Training, "_settle_values", lambda run: (read_at.append(run._at[0]), settle(run))[1])
    with whistlestop.run(every=2) as run:
        run.track(state={})
        for step in run.steps(9):
            if step == 8:
                assert read_at == [2, 4]  # values are read from their device for saves that are made
                for slot in published(stage):
                    make_durable(attached, slot)


def test_what_the_program_asked_for_comes_with_its_files_when_there_is_room(
    attached: Any, stage: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("n")
    found = []
    with whistlestop.run(every=2) as run:
        run.track(state={})
        for step in run.steps(20):
            if step == 6:
                run.save(now=False, files={"notes.txt": tmp_path / "notes.txt"})
            if step >= 10:
                for slot in published(stage):
                    saved = staged.read(slot)
                    assert saved is not None
                    found.append((saved.step, saved.meta["why"], [each.name for each in saved.pieces]))
                    make_durable(attached, slot)
    why = {step: why for step, why, _ in found}
    assert [step for step, _, names in found if "notes.txt" in names] == [11]
    assert why[11] == "on request"
    assert set(why.values()) == {"on request", PERIODIC}


def test_files_for_the_next_save_are_in_the_last_one_if_there_is_no_other(attached: Any, stage: Path) -> None:
    with whistlestop.run() as run:
        run.track(state={})
        for step in run.steps(3):
            if step == 2:
                run.save(now=False, files={"here": Path(__file__)})
    (slot,) = published(stage)
    make_durable(attached, slot)
    assert "here" in attached.store.list("train")[0].files


def test_without_a_runner_a_periodic_save_waits_for_nobody_either(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    commit = CheckpointStore.commit

    def slowly(*given: Any, **named: Any) -> Any:
        assert go.wait(20)
        return commit(*given, **named)

    monkeypatch.setattr(CheckpointStore, "commit", slowly)
    with whistlestop.run("demo", every=2, keep=9) as run:
        run.track(state={})
        for step in run.steps(12):
            if step == 10:  # it has come so far
                go.set()
                run._saver.finish()  # type: ignore[union-attr]
    kept = CheckpointStore(alone / "whistle-checkpoints" / "demo").list("run-001")
    assert [each.step for each in kept] == [12, 11, 4, 2]


def test_the_last_save_waits_for_a_slot(channel: Any, program: Callable[..., Any], wait: Any, tmp_path: Path) -> None:
    child = program(
        """
        import whistlestop
        with whistlestop.run(every=2) as run:
            run.track(state={"a": 1})
            for step in run.steps(7):
                pass
        """,
        channel.env,
    )
    wait(lambda: channel.control[Word.SAVING] == 8, "the last save to begin")
    assert child.process.poll() is None
    assert len(channel.events("staged")) == 2
    make_durable(channel, tmp_path / "stage" / "slot-0")
    assert child.end() == 0, child.stderr
    assert [each["step"] for each in channel.events("staged")] == [2, 4, 7]
    assert channel.control[Word.LOOP] == Loop.FINISHED


def test_a_pause_leaves_when_its_save_is_handed_over(attached: Any, stage: Path) -> None:
    def train() -> None:
        with whistlestop.run() as run:
            run.track(state={"n": 3})
            for step in run.steps(100):
                if step == 3:
                    attached.control[Word.STOP_SEQ] = 1
                    attached.control[Word.STOP_LEVEL] = Stop.PAUSE

    with pytest.raises(whistlestop.Paused) as left:
        train()
    assert left.value.code == EXIT_PAUSED
    assert [make_durable(attached, slot) for slot in published(stage)] == [4]


def test_what_was_saved_is_what_was_there_at_that_step(attached: Any, stage: Path) -> None:
    model = torch.nn.Linear(300, 300)
    weights = {}
    with whistlestop.run(every=3) as run:
        run.track(model=model, counts=(counts := {"n": 0}))
        for step in run.steps(12):
            counts["n"] += 1
            with torch.no_grad():
                model.weight.add_(1.0)
            weights[step + 1] = model.weight.detach().clone()
            for slot in published(stage):
                make_durable(attached, slot)
    for slot in published(stage):
        make_durable(attached, slot)
    kept = attached.store.list("train")
    assert [each.step for each in kept] == [12, 9, 6, 3]
    for each in kept:
        stored = whistlestop.load(each.path)
        assert stored["counts"] == {"n": each.step}
        assert torch.equal(stored["model"]["weight"], weights[each.step])


def test_the_handle_says_when_it_is_durable(attached: Any, stage: Path) -> None:
    with whistlestop.run() as run:
        run.track(state={"a": 1})
        for step in run.steps(4):
            if step == 1:
                saved = run.save()
                assert saved is not None
                assert (saved.step, saved.wait(0.01), saved.checkpoint()) == (2, False, None)
                make_durable(attached, stage / "slot-0")
                assert saved.wait()


def give_up(attached: Any, slot: Path) -> None:
    attached.control[Word.SAVES_FAILED] += 1
    staged.release(slot)


def test_the_handle_of_a_save_that_the_runner_has_given_up_says_so(attached: Any, stage: Path) -> None:
    with whistlestop.run() as run:
        run.track(state={"a": 1})
        for step in run.steps(4):
            if step == 0:
                first = run.save()
            if step == 1:
                second = run.save()
            if step == 2:
                give_up(attached, stage / "slot-0")
                make_durable(attached, stage / "slot-1")
                third = run.save()  # what became of the others is known from here on, whatever comes behind it
                give_up(attached, stage / "slot-0")
                assert [saved.wait() for saved in (first, second, third) if saved is not None] == [False, True, False]


def test_the_handle_is_about_its_own_save_not_about_an_earlier_one_of_the_same_step(attached: Any, stage: Path) -> None:
    with whistlestop.run() as run:
        run.track(state={"a": 1})
        for step in run.steps(3):
            if step == 1:
                first = run.save()
                make_durable(attached, stage / "slot-0")
                again, once_more = run.save(), run.save()
                assert first is not None
                assert again is not None
                assert once_more is not None
                assert (first.wait(), again.wait(0.01)) == (True, False)
                make_durable(attached, stage / "slot-0")
                assert (again.wait(), once_more.wait(0.01)) == (True, False)
                give_up(attached, stage / "slot-1")
                assert not once_more.wait()


def test_a_stage_that_can_not_be_used_is_a_warning(attached: Any, stage: Path) -> None:
    stage.rmdir()
    stage.write_text("in the way")
    with whistlestop.run(every=2) as run:
        run.track(state={"a": 1})
        assert len(list(run.steps(5))) == 5
    assert "could not be saved" in attached.events("message")[0]["text"]
    assert attached.control[Word.LOOP] == Loop.FINISHED


def test_restarted_within_its_attempt_it_waits_for_what_it_had_handed_over(
    channel: Any, program: Callable[..., Any], wait: Any, tmp_path: Path
) -> None:
    script = """
        import os, whistlestop
        with whistlestop.run(every=4) as run:
            run.track(state={"a": 1})
            for step in run.steps(12):
                print(int(step), flush=True)
                if step == 5:
                    os._exit(3)
        """
    assert program(script, channel.env).end() == 3
    again = program(script, channel.env)
    wait(lambda: bool(channel.control[Word.IMPORTED]), "it to begin")
    assert make_durable(channel, tmp_path / "stage" / "slot-0") == 4
    assert again.line() == "4", again.end() or again.stderr


def test_restarted_within_its_attempt_it_never_goes_below_what_is_safe_elsewhere(attached: Any, stage: Path) -> None:
    attached.control[Word.DURABLE_STEP] = 10  # as with object storage: nothing of it is here
    with whistlestop.run() as run:
        run.track(state={})
        with pytest.raises(whistlestop.RestoreFailed, match=r"step 9 of this attempt is safe in storage, but not on"):
            run.steps(20)
    assert attached.control[Word.BEHIND] == 10  # the runner starts the next attempt


def test_files_of_frameworks_are_staged_as_they_are(attached: Any, stage: Path, tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "a.txt").write_text("a")
    with whistlestop.run() as run:
        run.saves_files(save=lambda path: (path / "weights.bin").write_bytes(b"w" * 10), load=lambda path: None)
        for step in run.steps(3):
            if step == 0:
                run.save(files={"extra": tmp_path / "extra", "one.txt": tmp_path / "extra" / "a.txt"})
    assert not any(slot.is_symlink() for slot in staged.slots(stage))
    assert [make_durable(attached, slot) for slot in published(stage)] == [1, 3]
    later, first = attached.store.list("train")
    assert sorted(later.files) == ["files/files/weights.bin"]
    assert sorted(first.files) == ["extra/a.txt", "files/files/weights.bin", "one.txt"]


def test_killed_without_a_runner_right_after_a_save_the_next_start_has_it(
    alone: Path, program: Callable[..., Any]
) -> None:
    child = program(
        """
        import os, whistlestop
        from whistlestop.blobs.checkpoints import CheckpointStore
        CheckpointStore.commit = lambda *given, **named: os.kill(os.getpid(), 9)
        with whistlestop.run("demo", every=4) as run:
            run.track(state={"a": 1})
            for step in run.steps(12):
                pass
        """
    )
    assert child.end() == -9
    store = CheckpointStore(alone / "whistle-checkpoints" / "demo")
    assert store.list("run-001") == []
    with whistlestop.run("demo") as run:
        run.track(state={})
        assert next(run.steps(12)) in (4, 8)
    assert [each.attempt_number for each in store.list("run-001")][-1] == 1
    assert not list((alone / "whistle-checkpoints" / "demo" / "run-001").glob(".stage-*"))


def test_what_an_earlier_process_left_is_kept_until_it_can_be_brought_to_safety(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = alone / "whistle-checkpoints" / "demo" / "run-001" / ".stage-000000001" / "slot-0"
    (alone / "elsewhere" / "whistle-mine").mkdir(parents=True)
    slot.mkdir(parents=True)
    (slot.parent / "slot-1").symlink_to(alone / "elsewhere" / "whistle-mine", target_is_directory=True)
    state = pickle.dumps({"a": 7})
    (slot / "buffer").write_bytes(state)
    pieces = [staged.Piece("parts/state.pickle", len(state), "buffer")]
    staged.publish(staged.Staged(slot, "run-001", 4, 1, "a-1", {"parts": ["state"]}, pieces, at=1.0))

    def train(found: dict[str, int]) -> list[int]:
        with whistlestop.run("demo") as run:
            run.track(state=found)
            return [int(step) for step in run.steps(6)]

    def full(*given: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "commit", full)
        for _ in range(2):  # and its lock is free again
            with pytest.raises(whistlestop.RestoreFailed, match=r"could not be brought to safety: .*No space"):
                train({})
    assert train(found := {"a": 0}) == [4, 5]
    assert found == {"a": 7}
    assert (alone / "elsewhere" / "whistle-mine").exists()  # not a place of ours


def test_a_commit_that_fails_is_told_and_the_training_is_not_finished(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*given: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    with whistlestop.run("demo", every=4) as run:
        run.track(state={"a": 1})
        for step in run.steps(6):
            if step == 4:
                run._saver.finish()  # type: ignore[union-attr]
                monkeypatch.setattr(CheckpointStore, "commit", full)
    monkeypatch.undo()
    monkeypatch.chdir(alone)
    assert "step 6 could not be saved (all steps done)" in capfd.readouterr().err
    root = alone / "whistle-checkpoints" / "demo" / "run-001"
    assert not (root / "finished").exists()
    assert [each.step for each in CheckpointStore(root.parent).list("run-001")] == [4]


def test_the_first_save_finds_its_room_prepared(attached: Any, stage: Path) -> None:
    model = torch.nn.Linear(2000, 1000)
    optimizer = torch.optim.Adam(model.parameters())
    with whistlestop.run() as run:
        run.track(model=model, optimizer=optimizer)
        for step in run.steps(6):
            if step == 4:
                run._saver._open_slots().wait_prepared()  # type: ignore[union-attr]
                assert not published(stage)
                for slot in staged.slots(stage):
                    assert slot.is_symlink()
                    assert (slot / "buffer").stat().st_size >= 3 * 8_000_000
            model(torch.ones(1, 2000)).sum().backward()
            optimizer.step()
    sizes = {slot.name: (slot / "buffer").stat().st_size for slot in staged.slots(stage)}
    assert len(set(sizes.values())) == 1
    assert json.loads((published(stage)[0] / "stage.json").read_text())["step"] == 6


@pytest.mark.parametrize("own", ["1", "0"])
def test_a_result_that_was_fetched_from_elsewhere_is_saved_again_only_if_it_is_of_another_run(
    attached: Any, stage: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str
) -> None:
    def train() -> None:
        with whistlestop.run() as run:
            run.track(state={"a": 1})
            list(run.steps(5))

    train()
    make_durable(attached, stage / "slot-0")
    (kept,) = attached.store.list("train")
    fetched = tmp_path / "fetched" / kept.path.name
    fetched.parent.mkdir()
    kept.path.rename(fetched)
    monkeypatch.setenv(layout.ENV_RESTORE, str(fetched))
    monkeypatch.setenv(layout.ENV_OWN, own)
    train()
    assert len(published(stage)) == (0 if own == "1" else 1)


def test_where_no_thread_can_be_started_it_is_saved_all_the_same(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    with whistlestop.run("demo", every=2) as run:
        run.track(state={"a": 1}, more={"much": bytes(9 << 20)})
        for step in run.steps(5):
            if step == 1:
                monkeypatch.setattr("threading.Thread.start", refuse)
    monkeypatch.undo()
    store = CheckpointStore(alone / "whistle-checkpoints" / "demo")
    newest, aside = store.newest("run-001")
    assert newest is not None
    assert (newest.step, aside) == (5, [])
    assert whistlestop.load(newest.path)["state"] == {"a": 1}
