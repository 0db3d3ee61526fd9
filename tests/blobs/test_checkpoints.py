import contextlib
import errno
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from moments import Cut, Place, cut, every_moment

from whistlestop.blobs.checkpoints import BadName, Checkpoint, CheckpointStore, Damaged, FileEntry, SaveFailed
from whistlestop.blobs.manifest import MANIFEST
from whistlestop.blobs.open import locate
from whistlestop.blobs.storage import Fenced, Removed, StorageFailed
from whistlestop.testing.missing import missing
from whistlestop.testing.slots import lay

WRITES = ("open", "write", "fsync", "close", "rename", "unlink", "mkdir", "link")


def save(store: CheckpointStore, step: int, *, attempt: int = 1, size: int = 1000) -> Checkpoint:
    writer = store.begin("main", step, attempt, f"a-{attempt}")
    writer.add_bytes("model.bin", bytes([step % 256]) * size)
    writer.add_bytes("optimizer/state.bin", b"o" * size)
    return writer.commit({"loss": 0.5})


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


def test_a_committed_checkpoint_is_listed_with_all_that_was_said_about_it(store: CheckpointStore) -> None:
    saved = save(store, 500)
    assert store.list("main") == [saved]
    assert (saved.step, saved.attempt_number, saved.attempt_id) == (500, 1, "a-1")
    assert saved.meta == {"loss": 0.5}
    assert saved.bytes == 2000
    assert list(saved.files) == ["model.bin", "optimizer/state.bin"]
    assert saved.path == store.root / "main" / "step-000000000500-1"
    assert store.newest("main") == (saved, [])
    assert store.load(saved.path) == saved


def test_the_list_is_newest_first_by_step_then_by_attempt(store: CheckpointStore) -> None:
    for step, attempt in ((100, 1), (1000, 1), (90, 2), (1000, 2), (200, 2)):
        save(store, step, attempt=attempt)
    found = [(each.step, each.attempt_number) for each in store.list("main")]
    assert found == [(1000, 2), (1000, 1), (200, 2), (100, 1), (90, 2)]


def test_a_phase_without_checkpoints_has_none(store: CheckpointStore) -> None:
    assert store.list("main") == []
    assert store.newest("main") == (None, [])


def damage_missing(path: Path) -> None:
    path.unlink()


def damage_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def damage_flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damage_link(path: Path) -> None:
    twin = path.with_name("twin")
    path.rename(twin)
    path.symlink_to(twin)


def damage_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def damage_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES = [damage_missing, damage_short, damage_flipped, damage_link, damage_directory, damage_pipe]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["model.bin", "optimizer/state.bin"])
def test_a_damaged_file_is_named_and_the_one_before_is_taken(
    store: CheckpointStore, damage: Callable[[Path], None], name: str
) -> None:
    older, newer = save(store, 1), save(store, 2)
    damage(newer.path / name)
    with pytest.raises(Damaged, match=name):
        store.verify(newer)
    found, aside = store.newest("main")
    assert found == older
    assert [(each.step, name in why) for each, why in aside] == [(2, True)]


