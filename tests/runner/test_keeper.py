"""The keeper of checkpoints: what is made durable, what is told, and what goes."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runner_kit import until

from whistlestop.blobs import staged
from whistlestop.blobs.checkpoints import Checkpoint, CheckpointStore, SaveFailed
from whistlestop.blobs.retention import Policy
from whistlestop.blobs.staged import Staged
from whistlestop.blobs.storage import Committed, StorageFailed
from whistlestop.runner import checkpoints
from whistlestop.runner.checkpoints import CheckpointKeeper
from whistlestop.testing.slots import lay


class Told(list[tuple[str, dict[str, Any]]]):
    def __call__(self, kind: str, text: str, **data: Any) -> None:
        self.append((kind, data | {"text": text}))

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self]

    def steps(self) -> list[int]:
        return [data["step"] for kind, data in self if kind == "checkpoint"]


class Moody(CheckpointStore):
    """`failures` are raised by the next commits, `hold` keeps one from beginning, `stuck` steps resist removal."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begun: list[int] = []
        self.failures: list[Exception] = []
        self.hold = threading.Event()
        self.hold.set()
        self.stuck: set[int] = set()
        self.removing = threading.Event()  # cleared: a removal takes its time
        self.removing.set()
        self.looking = threading.Event()  # cleared: so does a look at what is there
        self.looking.set()
        self.unlisted: list[Exception] = []  # raised by the next looks at what is there

    def list(self, phase: str) -> list[Checkpoint]:
        self.looking.wait(20)
        if self.unlisted:
            raise self.unlisted.pop(0)
        return super().list(phase)

    def commit(self, found: Staged, *, cancelled: Callable[[], bool] = lambda: False) -> Committed:
        self.begun.append(found.step)
        self.hold.wait(20)
        if self.failures:
            raise self.failures.pop(0)
        return super().commit(found, cancelled=cancelled)

    def discard(self, checkpoint: Checkpoint, now: float) -> None:
        self.removing.wait(20)
        if checkpoint.step in self.stuck:
            raise PermissionError(13, "Permission denied", str(checkpoint.path / "read-only"))
        super().discard(checkpoint, now)


class Desk:
    def __init__(self, root: Path) -> None:
        self.store = Moody(root / "checkpoints")
        self.stage = root / "stage"
        self.told = Told()
        self.durable: list[int] = []
        self.failed = 0

    def keeper(self, attempt: int = 1, **more: Any) -> CheckpointKeeper:
        more.setdefault("policy", Policy(last=9))
        more.setdefault("durable", lambda step, seconds: self.durable.append(step))
        return CheckpointKeeper(
            self.store,
            "train",
            (attempt, f"a-{attempt}"),
            self.stage,
            protected=(),
            tell=self.told,
            failed=self._fail,
            **more,
        )

    def _fail(self) -> None:
        self.failed += 1

    def lay(self, step: int, slot: int = 0, **more: Any) -> str:
        made = lay(self.stage / f"slot-{slot}", step, files={"state": b"weights" * 1000, "s": b"%d" % step}, **more)
        return str(made.directory)

    def save(self, keeper: CheckpointKeeper, *steps: int) -> None:
        for step in steps:
            keeper.announce(self.lay(step))
            until(lambda: staged.is_free(self.stage / "slot-0"), "the slot to be free")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_what_is_staged_becomes_a_checkpoint_and_its_slot_is_free_again(desk: Desk) -> None:
    keeper = desk.keeper(answers=lambda at: 3 if at > 10 else 0)
    keeper.start()
    keeper.announce(desk.lay(1))
    keeper.announce(desk.lay(2, slot=1, at=11.0))
    keeper.finish()
    assert [(data["step"], data["saves"]) for kind, data in desk.told if kind == "checkpoint"] == [(1, 0), (2, 3)]
    assert desk.durable == [1, 2]
    assert keeper.saved_step == 2
    assert all(staged.is_free(slot) for slot in staged.slots(desk.stage))
    said = desk.told[0][1]
    assert (said["block_seconds"], said["written"], said["why"], said["verified"]) == (0.01, 7001, "test", True)


def test_what_was_staged_and_never_announced_is_found_at_the_end(desk: Desk) -> None:
    keeper = desk.keeper()
    keeper.start()
    desk.lay(1)
    keeper.finish()
    assert desk.told.steps() == [1]


