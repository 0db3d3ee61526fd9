"""Single checkpoints: looked into, read back, pinned, removed, brought back; and where they are kept."""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.blobs.manifest import Checkpoint
from whistlestop.blobs.storage import DAY
from whistlestop.domain.errors import BadRequest, NoCheckpoint, NotFound, Refused, StorageUnreachable
from whistlestop.engines.base import JobState
from whistlestop.server.services import keeping, launches, storages, submit, verbs
from whistlestop.server.services.verifying import Verifying
from whistlestop.server.store import checkpoints, runs
from whistlestop.testing.checkpoints import Attempt
from whistlestop.testing.wait import until
from whistlestop.testing.world import ME, World, world
from whistlestop.wire.api import ContinueBody, RunView

BEST = "name: x\ncommand: 'true'\ncheckpoint: {keep: {last: 9, best: 1, by: loss}}\n"


@pytest.fixture
def run(here: World) -> RunView:
    return here.submit(BEST)


@pytest.fixture
def attempt(here: World, run: RunView) -> Attempt:
    return Attempt(here, run)


def protected(here: World, run: RunView) -> list[str]:
    with here.context.database.read() as connection:
        return checkpoints.protected(connection, run.id)


def test_a_checkpoint_is_shown_with_the_files_and_the_words_of_its_manifest(
    here: World, run: RunView, attempt: Attempt
) -> None:
    saved = attempt.saved(5, {"parts/model/000000": b"abc", "parts/model/index": b"", "files/é/x": b"d"})
    found = keeping.detail(here.context, run.id, saved)
    assert [(file.name, file.size) for file in found.files] == [
        ("files/é/x", 1), ("parts/model/000000", 3), ("parts/model/index", 0),
    ]  # fmt: skip
    assert all(len(file.sha256) == 64 for file in found.files)
    assert (found.step, found.newest) == (5, True)
    with pytest.raises(NotFound):
        keeping.detail(here.context, run.id, "c-none")


def test_a_pinned_one_is_protected_and_pinning_twice_changes_nothing(
    here: World, run: RunView, attempt: Attempt
) -> None:
    saved = attempt.saved(5)
    attempt.saved(6)
    done = keeping.pin(here.context, run.id, saved, ME, pinned=True)
    assert (done.changed, done.checkpoint.pinned) == (True, True)
    assert protected(here, run) == [saved]
    assert not keeping.pin(here.context, run.id, saved, ME, pinned=True).changed
    assert keeping.pin(here.context, run.id, saved, ME, pinned=False).changed
    assert protected(here, run) == []


def test_one_that_matters_is_not_removed_unless_somebody_insists(here: World, run: RunView, attempt: Attempt) -> None:
    best, pinned, newest = (attempt.saved(step, metrics={"loss": loss}) for step, loss in ((1, 0.1), (2, 1), (3, 1)))
    keeping.pin(here.context, run.id, pinned, ME, pinned=True)
    for saved, word in ((best, "best"), (pinned, "pinned"), (newest, "newest")):
        with pytest.raises(Refused, match=word):
            keeping.remove(here.context, run.id, saved, ME, force=False)
    for saved in (best, newest):
        assert keeping.remove(here.context, run.id, saved, ME, force=True).changed
    with pytest.raises(Refused, match="the only one"):  # the run is active: it has to go on from something
        keeping.remove(here.context, run.id, pinned, ME, force=True)
    attempt.ended("finished")
    assert keeping.remove(here.context, run.id, pinned, ME, force=True).changed
    assert attempt.storage.list("main") == []


def test_where_every_checkpoint_was_removed_a_new_attempt_does_not_begin_at_step_0_by_itself(
    here: World, run: RunView, attempt: Attempt
) -> None:
    saved = attempt.saved(5)
    with here.context.database.write() as connection:
        checkpoints.trash(connection, run.id, [saved], here.now + DAY)
    attempt.ended("preempted")
    launch, _ = launches.build(here.context, here.attempt(run.id).id, "token", "http://127.0.0.1:1")
    assert here.attempt(run.id).number == 2
    assert launch.must_restore


