"""From a slot to a checkpoint that counts: the local storage's own commit, fences, the trash."""

import os
from pathlib import Path

import pytest

from whistlestop.blobs import staged
from whistlestop.blobs.checkpoints import CheckpointStore, SaveFailed
from whistlestop.blobs.staged import Staged
from whistlestop.blobs.storage import DAY, Fenced
from whistlestop.testing import slots

BASE = os.urandom(3 << 20)  # does not change from save to save


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


def lay(directory: Path, step: int, attempt: int = 1, *, files: dict[str, bytes] | None = None) -> Staged:
    content = files if files is not None else {"parts/model/000000": BASE, "parts/model/index": b"step %d" % step}
    return slots.lay(directory, step, attempt=attempt, files=content)


def test_what_was_staged_is_committed_and_reads_back(store: CheckpointStore, tmp_path: Path) -> None:
    laid = lay(tmp_path / "slot-0", 500, files={"a": b"", "b/c": b"x", "big": os.urandom((9 << 20) + 13), "e": BASE})
    done = store.commit(laid)
    assert done.written == laid.bytes == done.checkpoint.bytes
    assert store.list("train") == [done.checkpoint]
    store.verify(done.checkpoint)
    whole = (laid.directory / "buffer").read_bytes()
    for piece in laid.pieces:
        assert (done.checkpoint.path / piece.name).read_bytes() == whole[piece.offset : piece.offset + piece.size]
        assert (
            b"".join(store.open_file(done.checkpoint, piece.name)) == (done.checkpoint.path / piece.name).read_bytes()
        )


def test_a_file_that_has_not_changed_is_not_written_again(store: CheckpointStore, tmp_path: Path) -> None:
    first = store.commit(lay(tmp_path / "slot-0", 1))
    second = store.commit(lay(tmp_path / "slot-0", 2))
    assert second.written < 0.05 * second.checkpoint.bytes
    assert (second.checkpoint.path / "parts/model/000000").stat().st_nlink == 2
    store.discard(first.checkpoint, 1.0)
    store.purge(first.checkpoint.phase, 2.0)
    store.verify(second.checkpoint)


def test_a_slot_is_the_runner_s_from_publish_to_release(tmp_path: Path) -> None:
    directory = tmp_path / "slot-0"
    directory.mkdir()
    assert staged.is_free(directory)
    assert staged.read(directory) is None
    lay(directory, 1)
    assert not staged.is_free(directory)
    assert list(staged.slots(tmp_path)) == [directory]
    staged.release(directory)
    staged.release(directory)
    assert staged.is_free(directory)


def test_a_slot_from_before_a_reboot_is_not_complete(tmp_path: Path) -> None:
    lay(tmp_path / "slot-0", 1)
    told = tmp_path / "slot-0" / staged.STAGE
    told.write_text(told.read_text().replace('"boot": "', '"boot": "another-'))
    assert staged.read(tmp_path / "slot-0") is None


@pytest.mark.parametrize(
    "bad",
    ["", "{}", "[]", '{"boot": 1}', "nonsense"],
)
def test_a_stage_file_that_makes_no_sense_is_refused_in_words(tmp_path: Path, bad: str) -> None:
    lay(tmp_path / "slot-0", 1)
    (tmp_path / "slot-0" / staged.STAGE).write_text(bad)
    if bad == '{"boot": 1}':
        assert staged.read(tmp_path / "slot-0") is None
        return
    with pytest.raises(SaveFailed, match="can't be read"):
        staged.read(tmp_path / "slot-0")


@pytest.mark.parametrize("name", ["../out", "/etc/passwd", "a/../../b", "manifest.json"])
def test_a_slot_can_not_name_what_is_not_its_own(tmp_path: Path, name: str) -> None:
    lay(tmp_path / "slot-0", 1, files={"a": b"1"})
    told = tmp_path / "slot-0" / staged.STAGE
    told.write_text(told.read_text().replace('["a"', f'["{name}"'))
    with pytest.raises(SaveFailed):
        staged.read(tmp_path / "slot-0")