def test_what_the_last_runner_committed_and_did_not_report_is_told_again(desk: Desk) -> None:
    keeper = desk.keeper()
    keeper.start()
    desk.save(keeper, 1, 2)
    keeper.finish()
    desk.told.clear()
    again = desk.keeper()
    again.start()
    again.finish()
    assert desk.told.steps() == [1, 2]
    assert again.saved_step == 2


@pytest.mark.parametrize("elsewhere", ["other/slot-0", "stage/else", "stage/../checkpoints/slot-0"])
def test_only_slots_of_this_attempt_are_looked_at(desk: Desk, tmp_path: Path, elsewhere: str) -> None:
    keeper = desk.keeper()
    keeper.start()
    made = lay(tmp_path / elsewhere, 1, files={"a": b"1"})
    keeper.announce(str(made.directory))
    keeper.announce(desk.lay(5, attempt=2))
    keeper.finish()
    assert desk.told.steps() == []
    assert [data["text"] for kind, data in desk.told if kind == "save_failed"] == [
        f"A save was given up: {desk.stage / 'slot-0'} belongs to attempt 2 of train. The ones before it are untouched."
    ]


def test_a_storage_that_fails_is_tried_again_until_it_works(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "FIRST_DELAY", 0.001)
    desk.store.failures = [StorageFailed("it answered 503"), StorageFailed("it answered 500")]
    keeper = desk.keeper()
    keeper.start()
    desk.save(keeper, 1)
    keeper.finish()
    assert desk.told.kinds() == ["save_failed", "checkpoint"]
    assert "Step 1 is not safe yet: it answered 503" in desk.told[0][1]["text"]
    assert desk.store.begun == [1, 1, 1]
    assert desk.failed == 0


@pytest.mark.parametrize(
    "failure", [SaveFailed("the slot makes no sense"), OverflowError("what nobody thought of")], ids=["ours", "any"]
)
def test_what_can_not_be_helped_is_given_up_and_the_next_save_works(desk: Desk, failure: Exception) -> None:
    desk.store.failures = [failure]
    keeper = desk.keeper()
    keeper.start()
    desk.save(keeper, 1, 2)
    keeper.finish()
    assert desk.told.kinds() == ["save_failed", "checkpoint"]
    assert desk.told.steps() == [2]
    assert desk.failed == 1


def test_when_the_program_has_ended_a_storage_is_not_waited_for_for_ever(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(checkpoints, "PATIENCE", 0.05)
    desk.store.failures = [StorageFailed("it is away")] * 100_000
    keeper = desk.keeper()
    keeper.start()
    keeper.announce(desk.lay(1))
    keeper.finish()
    assert desk.told.kinds() == ["save_failed", "save_failed"]
    assert desk.told[-1][1]["final"]
    assert keeper.saved_step is None


def test_a_file_system_that_hiccups_is_tried_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "FIRST_DELAY", 0.001)
    desk.store.failures = [OSError(116, "Stale file handle")]
    keeper = desk.keeper()
    keeper.start()
    desk.save(keeper, 1)
    keeper.finish()
    assert desk.told.kinds() == ["save_failed", "checkpoint"]


def test_a_slot_is_found_without_being_told_of(desk: Desk) -> None:
    keeper = desk.keeper()
    keeper.start()
    desk.lay(1)
    for _ in range(3):
        keeper.scan()
    until(lambda: desk.told.steps() == [1], "the checkpoint")
    keeper.finish()
    assert desk.store.begun == [1]


def test_a_fenced_attempt_gives_up_at_once(desk: Desk) -> None:
    desk.store.open_attempt("train", 2, "a-2")
    keeper = desk.keeper()
    keeper.start()
    keeper.announce(desk.lay(1))
    keeper.finish()
    assert desk.told.kinds() == ["notice"]
    assert "attempt 2 of train has begun" in desk.told[0][1]["text"]
    assert desk.store.list("train") == []


def test_a_kill_does_not_wait_for_an_upload_and_nothing_is_told_behind_it(desk: Desk) -> None:
    desk.store.hold.clear()
    keeper = desk.keeper()
    keeper.start()
    keeper.announce(desk.lay(1))
    keeper.announce(desk.lay(2, slot=1))
    until(lambda: desk.store.begun, "the first to be written")
    assert not keeper.finish(0.01)
    desk.store.hold.set()
    keeper._thread.join(20)
    assert not keeper._thread.is_alive()
    assert desk.told == []
    assert desk.store.begun == [1]


def test_what_is_given_up_at_the_end_is_not_safe_though_its_slot_is_free(desk: Desk) -> None:
    desk.store.failures = [StorageFailed("away")]
    keeper = desk.keeper()
    keeper.announce(desk.lay(1))
    until(desk.told.kinds, "the failure")
    safe = keeper.finish(0.01)
    keeper._thread.join(20)
    assert not keeper.busy
    assert safe is False


