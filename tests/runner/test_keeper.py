"""The keeper of checkpoints: what is read back, what is told, and what goes."""

import threading
from pathlib import Path
from typing import Any

import pytest
from runner_kit import until

from whistlestop.blobs.checkpoints import Checkpoint, CheckpointStore
from whistlestop.runner.checkpoints import CheckpointKeeper


class Told(list[tuple[str, dict[str, Any]]]):
    def __call__(self, kind: str, text: str, **data: Any) -> None:
        self.append((kind, data | {"text": text}))

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self]


class Counting(CheckpointStore):
    """Counts what is read back; `hold` keeps it from ending, `stuck` ids resist removal."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.verified: list[int] = []
        self.hold = threading.Event()
        self.hold.set()
        self.stuck: dict[int, bool] = {}  # step -> whether its manifest goes

    def verify(self, checkpoint: Checkpoint) -> None:
        self.verified.append(checkpoint.step)
        self.hold.wait(20)
        super().verify(checkpoint)

    def remove(self, checkpoint: Checkpoint) -> None:
        if checkpoint.step in self.stuck:
            if self.stuck[checkpoint.step]:
                (checkpoint.path / "manifest.json").unlink()
            raise PermissionError(13, "Permission denied", str(checkpoint.path / "read-only"))
        super().remove(checkpoint)

    def save(self, *steps: int, **meta: object) -> None:
        for step in steps:
            writer = self.begin("train", step, 1, "a-1")
            writer.add_bytes("state", b"weights" * 1000)
            writer.commit(meta)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    return Counting(tmp_path)


def test_a_checkpoint_is_told_with_the_saves_that_it_answers(store: Counting) -> None:
    store.save(1)
    between = store.list("train")[0].at
    store.save(2)
    told = Told()
    one = CheckpointKeeper(store, "train", keep=9, protected=(), tell=told, answers=lambda at: 3 if at > between else 0)
    one.start()
    one.finish()
    assert [(data["step"], data["saves"]) for kind, data in told if kind == "checkpoint"] == [(1, 0), (2, 3)]


def keeper(store: Counting, told: Told, keep: int = 10) -> CheckpointKeeper:
    return CheckpointKeeper(store, "train", keep=keep, protected=(), tell=told)


def judge_all(store: Counting, keep: int = 10) -> Told:
    told = Told()
    one = keeper(store, told, keep)
    one.start()
    one.finish()
    return told


def test_what_was_read_back_before_is_told_again_but_not_hashed_again(store: Counting) -> None:
    store.save(1, 2)
    assert judge_all(store).kinds() == ["checkpoint", "checkpoint"]
    store.save(3)
    assert judge_all(store).kinds() == ["checkpoint"] * 3
    assert sorted(store.verified) == [1, 2, 3]


def test_what_has_changed_since_is_hashed_again(store: Counting) -> None:
    store.save(1)
    judge_all(store)
    path = store.list("train")[0].path
    (path / "state").write_bytes(b"WEIGHTS" * 1000)
    assert judge_all(store).kinds() == ["checkpoint_set_aside"]


def test_a_kill_does_not_wait_for_hashing_and_the_next_one_reports_the_rest(store: Counting) -> None:
    store.save(1, 2, 3)
    store.hold.clear()
    told = Told()
    one = keeper(store, told)
    one.start()
    until(lambda: store.verified, "the first to be read")
    one.finish(0.01)
    store.hold.set()
    one._thread.join(20)
    assert not one._thread.is_alive()
    assert told == []
    assert len(store.verified) == 1
    assert judge_all(store).kinds() == ["checkpoint"] * 3


@pytest.mark.parametrize("manifest_goes", [True, False])
def test_one_that_can_not_be_removed_does_not_keep_the_others(store: Counting, manifest_goes: bool) -> None:
    store.save(1, 2, 3, 4)
    store.stuck[1] = manifest_goes
    ids = {each.step: each.id for each in store.list("train")}
    told = judge_all(store, keep=2)
    removed = {each for kind, data in told if kind == "checkpoints_removed" for each in data["ids"]}
    assert removed == ({ids[1], ids[2]} if manifest_goes else {ids[2]})
    assert told.kinds().count("notice") == 1
    assert [each.step for each in store.list("train")] == ([4, 3] if manifest_goes else [4, 3, 1])


def test_an_unhealthy_checkpoint_is_told_as_such_and_does_not_drive_out_the_last_good_one(store: Counting) -> None:
    store.save(1, 2)
    store.save(3, 4, 5, healthy=False)
    told = judge_all(store, keep=2)
    healthy = {data["step"]: data["healthy"] for kind, data in told if kind == "checkpoint"}
    assert healthy == {1: True, 2: True, 3: False, 4: False, 5: False}
    assert [each.step for each in store.list("train")] == [5, 4, 2]