def test_one_in_use_is_not_removed_however_much_somebody_insists(here: World, run: RunView, attempt: Attempt) -> None:
    used = attempt.saved(5)
    attempt.saved(6)
    submit.continue_run(here.context, run.id, ContinueBody(step=5), ME)
    with pytest.raises(Refused, match="in use"):
        keeping.remove(here.context, run.id, used, ME, force=True)
    assert len(attempt.storage.list("main")) == 2


def test_a_removed_one_is_brought_back_within_its_day_and_pinned(here: World, run: RunView, attempt: Attempt) -> None:
    saved = attempt.saved(5)
    attempt.saved(6)
    done = keeping.remove(here.context, run.id, saved, ME, force=False)
    assert f"whistle checkpoints {run.number} restore --step 5" in done.text
    assert done.checkpoint.trashed_until is not None
    assert not keeping.remove(here.context, run.id, saved, ME, force=False).changed
    assert [each.step for each in attempt.storage.list("main")] == [6]
    with pytest.raises(Refused):
        keeping.pin(here.context, run.id, saved, ME, pinned=True)
    here.now += DAY - 1
    back = keeping.restore(here.context, run.id, saved, ME)
    assert (back.changed, back.checkpoint.pinned, back.checkpoint.trashed_until) == (True, True, None)
    assert [each.step for each in attempt.storage.list("main")] == [6, 5]
    assert not keeping.restore(here.context, run.id, saved, ME).changed
    keeping.remove(here.context, run.id, saved, ME, force=True)
    here.now += DAY + 1
    with pytest.raises(NoCheckpoint):
        keeping.restore(here.context, run.id, saved, ME)


def test_a_removal_that_was_cut_short_is_mended_by_bringing_it_back(
    here: World, run: RunView, attempt: Attempt
) -> None:
    saved = attempt.saved(5)
    attempt.saved(6)
    with here.context.database.write() as connection:  # the row says so, and then the server died
        checkpoints.trash(connection, run.id, [saved], here.now + DAY)
    assert keeping.restore(here.context, run.id, saved, ME).changed
    assert [each.step for each in attempt.storage.list("main")] == [6, 5]


def test_reading_back_says_so_with_figures_and_marks_what_is_damaged(
    here: World, run: RunView, attempt: Attempt
) -> None:
    saved = attempt.saved(5, {"parts/a": b"1" * 1000, "parts/b": b"2"})
    verifying = Verifying(here.context)
    here.now += 50
    said = verifying.begin(run.id, saved, ME)
    assert (said.reading, said.intact, said.files, said.bytes) == (False, True, 2, 1001)
    assert "2 files" in said.text
    assert said.checkpoint.verified_at != said.checkpoint.committed_at
    path = attempt.storage.list("main")[0].path / "parts/a"
    path.chmod(0o600)
    path.write_bytes(b"3" * 1000)
    said = verifying.begin(run.id, saved, ME)
    assert (said.intact, said.checkpoint.verified) == (False, False)
    assert "parts/a" in said.text
    assert verifying.ask(run.id, saved).intact is False
    path.write_bytes(b"1" * 1000)
    said = verifying.begin(run.id, saved, ME)
    assert (said.intact, said.checkpoint.verified) == (True, True)


def test_one_whose_files_are_gone_is_damaged_and_not_an_error_of_the_server(
    here: World, run: RunView, attempt: Attempt
) -> None:
    saved = attempt.saved(5)
    path = attempt.storage.list("main")[0].path
    os.rename(path, path.parent.parent / "elsewhere")
    assert Verifying(here.context).begin(run.id, saved, ME).intact is False
    with pytest.raises(NoCheckpoint):
        keeping.detail(here.context, run.id, saved)


def test_a_removed_one_can_be_read_back_and_looked_into_and_is_as_good_as_before(
    here: World, run: RunView, attempt: Attempt
) -> None:
    saved = attempt.saved(5, {"parts/a": b"abc"})
    attempt.saved(6)
    keeping.remove(here.context, run.id, saved, ME, force=False)
    assert Verifying(here.context).begin(run.id, saved, ME).intact is True
    assert [file.name for file in keeping.detail(here.context, run.id, saved).files] == ["parts/a"]
    with here.context.database.read() as connection:
        row = runs.get(connection, run.id), keeping.look(connection, run.id, saved)[1]
    storage, found = keeping.manifest(here.context, *row)
    assert b"".join(storage.open_file(found, "parts/a")) == b"abc"