def test_what_is_told_is_safe_while_older_ones_are_being_removed(desk: Desk) -> None:
    keeper = desk.keeper(policy=Policy(last=1))
    keeper.start()
    desk.store.removing.clear()
    desk.save(keeper, 1, 2)
    until(lambda: desk.told.steps() == [1, 2], "the second to be told of")
    assert keeper.busy
    assert keeper.finish(0.01)
    desk.store.removing.set()
    keeper._thread.join(20)


@pytest.mark.parametrize("step", [-1000.0, 1000.0])
def test_a_clock_that_is_set_meanwhile_does_not_change_how_long_a_save_takes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    taken: list[float] = []
    desk.store.hold.clear()
    keeper = desk.keeper(durable=lambda step, seconds: taken.append(seconds))
    now = time.time
    keeper.announce(desk.lay(1, at=now() - 100))
    until(lambda: desk.store.begun, "the save to be written")
    monkeypatch.setattr(time, "time", lambda: now() + step)
    desk.store.hold.set()
    keeper.finish()
    assert taken == [pytest.approx(100, abs=10)]


def test_a_kill_that_comes_while_the_last_save_is_written_does_not_wait_for_it(desk: Desk) -> None:
    desk.store.hold.clear()
    keeper = desk.keeper()
    keeper.start()
    keeper.announce(desk.lay(1))
    ending = threading.Thread(target=keeper.finish)
    ending.start()
    until(lambda: desk.store.begun, "the save to be written")
    assert keeper.busy
    keeper.abandon()
    ending.join(20)
    assert not ending.is_alive()
    desk.store.hold.set()
    assert desk.told == []


def test_older_ones_go_and_can_be_had_back(desk: Desk) -> None:
    keeper = desk.keeper(policy=Policy(last=2))
    keeper.start()
    desk.save(keeper, 1, 2, 3)
    keeper.finish()
    assert [each.step for each in desk.store.list("train")] == [3, 2]
    ((one, at),) = desk.store.trashed("train")
    assert one.step == 1
    (said,) = [data for kind, data in desk.told if kind == "checkpoints_removed"]
    assert (said["ids"], said["until"] - at > 86_000) == ([one.id], True)


def test_what_a_guard_has_passed_over_takes_nobodys_place_and_goes_when_training_has_come_as_far(desk: Desk) -> None:
    keeper = desk.keeper(policy=Policy(last=2))
    keeper.start()
    desk.save(keeper, 2, 8)
    keeper.finish()
    desk.stage = desk.stage.with_name("again")
    keeper = desk.keeper(attempt=2, policy=Policy(last=2), over=[[1, 5]])
    keeper.start()
    for step, there in ((4, [8, 4, 2]), (6, [8, 6, 4]), (9, [9, 6])):
        keeper.announce(desk.lay(step, attempt=2))
        until(lambda: staged.is_free(desk.stage / "slot-0"), "the slot to be free")
        until(lambda there=there: [each.step for each in desk.store.list("train")] == there, f"{there} to be left")
    keeper.finish()


def test_one_that_can_not_be_removed_does_not_keep_the_others(desk: Desk) -> None:
    desk.store.stuck = {1}
    keeper = desk.keeper(policy=Policy(last=2))
    keeper.start()
    desk.save(keeper, 1, 2, 3, 4)
    keeper.finish()
    assert [each.step for each in desk.store.list("train")] == [4, 3, 1]
    assert desk.told.kinds().count("notice") == 1


def test_while_a_storage_fails_the_newest_that_is_staged_is_tried(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "FIRST_DELAY", 0.001)
    desk.store.failures = [StorageFailed("it is away") for _ in range(3)]
    keeper = desk.keeper()
    for slot in [desk.lay(1), desk.lay(2, slot=1)]:
        keeper.announce(slot)
    until(lambda: not keeper.busy, "both slots to be free")
    keeper.finish()
    assert desk.store.begun == [1, 2, 2, 2]
    assert [(kind, data["step"]) for kind, data in desk.told] == [("save_failed", 1), ("checkpoint", 2)]
    assert desk.told[0][1]["text"] == "Step 1 is given up for step 2: it is away. The ones before it are untouched."
    assert (desk.told[0][1]["final"], desk.told[0][1]["why"]) == (True, "test")
    assert desk.failed == 1


