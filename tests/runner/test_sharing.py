"""The keepers of two nodes, each with a disk of its own: one checkpoint of what both have staged, or none, in words."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_kit import until

from whistlestop.blobs import staged
from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.blobs.retention import Policy
from whistlestop.blobs.staged import Share
from whistlestop.runner import sharing
from whistlestop.runner.checkpoints import CheckpointKeeper
from whistlestop.testing.slots import lay


class Desk:
    """One node's."""

    def __init__(self, root: Path, node: int, nodes: int = 2) -> None:
        self.node, self.nodes = node, nodes
        self.stage = root / f"node-{node}" / "stage"
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.store = CheckpointStore(root / "checkpoints")
        self.keeper = self.make()

    def make(self) -> CheckpointKeeper:
        return CheckpointKeeper(
            self.store,
            "train",
            (1, "a-1"),
            self.stage,
            node=self.node,
            nodes=self.nodes,
            policy=Policy(last=9),
            protected=(),
            tell=lambda kind, text, **data: self.told.append((kind, data | {"text": text})),
        )

    def save(self, step: int, number: int, *, damage: bool = False) -> Path:
        slot = self.stage / f"slot-{number % 2}"
        files = {f"ranks/{self.node}/parts/shard": b"%d" % step, **({} if self.node else {"parts/model": b"model"})}
        share = Share(f"abc-{number}", self.node, self.nodes)
        made = lay(slot, step, files=files, share=share, at=time.time())
        if damage:
            (slot / staged.BUFFER).write_bytes(b"")
        self.keeper.announce(str(made.directory))
        return slot

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.told]

    def words(self, kind: str) -> str:
        return " ".join(data["text"] for each, data in self.told if each == kind)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Desk, Desk]]:
    first, second = Desk(tmp_path, 0), Desk(tmp_path, 1)
    yield first, second
    for each in (first, second):
        each.keeper.finish(0.0)


def test_the_first_node_commits_when_the_other_has_brought_its_share(nodes: tuple[Desk, Desk]) -> None:
    first, second = nodes
    slot = first.save(10, 1)
    until(lambda: first.store.shares(made(slot)).brought, "its own share")
    assert first.kinds() == []
    other = second.save(10, 1)
    until(lambda: staged.is_free(slot), "the checkpoint")
    assert staged.is_free(other)
    (done,) = first.store.list("train")
    assert sorted(done.files) == ["parts/model", "ranks/0/parts/shard", "ranks/1/parts/shard"]
    until(lambda: first.kinds() == ["checkpoint"], "the word of it")
    assert second.told == []  # the first one tells of it, and of what was there before
    assert first.keeper.saved_step == 10


def test_a_node_that_dies_means_no_checkpoint_and_that_is_said(nodes: tuple[Desk, Desk]) -> None:
    first, second = nodes
    first.save(10, 1)
    second.save(10, 1)
    until(lambda: first.kinds() == ["checkpoint"], "the first checkpoint")
    slot = first.save(20, 2)  # and the other one is gone
    until(lambda: first.keeper._sharing.open is not None, "it to wait")
    assert not first.keeper.finish(0.1)
    assert first.kinds() == ["checkpoint", "save_failed"]
    assert first.words("save_failed") == (
        "Step 20 is given up: node 1 has not brought its ranks' part of it. The ones before it are untouched."
    )
    assert [each.step for each in first.store.list("train")] == [10]
    until(lambda: staged.is_free(slot), "the slot to be let go of")


def test_what_ends_while_it_waits_for_a_share_can_be_hurried(nodes: tuple[Desk, Desk]) -> None:
    first, _ = nodes
    first.save(20, 1)
    until(lambda: first.keeper._sharing.open is not None, "it to wait")
    first.keeper.hurry(0.1)
    assert not first.keeper.finish()
    assert "node 1 has not brought" in first.words("save_failed")


def test_a_node_that_can_t_save_its_part_says_so_to_the_first(nodes: tuple[Desk, Desk]) -> None:
    first, second = nodes
    slot = first.save(10, 1)
    second.save(10, 1, damage=True)
    until(lambda: staged.is_free(slot), "the save to be given up")
    until(lambda: "save_failed" in first.kinds(), "the word of it")
    assert "node 1 could not save its ranks' part of step 10" in first.words("save_failed")
    assert "is shorter than" in first.words("save_failed")
    assert first.store.list("train") == []
    # The next one is as any other.
    slot = first.save(20, 2)
    second.save(20, 2)
    until(lambda: staged.is_free(slot), "the next checkpoint")
    assert [each.step for each in first.store.list("train")] == [20]


def test_a_share_that_has_not_come_when_the_program_is_long_over_is_not_waited_for(
    nodes: tuple[Desk, Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "PATIENCE", 0.2)
    first, _ = nodes
    first.save(20, 1)
    assert first.keeper.finish()  # nothing is at risk any more: it is given up
    assert "node 1 has not brought its ranks' part of it for" in first.words("save_failed")


def test_a_runner_that_died_behind_the_join_does_not_wait_for_shares_that_were_used(nodes: tuple[Desk, Desk]) -> None:
    first, second = nodes
    slot = first.save(10, 1)
    found = made(slot)
    second.save(10, 1)
    until(lambda: first.kinds() == ["checkpoint"], "the checkpoint")
    staged.publish(found)  # as if it had died before the slot was freed
    after = Desk(slot.parents[2], 0)
    after.keeper.start()
    assert after.keeper.finish()
    assert [data["step"] for kind, data in after.told if kind == "checkpoint"] == [10, 10]
    assert len(after.store.list("train")) == 1


def made(slot: Path) -> staged.Staged:
    found = staged.read(slot)
    assert found is not None
    return found