@pytest.mark.parametrize("when", ["before it is found", "while it is read"])
def test_a_removal_under_the_eyes_of_who_reads_is_no_damage(
    here: World, run: RunView, attempt: Attempt, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = attempt.saved(5)
    attempt.saved(6)
    name = "list" if when == "before it is found" else "verify"
    real: Callable[..., object] = getattr(CheckpointStore, name)

    def after_the_removal(storage: CheckpointStore, given: object) -> object:
        monkeypatch.undo()
        keeping.remove(here.context, run.id, saved, ME, force=False)
        return real(storage, given)

    monkeypatch.setattr(CheckpointStore, name, after_the_removal)
    said = Verifying(here.context).begin(run.id, saved, ME)
    assert said.intact is not False
    assert "damaged" not in said.text
    assert keeping.restore(here.context, run.id, saved, ME).checkpoint.verified


def test_of_two_that_were_saved_at_one_step_the_later_is_the_newest(
    here: World, run: RunView, attempt: Attempt
) -> None:
    first = attempt.saved(5)
    keeping.pin(here.context, run.id, first, ME, pinned=True)
    here.now += 10
    second = attempt.saved(5)
    with here.context.database.read() as connection:
        assert [row.id for row in checkpoints.of_run(connection, run.id)] == [second, first]
        newest = checkpoints.newest(connection, run.id, "main")
    assert newest is not None
    assert newest.id == second


def test_one_whose_manifest_is_unreadable_is_removed_as_well_and_can_be_had_back(
    here: World, run: RunView, attempt: Attempt
) -> None:
    saved = attempt.saved(5)
    attempt.saved(6)
    path = attempt.storage.list("main")[1].path
    (path / "manifest.json").chmod(0o600)
    (path / "manifest.json").write_text("rubbish")
    assert keeping.remove(here.context, run.id, saved, ME, force=False).changed
    assert not path.exists()
    assert keeping.restore(here.context, run.id, saved, ME).changed
    assert path.exists()


def test_what_a_running_phase_reads_is_not_taken_away_from_under_it(here: World) -> None:
    run = here.submit(
        "name: x\nphases:\n- {name: main, command: 'true'}\n- {name: use, command: 'true', needs: [main]}\n"
    )
    first = Attempt(here, run)
    older, newest = first.saved(5), first.saved(6)
    first.ended("finished")
    second = Attempt(here, run)
    assert keeping.remove(here.context, run.id, older, ME, force=True).changed
    assert keeping.restore(here.context, run.id, older, ME).changed
    with pytest.raises(Refused, match="in use: the phase use reads it"):
        keeping.remove(here.context, run.id, newest, ME, force=True)
    second.ended("finished")
    assert keeping.remove(here.context, run.id, newest, ME, force=True).changed


def test_a_directory_that_is_not_mounted_is_no_damage(here: World, run: RunView, attempt: Attempt) -> None:
    saved = attempt.saved(5)
    attempt.saved(6)
    root = attempt.storage.list("main")[0].path.parent.parent
    os.rename(root, root.with_name("away"))
    said = Verifying(here.context).begin(run.id, saved, ME)
    assert said.intact is None
    assert "mounted" in said.text
    with pytest.raises(StorageUnreachable):
        keeping.remove(here.context, run.id, saved, ME, force=False)
    os.rename(root.with_name("away"), root)
    said = Verifying(here.context).begin(run.id, saved, ME)
    assert (said.intact, said.checkpoint.verified, said.checkpoint.trashed_until) == (True, True, None)


def test_a_removal_that_failed_is_not_undone_where_the_runner_has_removed_it_meanwhile(
    here: World, run: RunView, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = attempt.saved(5)
    attempt.saved(6)

    def fail(storage: CheckpointStore, checkpoint: Checkpoint, now: float) -> None:
        attempt.say("checkpoints_removed", ids=[saved], until=now + DAY)
        raise OSError("the disk is gone")

    monkeypatch.setattr(CheckpointStore, "discard", fail)
    with pytest.raises(StorageUnreachable):
        keeping.remove(here.context, run.id, saved, ME, force=False)
    with here.context.database.read() as connection:
        assert [row.step for row in checkpoints.of_run(connection, run.id)] == [6]


def test_who_asks_again_because_an_answer_was_lost_is_given_it_without_reading_all_again(
    here: World, run: RunView, attempt: Attempt
) -> None:
    saved = attempt.saved(5)
    now = itertools.count(step=20.0)  # seconds: every look at the clock is that much later
    verifying = Verifying(here.context, timer=lambda: next(now))
    assert verifying.begin(run.id, saved, ME).intact
    shutil.rmtree(attempt.storage.list("main")[0].path)
    assert verifying.begin(run.id, saved, ME).intact
    next(now)
    next(now)
    assert verifying.begin(run.id, saved, ME).intact is False


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("s3://bucket/some/prefix/", "s3://bucket/some/prefix"),
        ("gs://bucket", "gs://bucket"),
        ("az://container/x", "az://container/x"),
        ("file:///data/c%20k", "/data/c k"),
        ("/data/checkpoints/", "/data/checkpoints"),
    ],
)
def test_an_address_is_a_directory_or_a_bucket(given: str, kept: str) -> None:
    assert storages.address(given) == kept


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("s3://", "bucket"), ("ftp://host/x", "ftp"), ("s3://key:secret@bucket/x", "key"), ("file://host/x", "machine"),
        ("", "where"), ("s3://bucket/x?y=1", "prefix"),
    ],
)  # fmt: skip
def test_a_wrong_address_is_refused_in_words(given: str, word: str) -> None:
    with pytest.raises(BadRequest, match=word):
        storages.address(given)