def test_how_long_a_save_took_counts_from_when_it_was_handed_over(desk: Desk) -> None:
    keeper = desk.keeper()
    keeper.start()
    keeper.announce(desk.lay(1, at=time.time() - 100))
    keeper.finish()
    assert 100 <= desk.told[0][1]["upload_seconds"] < 160


def test_what_a_person_has_removed_is_not_counted_among_those_that_stay(desk: Desk) -> None:
    keeper = desk.keeper(policy=Policy(last=2, best=1, by="loss"))
    keeper.start()
    for step in (1, 2, 3, 4):
        keeper.announce(desk.lay(step, meta={"metrics": {"loss": step / 10}}))
        until(lambda: staged.is_free(desk.stage / "slot-0"), "the slot to be free")
        if step == 2:
            until(lambda: desk.told.steps() == [1, 2], "both to be told of")
            desk.store.discard(desk.store.list("train")[-1], time.time())
    keeper.finish()
    assert [each.step for each in desk.store.list("train")] == [4, 3, 2], "2 is the best of those that are there"


def test_what_is_no_longer_pinned_goes_by_the_rules_again(desk: Desk) -> None:
    keeper = desk.keeper(policy=Policy(last=1))
    keeper.start()
    desk.save(keeper, 1)
    until(lambda: desk.told.steps() == [1], "it to be told of")
    (first,) = desk.store.list("train")
    keeper.protect([first.id])
    desk.save(keeper, 2)
    until(lambda: desk.told.steps() == [1, 2], "it to be told of")
    assert [each.step for each in desk.store.list("train")] == [2, 1]
    keeper.protect([])
    desk.save(keeper, 3)
    keeper.finish()
    assert [each.step for each in desk.store.list("train")] == [3]


def test_what_could_not_be_looked_at_in_the_beginning_is_looked_at_with_the_next_save(desk: Desk) -> None:
    before = desk.keeper()
    before.start()
    desk.save(before, 1)
    before.finish()
    desk.told.clear()
    desk.store.unlisted = [StorageFailed("it is away")]
    keeper = desk.keeper(2)
    keeper.start()
    keeper.announce(desk.lay(2, attempt=2))
    keeper.finish()
    assert sorted(desk.told.steps()) == [1, 2]
    (said,) = [data["text"] for kind, data in desk.told if kind == "notice"]
    assert "it is away" in said


def test_an_end_with_nothing_to_save_does_not_wait_for_a_storage_that_hangs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "LOOK_PATIENCE", 0.01)
    desk.store.looking.clear()
    keeper = desk.keeper()
    keeper.start()
    keeper.finish()
    desk.store.looking.set()
    assert desk.told == []


def test_a_keeper_that_was_not_started_starts_with_the_first_save(desk: Desk) -> None:
    keeper = desk.keeper()
    desk.lay(1)
    keeper.finish()
    assert desk.told.steps() == [1]
    idle = desk.keeper()
    idle.finish()
    assert desk.told.steps() == [1], "nobody has looked"


def test_a_slot_that_is_used_again_while_older_ones_are_removed_is_not_overlooked(desk: Desk) -> None:
    keeper = desk.keeper(policy=Policy(last=1))
    keeper.start()
    desk.save(keeper, 1)
    desk.store.removing.clear()
    desk.save(keeper, 2)  # the slot is free, and retention is at work
    keeper.announce(desk.lay(3))
    ending = threading.Thread(target=keeper.finish)
    ending.start()
    until(lambda: keeper._ending is not None, "the end")
    desk.store.removing.set()
    ending.join(20)
    assert not ending.is_alive()
    assert desk.told.steps() == [1, 2, 3]


def test_whoever_finds_a_slot_free_finds_the_word_about_it(desk: Desk) -> None:
    found: list[bool] = []
    keeper = desk.keeper(durable=lambda step, seconds: found.append(staged.is_free(desk.stage / "slot-0")))
    keeper.start()
    desk.save(keeper, 1)
    keeper.finish()
    assert found == [False]


def test_an_attempt_that_is_over_removes_nothing(desk: Desk) -> None:
    def durable(step: int, seconds: float) -> None:
        if step == 2:  # right behind its commit
            desk.store.open_attempt("train", 2, "a-2")

    keeper = desk.keeper(policy=Policy(last=1), durable=durable)
    keeper.start()
    desk.save(keeper, 1, 2)
    keeper.finish()
    assert [each.step for each in desk.store.list("train")] == [2, 1]
    assert desk.told.kinds() == ["checkpoint", "checkpoint"]