def while_opened(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Something happens right before a file of that name is opened, once."""
    waiting = [act]

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if waiting and Path(path).name == name:
                waiting.pop()()
            return real(path, *arguments, **options)

        return call

    for module in (os, io):
        monkeypatch.setattr(module, "open", wrap(module.open))


def test_a_removal_while_it_is_read_is_no_damage(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = save(store, 1)
    while_opened(monkeypatch, "state.bin", lambda: store.discard(saved, 5.0))
    with pytest.raises(Removed, match="removed while it was read"):
        store.verify(saved)
    store.verify(saved)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ESTALE, errno.EACCES, errno.ENOMEM])
@pytest.mark.parametrize("name", ["state.bin", MANIFEST])
def test_a_file_that_can_not_be_read_just_now_is_no_reason_to_go_on_from_an_older_one(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, number: int, name: str
) -> None:
    save(store, 1)
    newer = save(store, 2)

    def fail() -> None:
        raise OSError(number, os.strerror(number))

    while_opened(monkeypatch, name, fail)
    with pytest.raises(StorageFailed, match=newer.path.name):
        store.newest("main")
    found, aside = store.newest("main")
    assert (found, aside) == (newer, [])


def test_a_save_does_not_need_the_manifests_of_others(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    committed_from_a_slot(store, 1)()

    def fail() -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    act = committed_from_a_slot(store, 2)
    while_opened(monkeypatch, MANIFEST, fail)
    assert act().step == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"not json", b'{"content": 1, "sha256": 2}', b"[" * 100_000])
def test_an_unreadable_manifest_is_set_aside_with_words(store: CheckpointStore, content: bytes) -> None:
    older, newer = save(store, 1), save(store, 2)
    (newer.path / MANIFEST).write_bytes(content)
    assert store.list("main") == [older]
    found, aside = store.newest("main")
    assert found == older
    assert [each.step for each, _ in aside] == [2]
    assert "manifest.json" in aside[0][1]


def test_a_manifest_with_one_changed_letter_is_not_believed(store: CheckpointStore) -> None:
    saved = save(store, 2)
    path = saved.path / MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"loss": 0.5', b'"loss": 0.4'))
    with pytest.raises(Damaged, match="changed"):
        store.load(saved.path)


def test_a_copied_manifest_does_not_make_another_directory_a_checkpoint(store: CheckpointStore) -> None:
    saved = save(store, 2)
    shutil.copytree(saved.path, saved.path.parent / "step-000000000009-1")
    assert store.newest("main")[0] == saved


def test_when_none_verifies_all_are_set_aside_and_nothing_is_touched(store: CheckpointStore) -> None:
    for step in (1, 2, 3):
        damage_short(save(store, step).path / "model.bin")
    found, aside = store.newest("main")
    assert found is None
    assert [each.step for each, _ in aside] == [3, 2, 1]
    assert len(store.list("main")) == 3


Ready = Callable[[CheckpointStore, int], Callable[[], Checkpoint]]


def written(store: CheckpointStore, step: int) -> Callable[[], Checkpoint]:
    return lambda: save(store, step)


def committed_from_a_slot(store: CheckpointStore, step: int) -> Callable[[], Checkpoint]:
    """With a file that has not changed: it is linked to."""
    content = {"a/large": b"same" * (1 << 16), "a/direct": b"%07d\n" % step * (1 << 17), "small": b"x", "none": b""}
    laid = lay(store.root.with_name(f"{store.root.name}-slot"), step, phase="main", files=content)
    return lambda: store.commit(laid).checkpoint


WAYS = pytest.mark.parametrize("ready", [written, committed_from_a_slot])


def count_writes(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, ready: Ready) -> int:
    ready(store, 1)()
    act = ready(store, 2)
    calls = cut_after(monkeypatch, None)
    act()
    monkeypatch.undo()
    return calls[0]


def cut_after(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, error: Callable[[], BaseException] = Cut
) -> list[int]:
    """Let `limit` calls that change the disk happen, then end the process, as far as Python can."""
    calls = [0]

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if limit is not None and calls[0] >= limit:
                raise error()
            calls[0] += 1
            return real(*arguments, **options)

        return call

    for name in WRITES:
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    return calls


@WAYS
def test_a_save_cut_after_any_single_write_leaves_the_one_before(
    quick: Path, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    total = count_writes(CheckpointStore(quick / "counted"), monkeypatch, ready)
    assert total > 15
    committed = 0
    for limit in range(total):
        store = CheckpointStore(quick / f"cut-{limit}")
        before = ready(store, 1)()
        act = ready(store, 2)
        cut_after(monkeypatch, limit)
        with pytest.raises(Cut):
            act()
        monkeypatch.undo()
        found, aside = store.newest("main")
        assert aside == []
        if found != before:  # cut behind the manifest: complete, only not yet known to be durable
            committed += 1
            assert found is not None
            assert found.step == 2
        else:
            assert store.list("main") == [before]
        assert ready(store, 3)().step == 3
        store.sweep("main", 2)
        assert all((path / MANIFEST).exists() for path in (store.root / "main").iterdir())
    assert 0 < committed < total / 2


@WAYS
def test_a_save_that_meets_an_error_at_any_write_says_so_and_is_never_listed(
    quick: Path, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    total = count_writes(CheckpointStore(quick / "counted"), monkeypatch, ready)
    harmless = 0
    for limit in range(total):
        store = CheckpointStore(quick / f"full-{limit}")
        before = ready(store, 1)()
        act = ready(store, 2)
        real = {name: getattr(os, name) for name in WRITES}
        calls = [0]

        def once(name: str, limit: int = limit, real: Any = real, calls: list[int] = calls) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                calls[0] += 1
                if calls[0] == limit + 1:
                    if name == "close":
                        real["close"](*arguments)
                    raise OSError(errno.ENOSPC, "No space left on device")
                return real[name](*arguments, **options)

            return call

        for name in WRITES:
            monkeypatch.setattr(os, name, once(name))
        try:
            act()
            failed = False
        except SaveFailed:
            failed = True
        monkeypatch.undo()
        if failed:
            assert store.list("main") == [before], limit
            assert ready(store, 2)().step == 2
        else:  # making a directory that is there already may fail as it likes
            harmless += 1
            newest, aside = store.newest("main")
            assert newest is not None
            assert (newest.step, aside) == (2, [])
    assert harmless <= 5  # a file system may refuse O_DIRECT, and links


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_on_a_disk_that_really_is_full_the_save_fails_and_gives_its_space_back(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        missing(f"tmpfs can't be mounted here: {mounted.stderr.decode()}")
    try:
        store = CheckpointStore(small)
        before = save(store, 1)
        with pytest.raises(SaveFailed, match="No space left"):
            save(store, 2, size=1 << 20)
        assert store.newest("main") == (before, [])
        assert save(store, 3).step == 3
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_process_killed_at_random_moments_of_saving_never_loses_what_it_had(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from whistlestop.blobs.checkpoints import CheckpointStore\n"
        "store = CheckpointStore(Path(sys.argv[1])); step = int(sys.argv[2])\n"
        "while True:\n"
        "    step += 1\n"
        "    writer = store.begin('main', step, 1, 'a-1')\n"
        "    for part in range(4): writer.add_bytes(f'{part}.bin', bytes(300_000))\n"
        "    writer.commit({})\n"
        "    print(step, flush=True)\n"
    )
    told = 0
    for saves in (1, 3, 2):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), str(told)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(saves):
            told = int(child.stdout.readline())
        child.kill()
        rest = child.stdout.read().split()
        child.wait()
        child.stdout.close()
        told = int(rest[-1]) if rest else told
        found, aside = CheckpointStore(tmp_path).newest("main")
        assert aside == []
        assert found is not None
        assert found.step >= told
        told = found.step


def test_a_step_that_is_saved_again_by_its_attempt_is_a_new_revision_and_the_newest_one_counts(
    store: CheckpointStore,
) -> None:
    first, second, third = (save(store, 5) for _ in range(3))
    assert [each.path.name for each in (first, second, third)] == [
        "step-000000000005-1",
        "step-000000000005-1.r1",
        "step-000000000005-1.r2",
    ]
    assert store.list("main") == [third, second, first]
    assert store.newest("main") == (third, [])
    assert save(store, 5, attempt=2).revision == 0
    store.discard(third, 1.0)
    store.discard(first, 1.0)
    assert store.list("main")[1:] == [second]


def test_two_writers_of_one_step_never_touch_each_others_files(store: CheckpointStore) -> None:
    """As two processes that both believe to be rank 0."""
    one = store.begin("main", 5, 1, "a-1")
    one.add_bytes("a", b"one")
    other = store.begin("main", 5, 1, "a-1")
    other.add_bytes("a", b"other")
    committed = one.commit({})
    other.discard()
    assert store.newest("main") == (committed, [])
    assert (committed.path / "a").read_bytes() == b"one"


def test_a_writer_that_loses_the_race_for_a_name_removes_only_its_own_files(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = store.begin("main", 5, 1, "a-1")
    late.add_bytes("a", b"late")
    stage, free = late.path, late._free_name()
    committed = save(store, 5)
    monkeypatch.setattr(late, "_free_name", lambda: free)
    with pytest.raises(SaveFailed):
        late.commit({})
    late.discard()
    assert not stage.exists()
    assert store.newest("main") == (committed, [])


def test_giving_up_twice_or_after_the_commit_takes_nothing_that_counts(store: CheckpointStore) -> None:
    writer = store.begin("main", 5, 1, "a-1")
    saved = writer.commit({})
    writer.discard()
    assert store.newest("main") == (saved, [])


def test_a_save_in_progress_is_not_listed_even_with_its_manifest(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*arguments: object) -> None:
        raise Cut

    monkeypatch.setattr(os, "rename", cut)
    with pytest.raises(Cut):
        save(store, 5)
    monkeypatch.undo()
    (stage,) = (store.root / "main").iterdir()
    assert (stage / MANIFEST).exists()
    assert store.newest("main") == (None, [])


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_a_file_system_without_hard_links_is_good_enough(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def no_links(*arguments: object, **options: object) -> None:
        raise OSError(number, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    store.open_attempt("main", 1, "a-1")
    store.open_attempt("main", 1, "a-1")
    with pytest.raises(Fenced):
        store.open_attempt("main", 1, "a-other")
    saved = committed_from_a_slot(store, 1)()
    assert committed_from_a_slot(store, 2)().step == 2
    store.open_attempt("main", 2, "a-2")
    assert store.list("main")[1] == saved
    with pytest.raises(Fenced):
        store.check_fence("main", 1)


def test_without_hard_links_a_begin_that_was_cut_keeps_nobody_out(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*arguments: object, **options: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)

    def make(here: Place) -> Callable[[], None]:
        here.storage.open_attempt("main", 1, "a-1")
        here.save(1)
        return cut

    numbers = count()
    for here, moment in every_moment(lambda: Place("local", quick / str(next(numbers))), "writes", make):
        with moment, contextlib.suppress(Cut):
            here.storage.open_attempt("main", 2, "a-2")
        assert [each.step for each in here.storage.list("main")] == [1]
        here.storage.open_attempt("main", 3, "a-3")
        assert [each.step for each in here.storage.list("main")] == [1]


def test_what_is_linked_to_can_not_be_written_to_by_mistake(store: CheckpointStore) -> None:
    first, second = committed_from_a_slot(store, 1)(), committed_from_a_slot(store, 2)()
    assert (first.path / "a/large").samefile(second.path / "a/large")
    assert (second.path / "a/large").stat().st_mode & 0o777 == 0o400
    store.discard(first, 1.0)
    assert store.purge("main", 2.0) == 1
    store.verify(second)


def test_one_that_resists_does_not_keep_the_others_from_being_purged(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2, 3):
        store.discard(save(store, step), 1.0)
    real = os.rmdir

    def busy(path: Any, *arguments: Any, **options: Any) -> None:
        if "step-000000000002-1" in str(path):
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        real(path, *arguments, **options)

    monkeypatch.setattr(os, "rmdir", busy)
    with pytest.raises(OSError, match="busy"):
        store.purge("main", 2.0)
    monkeypatch.undo()
    assert [path.name for path in (store.root / "main").iterdir()] == [".trash-1-step-000000000002-1"]
    assert store.purge("main", 2.0) == 1


def test_texts_that_no_database_takes_are_made_plain_and_odd_file_names_are_still_found(
    store: CheckpointStore,
) -> None:
    writer = store.begin("main", 1, 1, "a-1")
    writer.add_bytes("odd-\udcff.bin", b"1")
    saved = writer.commit({"why": "\udcff\0", "nested": [float("nan"), 10**400, 10**30], "deep": {"\udcff": 1}})
    loaded = store.load(saved.path)
    assert loaded.meta == {"why": "?\ufffd", "nested": [None, None, 1e30], "deep": {"?": 1}}
    store.verify(loaded)


def test_purging_takes_the_manifest_first(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer = save(store, 1), save(store, 2)
    store.discard(newer, 1.0)
    (trash,) = (store.root / "main").glob(".trash-*")

    def no_data(*arguments: object, **options: object) -> None:
        raise Cut

    monkeypatch.setattr(shutil, "rmtree", no_data)
    with pytest.raises(Cut):
        store.purge("main", 2.0)
    monkeypatch.undo()
    assert (trash / "model.bin").exists()
    with pytest.raises(Damaged):
        store.recover(newer)
    assert store.list("main") == [older]
    store.sweep("main", 1)
    assert list((store.root / "main").iterdir()) == [older.path]


def test_removing_all_leaves_nothing(store: CheckpointStore) -> None:
    save(store, 1)
    store.remove_all()
    assert not store.root.exists()
    store.remove_all()


def test_sweeping_leaves_what_is_committed_being_written_or_of_a_later_attempt(store: CheckpointStore) -> None:
    kept = save(store, 1)
    saving = store.begin("main", 2, 1, "a-1")
    later = store.begin("main", 3, 2, "a-2")
    assert store.sweep("main", 1) == 0
    assert {path.name for path in (store.root / "main").iterdir()} == {
        kept.path.name,
        saving.path.name,
        later.path.name,
    }
    assert store.sweep("main", 2) == 1
    assert not saving.path.exists()


def test_sweeping_takes_what_an_ended_process_of_this_attempt_left(store: CheckpointStore) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from whistlestop.blobs.checkpoints import CheckpointStore\n"
        "CheckpointStore(Path(sys.argv[1])).begin('main', 2, 1, 'a-1').add_bytes('half', b'1')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(store.root)], check=True)
    elsewhere = store.root / "main" / ".step-000000000003-1.another-host.1.abc"
    elsewhere.mkdir()
    half_removed = store.root / "main" / "step-000000000004-1"
    half_removed.mkdir()
    assert store.sweep("main", 1) == 2
    assert list((store.root / "main").iterdir()) == [elsewhere]


def test_sweeping_takes_what_crashes_have_left_beside_the_checkpoints(store: CheckpointStore) -> None:
    phase = store.root / "main"
    for number in (1, 2):
        store.open_attempt("main", number, f"a-{number}")
    names = [".probe-1-abc", ".fence-000000001.json.1.abc", ".claim-000000001.json.1.abc"]
    for name in (*names, ".probe-2-fresh"):
        (phase / name).write_bytes(b"")
    for name in names:
        os.utime(phase / name, (1.0, 1.0))
    for name in (".stage-a-1", ".stage-a-2", ".stage-000000001"):
        (phase / name / "slot-0").mkdir(parents=True)
    (phase / "privacy.ledger").write_bytes(b"")
    store.sweep("main", 2)
    left = {".probe-2-fresh", ".stage-a-2", ".stage-000000001", "privacy.ledger", "fence-000000002.json"}
    assert {path.name for path in phase.iterdir()} == left


HOSTILE = ["", ".", "..", "../x", "/etc/passwd", "a/../b", "a//b", "./a", "a/", "a\0b", "..\\x", MANIFEST]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_name_that_leads_elsewhere_is_refused(store: CheckpointStore, name: str) -> None:
    writer = store.begin("main", 1, 1, "a-1")
    with pytest.raises(BadName):
        writer.add_bytes(name, b"x")
    hostile = replace(writer.commit({}), files={name: FileEntry(1, "x")})
    with pytest.raises(Damaged):
        store.verify(hostile)


@pytest.mark.parametrize("phase", ["", ".", "..", "../x", "/x", "a/b", "a\0", "x" * 300, "a\n"])
def test_a_phase_name_that_leads_elsewhere_is_refused(store: CheckpointStore, phase: str) -> None:
    with pytest.raises(BadName):
        store.begin(phase, 1, 1, "a-1")
    with pytest.raises(BadName):
        store.list(phase)


@pytest.mark.parametrize("address", ["", "/", "x", "x/y", "s3://x", "/x/../y", "/x//y", "/x/main/step-000000000001-1"])
def test_an_address_of_no_checkpoint_is_said_to_be_none(address: str) -> None:
    with pytest.raises(Damaged, match="checkpoint"):
        locate(address)


def test_only_checkpoints_of_this_store_are_removed(store: CheckpointStore, tmp_path: Path) -> None:
    saved = save(store, 1)
    (tmp_path / "precious").mkdir()
    for path in (tmp_path / "precious", store.root, store.root / "main"):
        with pytest.raises(BadName):
            store.discard(replace(saved, path=path), 1.0)
    assert (tmp_path / "precious").exists()


def test_a_link_inside_the_directory_is_not_committed(store: CheckpointStore, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    writer = store.begin("main", 1, 1, "a-1")
    (writer.path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(SaveFailed, match="link"):
        writer.commit({})
    assert store.list("main") == []


def test_meta_that_is_not_json_fails_the_save(store: CheckpointStore) -> None:
    writer = store.begin("main", 1, 1, "a-1")
    with pytest.raises(SaveFailed, match="JSON"):
        writer.commit({"model": object()})
    assert store.list("main") == []
