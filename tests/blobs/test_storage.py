"""What every storage promises, on a directory and on a real S3 server."""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.blobs.manifest import MANIFEST, BadName, Checkpoint, Damaged, SaveFailed
from whistlestop.blobs.remote import RemoteStorage
from whistlestop.blobs.storage import Committed, Fenced, Removed, Storage, StorageFailed
from whistlestop.testing.slots import lay

BASE = os.urandom(2 << 20)  # does not change from save to save


class Place:
    """One storage, and another object for it as a second process has."""

    def __init__(self, again: Callable[[], Storage], directory: Path) -> None:
        self.again = again
        self.storage = again()
        self.directory = directory
        self._laid = 0

    def save(
        self, step: int, *, attempt: int = 1, files: dict[str, bytes] | None = None, storage: Storage | None = None
    ) -> Committed:
        self._laid += 1
        content = files if files is not None else {"parts/m/000000": BASE, "parts/m/index": b"%d" % step}
        laid = lay(self.directory / f"slot-{self._laid}", step, attempt=attempt, files=content, phase="main")
        return (storage or self.storage).commit(laid)

    def rot(self, checkpoint: Checkpoint, name: str) -> None:
        """One byte of a file is another one."""
        data = bytearray(b"".join(self.storage.open_file(checkpoint, name)))
        data[len(data) // 2] ^= 1
        if isinstance(self.storage, RemoteStorage):
            self.storage._objects.put(f"main/parts/{checkpoint.files[name].sha256}", bytes(data))
        else:
            path = checkpoint.path / name
            path.unlink()
            path.write_bytes(data)


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(lambda: CheckpointStore(tmp_path / "checkpoints"), tmp_path)
    server = request.getfixturevalue("s3")
    bucket = server.bucket()
    return Place(lambda: RemoteStorage(f"s3://{bucket}/some/where/r-1", server.options), tmp_path)


def steps(found: list[Checkpoint]) -> list[int]:
    return [each.step for each in found]


def test_what_was_committed_is_listed_verified_fetched_and_read(place: Place, tmp_path: Path) -> None:
    content = {
        "empty": b"",
        "a/b/one": b"x",
        "parts/m/000000": BASE,
        "again": BASE,
        "large": os.urandom((33 << 20) + 7),
    }
    laid = lay(tmp_path / "slot", 500, files=content, phase="main", meta={"loss": 0.5})
    done = place.storage.commit(laid)
    saved = done.checkpoint
    assert place.again().list("main") == place.storage.list("main") == [saved]
    assert (saved.step, saved.attempt_number, saved.attempt_id, saved.meta) == (500, 1, "a-1", {"loss": 0.5})
    assert saved.bytes == laid.bytes
    assert sorted(saved.files) == sorted(content)
    assert laid.bytes - len(BASE) <= done.written <= laid.bytes
    place.storage.verify(saved)
    assert place.again().newest("main") == (saved, [])
    fetched = place.again().fetch(saved, tmp_path / "into")
    for name, data in content.items():
        assert (fetched / name).read_bytes() == data
        assert b"".join(place.storage.open_file(saved, name)) == data
    assert (fetched / MANIFEST).exists()
    with pytest.raises(BadName):
        list(place.storage.open_file(saved, "other"))


def test_nothing_there_is_not_an_error(place: Place) -> None:
    assert place.storage.list("main") == []
    assert place.storage.newest("main") == (None, [])
    assert place.storage.trashed("main") == []
    assert place.storage.sweep("main", 1) == place.storage.purge("main", 1e12) == 0
    place.storage.remove_all()


def test_it_can_be_tried_and_nothing_is_left_of_the_trial(place: Place) -> None:
    assert place.storage.probe("main").conditional
    assert place.storage.list("main") == []
    assert place.storage.sweep("main", 1) == 0


def test_the_list_is_newest_first_and_the_same_step_again_is_a_revision(place: Place) -> None:
    for step in (100, 1000, 200, 200):
        place.save(step)
    found = place.storage.list("main")
    assert [(each.step, each.revision) for each in found] == [(1000, 0), (200, 1), (200, 0), (100, 0)]
    assert len({each.id for each in found}) == 4
    place.storage.discard(found[1], 1.0)
    assert place.save(200).checkpoint.revision == 2, "a name that is in the trash"
    place.storage.recover(found[1])
    assert [each.revision for each in place.storage.list("main") if each.step == 200] == [2, 1, 0]


def test_what_has_not_changed_is_not_written_again(place: Place) -> None:
    first = place.save(1)
    assert first.written >= len(BASE)
    for storage in (place.storage, place.again()):
        assert place.save(2, storage=storage).written < 0.05 * len(BASE)


def test_a_slot_that_is_shorter_than_it_says_is_no_checkpoint(place: Place, tmp_path: Path) -> None:
    older = place.save(1).checkpoint
    laid = lay(tmp_path / "slot", 2, files={"a": b"x" * 1000}, phase="main")
    os.truncate(laid.directory / "buffer", 500)
    with pytest.raises(SaveFailed):
        place.storage.commit(laid)
    assert place.storage.list("main") == [older]


@pytest.mark.parametrize("wrong", ["gone", "a link", "far away", "inside a file", "long name"])
def test_a_slot_that_can_never_be_read_is_not_tried_again(place: Place, tmp_path: Path, wrong: str) -> None:
    """Whoever commits tries again if there is a cause that may go."""
    files = {"a": b"x" * 1000, "b/c": b"y"}
    files |= {"inside a file": {"a/b": b"1"}, "long name": {"n" * 300: b"1"}}.get(wrong, {})
    laid = lay(tmp_path / "slot", 2, files=files, phase="main")
    buffer = laid.directory / "buffer"
    match wrong:
        case "gone":
            buffer.unlink()
        case "a link":
            buffer.rename(tmp_path / "elsewhere")
            buffer.symlink_to(tmp_path / "elsewhere")
        case "far away":
            laid = replace(laid, pieces=[replace(each, offset=2**70) for each in laid.pieces])
    with pytest.raises(SaveFailed) as raised:
        place.storage.commit(laid)
    assert raised.value.__cause__ is None
    assert place.storage.list("main") == []


def test_an_unhealthy_one_is_kept_and_not_taken(place: Place, tmp_path: Path) -> None:
    healthy = place.save(1).checkpoint
    place.storage.commit(lay(tmp_path / "s", 2, files={"a": b"nan"}, phase="main", meta={"healthy": False}))
    found, aside = place.storage.newest("main")
    assert found == healthy
    assert [each.step for each, _ in aside] == [2]


def test_what_was_discarded_can_be_had_back_until_it_is_purged(place: Place, tmp_path: Path) -> None:
    storage = place.storage
    first, second = place.save(1).checkpoint, place.save(2).checkpoint
    storage.discard(first, 1000.0)
    storage.discard(first, 1001.0)
    assert storage.list("main") == [second]
    assert [(each, at) for each, at in place.again().trashed("main")] == [(first, 1000.0)]
    assert storage.sweep("main", 1) == 0
    storage.recover(first)
    storage.recover(first)
    assert storage.list("main") == [second, first]
    assert storage.trashed("main") == []
    storage.verify(first)
    storage.discard(first, 1000.0)
    assert storage.purge("main", 1000.0) == 0
    assert storage.purge("main", 1001.0) == 1
    storage.sweep("main", 1)
    with pytest.raises(Damaged):
        storage.recover(first)
    storage.verify(second)
    assert storage.fetch(second, tmp_path / "into")


def test_what_was_discarded_is_verified_fetched_and_read_where_it_is_now(place: Place, tmp_path: Path) -> None:
    saved = place.save(1).checkpoint
    place.storage.discard(saved, 1000.0)
    ((kept, _),) = place.again().trashed("main")
    for found in (saved, kept):
        place.storage.verify(found)
        assert b"".join(place.again().open_file(found, "parts/m/000000")) == BASE
        fetched = place.again().fetch(found, tmp_path / "into")
        assert (fetched / "parts/m/index").read_bytes() == b"1"
        assert (fetched / MANIFEST).exists()


def test_what_was_removed_for_good_is_not_called_damaged(place: Place, tmp_path: Path) -> None:
    saved = place.save(1).checkpoint
    place.storage.discard(saved, 1000.0)
    place.storage.purge("main", 1001.0)
    place.storage.sweep("main", 1)
    for act in (
        lambda: place.storage.verify(saved),
        lambda: place.storage.fetch(saved, tmp_path / "into"),
        lambda: list(place.storage.open_file(saved, "parts/m/index")),
    ):
        with pytest.raises(Removed, match=saved.path.name):
            act()


def test_one_that_is_removed_while_it_is_looked_at_is_not_the_newest_and_not_set_aside(place: Place) -> None:
    older, newer = place.save(1).checkpoint, place.save(2).checkpoint

    def remove(found: Checkpoint) -> None:
        if found == newer:
            place.storage.discard(found, 1000.0)
            place.storage.purge("main", 1001.0)
            place.storage.sweep("main", 1)
        place.storage.verify(found)

    assert place.again().newest("main", verify=remove) == (older, [])
    newer = older
    with pytest.raises(StorageFailed, match="while they were looked at"):
        place.again().newest("main", verify=remove)


def test_what_another_has_found_damaged_is_not_built_on(place: Place) -> None:
    place.save(1)
    second = place.save(2).checkpoint
    place.rot(second, "parts/m/000000")
    writer = place.again()
    writer.distrust(place.storage.where(second))
    done = place.save(3, storage=writer)
    place.again().verify(done.checkpoint)
    assert place.save(4, storage=writer).written < len(BASE), "only once"


def test_an_attempt_that_is_over_commits_nothing_and_its_successor_goes_on(place: Place) -> None:
    zombie, storage = place.storage, place.again()
    zombie.open_attempt("main", 1, "a-1")
    zombie.open_attempt("main", 1, "a-1")
    kept = place.save(1).checkpoint
    storage.open_attempt("main", 2, "a-2")
    for act in (
        lambda: place.save(5, storage=zombie),
        lambda: zombie.open_attempt("main", 1, "a-1"),
        lambda: storage.open_attempt("main", 2, "a-other"),
    ):
        with pytest.raises(Fenced):
            act()
    assert storage.list("main") == [kept]
    later = place.save(2, attempt=2, storage=storage).checkpoint
    storage.sweep("main", 2)
    assert storage.list("main") == zombie.list("main") == [later, kept]
    storage.verify(kept)


def test_of_two_that_begin_the_same_attempt_one_is_refused(place: Place) -> None:
    outcomes: list[str] = []

    def begin(name: str) -> None:
        try:
            place.again().open_attempt("main", 1, name)
            outcomes.append("begun")
        except Fenced:
            outcomes.append("fenced")

    threads = [threading.Thread(target=begin, args=(f"a-{number}",)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(outcomes) == ["begun", "fenced", "fenced", "fenced"]


def test_removing_a_run_leaves_nothing_of_it_and_all_of_others(place: Place) -> None:
    place.storage.open_attempt("main", 1, "a-1")
    place.save(1)
    place.storage.discard(place.save(2).checkpoint, 1.0)
    place.storage.remove_all()
    assert place.storage.list("main") == []
    assert place.again().trashed("main") == []