def test_an_endpoint_without_a_bucket_is_refused() -> None:
    with pytest.raises(BadRequest, match="directory"):
        storages.options("/data", "http://localhost:1", None)
    with pytest.raises(BadRequest, match="not the address"):
        storages.options("s3://bucket", "localhost:1", None)
    assert storages.options("s3://bucket", None, "eu-west-1") == {"region": "eu-west-1"}


def test_a_place_that_works_is_probed_without_a_trace_and_one_that_does_not_says_why(tmp_path: Path) -> None:
    assert storages.probe(str(tmp_path), {}).fit
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    found = storages.probe(str(tmp_path / "file"), {})
    assert not found.fit
    assert str(tmp_path / "file") in found.text


def test_a_run_keeps_its_place_for_good_and_a_deleted_one_leaves_nothing_there(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with world(tmp_path / "data", storage=str(shared)) as here:
        run = here.submit()
        attempt = Attempt(here, run)
        attempt.saved(5)
        assert (shared / run.id / "main").is_dir()
        launch, _ = launches.build(here.context, attempt.row.id, "token", "http://127.0.0.1:1")
        assert (launch.checkpoints, launch.storage) == (str(shared / run.id), None)
        attempt.ended("finished")
        here.engine.says[attempt.row.id] = JobState.ENDED
    with world(tmp_path / "data") as later:  # as before: the next run's place is another one
        assert later.attempt(run.id).state == "completed"
        verbs.delete(later.context, run.id, ME)
        later.settle()
        until(lambda: not (shared / run.id).exists(), what="its checkpoints to be removed")


def test_a_bucket_goes_to_the_runner_with_how_to_reach_it(tmp_path: Path) -> None:
    options = {"endpoint": "http://127.0.0.1:1"}
    with world(tmp_path, storage="s3://bucket/prefix", storage_options=options) as here:
        run = here.submit()
        here.settle()
        launch, _ = launches.build(here.context, here.attempt(run.id).id, "token", "http://127.0.0.1:1")
    assert (launch.storage, launch.storage_options) == (f"s3://bucket/prefix/{run.id}", options)
    assert launch.checkpoints == str(here.settings.checkpoints(run.id))


def test_what_a_storage_refuses_changes_nothing(here: World, run: RunView, attempt: Attempt) -> None:
    saved = attempt.saved(5)
    attempt.saved(6)
    with here.context.database.write() as connection:  # where nobody listens
        where = {"storage": f"s3://bucket/{run.id}", "storage_options": {"endpoint": "http://127.0.0.1:9"}}
        runs.update(connection, run.id, **where)
    with pytest.raises(StorageUnreachable):
        keeping.remove(here.context, run.id, saved, ME, force=False)
    with here.context.database.read() as connection:
        assert [row.step for row in checkpoints.of_run(connection, run.id)] == [6, 5]