def test_a_link_in_a_slot_leads_nowhere(store: CheckpointStore, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    laid = lay(tmp_path / "slot-0", 1, files={"a": b"123456"})
    (tmp_path / "slot-0" / "buffer").unlink()
    (tmp_path / "slot-0" / "buffer").symlink_to(tmp_path / "secret")
    with pytest.raises(Exception, match="through a link"):
        store.commit(laid)
    assert store.list("train") == []


def test_a_buffer_that_is_cut_short_is_no_checkpoint_and_ends_nobody(store: CheckpointStore, tmp_path: Path) -> None:
    laid = lay(tmp_path / "slot-0", 1)
    os.truncate(tmp_path / "slot-0" / "buffer", 1 << 20)
    with pytest.raises(SaveFailed, match="shorter"):
        store.commit(laid)
    assert os.listdir(store.root / "train") == []


def test_an_attempt_that_was_fenced_can_not_commit(store: CheckpointStore, tmp_path: Path) -> None:
    store.open_attempt("train", 1, "a-1")
    kept = store.commit(lay(tmp_path / "slot-0", 1)).checkpoint
    late = lay(tmp_path / "slot-0", 2)
    store.open_attempt("train", 2, "a-2")
    store.open_attempt("train", 2, "a-2")
    with pytest.raises(Fenced, match="attempt 2 of train has begun"):
        store.commit(late)
    with pytest.raises(Fenced):
        store.open_attempt("train", 1, "a-1")
    with pytest.raises(Fenced, match="is a-2, not a-3"):
        store.open_attempt("train", 2, "a-3")
    assert [each.id for each in store.list("train")] == [kept.id]


def test_one_that_slips_in_behind_the_fence_does_not_count_and_is_swept(store: CheckpointStore, tmp_path: Path) -> None:
    store.open_attempt("train", 1, "a-1")
    kept = store.commit(lay(tmp_path / "slot-0", 5)).checkpoint
    writer = store.begin("train", 9, 1, "a-1")
    writer.add_bytes("a", b"late")
    store.open_attempt("train", 2, "a-2")
    late = writer.commit({})  # it had looked at the fence before it was there
    assert late.path.exists()
    assert store.newest("train") == (kept, [])
    mine = store.commit(lay(tmp_path / "slot-0", 7, attempt=2)).checkpoint
    assert store.sweep("train", 2) == 1
    assert not late.path.exists()
    assert store.list("train") == [mine, kept]
    store.open_attempt("train", 3, "a-3")
    store.sweep("train", 3)
    assert store.list("train") == [mine, kept]
    assert sorted(os.listdir(store.root / "train")) == ["fence-000000003.json", kept.path.name, mine.path.name]


def test_what_was_removed_can_be_had_back_for_a_day(store: CheckpointStore, tmp_path: Path) -> None:
    one, two = (store.commit(lay(tmp_path / "slot-0", step)).checkpoint for step in (1, 2))
    store.discard(one, 1000.0)
    store.discard(one, 1001.0)
    assert store.list("train") == [two]
    assert store.trashed("train") == [(one, 1000.0)]
    assert store.sweep("train", 1) == 0
    store.recover(one)
    store.recover(one)
    assert store.list("train") == [two, one]
    store.verify(one)
    store.discard(one, 1000.0)
    assert store.purge("train", 1000.0) == 0
    assert store.purge("train", 1000.0 + DAY) == 1
    with pytest.raises(Exception, match="for good"):
        store.recover(one)
    store.verify(two)


def test_what_was_removed_under_an_earlier_attempt_counts_again_when_it_is_had_back(
    store: CheckpointStore, tmp_path: Path
) -> None:
    store.open_attempt("train", 1, "a-1")
    one = store.commit(lay(tmp_path / "slot-0", 1)).checkpoint
    store.discard(one, 1000.0)
    store.open_attempt("train", 2, "a-2")
    store.recover(one)
    store.sweep("train", 2)
    assert store.list("train") == [one]


@pytest.mark.parametrize("content", [b"", b"no JSON"])
def test_one_whose_manifest_can_not_be_read_is_set_aside_and_not_swept_by_the_next_attempt(
    store: CheckpointStore, tmp_path: Path, content: bytes
) -> None:
    store.open_attempt("train", 1, "a-1")
    one, two = (store.commit(lay(tmp_path / "slot-0", step)).checkpoint for step in (1, 2))
    manifest = two.path / "manifest.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(content)
    store.open_attempt("train", 2, "a-2")
    found, aside = store.newest("train")
    assert (found, [each.path for each, _ in aside]) == (one, [two.path])
    store.sweep("train", 2)
    manifest.write_bytes(whole)
    assert store.newest("train") == (two, [])


def test_a_file_that_has_rotted_is_not_linked_to_for_ever(store: CheckpointStore, tmp_path: Path) -> None:
    first = store.commit(lay(tmp_path / "slot-0", 1)).checkpoint
    (first.path / "parts/model/000000").write_bytes(BASE[::-1])
    second = store.commit(lay(tmp_path / "slot-0", 2))
    store.verify(second.checkpoint)
    assert second.written == second.checkpoint.bytes


def test_a_name_in_the_trash_is_not_used_again(store: CheckpointStore, tmp_path: Path) -> None:
    first = store.commit(lay(tmp_path / "slot-0", 1)).checkpoint
    store.discard(first, 1000.0)
    second = store.commit(lay(tmp_path / "slot-0", 1)).checkpoint
    assert second.revision == 1
    store.recover(first)
    assert store.list("train") == [second, first]


@pytest.mark.parametrize("step", [-1, 10**15])
def test_a_step_that_can_not_be_is_refused(tmp_path: Path, step: int) -> None:
    with pytest.raises(SaveFailed, match="there is no step"):
        lay(tmp_path / "slot-0", step)
