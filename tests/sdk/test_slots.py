"""Slots: in memory where there is room, on disk else, and never an error that ends a training."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.blobs import staged
from whistlestop.blobs.manifest import SaveFailed
from whistlestop.blobs.staged import Staged
from whistlestop.domain.ids import new_id
from whistlestop.sdk import room, slots
from whistlestop.sdk.slots import Slots

MEGABYTE = 1 << 20


@pytest.fixture
def memory() -> Iterator[Path]:
    import shutil

    path = room.MEMORY / f"whistle-{new_id('a')}"
    yield path
    shutil.rmtree(path, ignore_errors=True)


def publish(path: Path) -> None:
    staged.publish(Staged(path, "train", 1, 1, "a-1", {}, (), 0.0))


def test_with_room_they_are_in_memory_and_the_directory_links_there(tmp_path: Path, memory: Path) -> None:
    them = Slots(tmp_path / "stage", memory)
    slot = them.take()
    assert slot is not None
    them.open(slot, MEGABYTE)
    them.buffer(slot, MEGABYTE)[:3] = b"abc"
    assert (tmp_path / "stage" / "slot-0").resolve() == memory / "slot-0"
    assert (memory / "slot-0" / "buffer").read_bytes()[:3] == b"abc"
    assert memory.stat().st_mode & 0o777 == 0o700
    assert list(staged.slots(tmp_path / "stage")) == [tmp_path / "stage" / "slot-0"]


def test_what_another_process_of_the_same_attempt_holds_is_left_alone(tmp_path: Path, memory: Path) -> None:
    first, second = Slots(tmp_path / "one", memory, owned=True), Slots(tmp_path / "two", memory, owned=True)
    for them in (first, second):
        slot = them.take()
        assert slot is not None
        them.open(slot, MEGABYTE)
        them.buffer(slot, MEGABYTE)[:3] = b"abc"
    assert (tmp_path / "one" / "slot-0").resolve() == memory / "slot-0"
    assert not (tmp_path / "two" / "slot-0").is_symlink()
    second.close()  # and takes nothing of the first with it
    assert (memory / "slot-0" / "buffer").read_bytes()[:3] == b"abc"
    first.close()
    assert not memory.exists()


@pytest.mark.parametrize("why", ["too large", "no tmpfs", "nothing left"])
def test_without_room_they_are_on_disk(tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "too large":
        monkeypatch.setattr(room, "_available", lambda: 2 * MEGABYTE)
    elif why == "no tmpfs":
        memory = tmp_path / "nowhere" / "whistle-a"
    else:
        real = os.posix_fallocate

        def full(handle: int, offset: int, size: int) -> None:
            if os.readlink(f"/proc/self/fd/{handle}").startswith(str(room.MEMORY)):
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle, offset, size)

        monkeypatch.setattr(os, "posix_fallocate", full)
    them = Slots(tmp_path / "stage", memory)
    slot = them.take()
    assert slot is not None
    them.open(slot, MEGABYTE)
    them.buffer(slot, MEGABYTE)[:3] = b"abc"
    assert not (tmp_path / "stage" / "slot-0").is_symlink()
    assert (tmp_path / "stage" / "slot-0" / "buffer").read_bytes()[:3] == b"abc"


GIGABYTE = 1 << 30
UNIFIED = {
    "memory.max": "max",
    "job/memory.max": f"{8 * GIGABYTE}",
    "job/memory.current": f"{5 * GIGABYTE}",
    "job/memory.stat": f"anon {4 * GIGABYTE}\ninactive_file {GIGABYTE}\nactive_file 7\n",
    "job/step/memory.max": "max",
}
SINGLE = {
    "memory/memory.limit_in_bytes": "9223372036854771712",
    "memory/job/memory.limit_in_bytes": f"{8 * GIGABYTE}",
    "memory/job/memory.usage_in_bytes": f"{5 * GIGABYTE}",
    "memory/job/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIGABYTE}\n",
    "memory/job/step/memory.limit_in_bytes": f"{6 * GIGABYTE}",
    "memory/job/step/memory.usage_in_bytes": f"{5 * GIGABYTE}",
    "memory/job/step/memory.stat": "total_inactive_file 0\n",
}
CONTAINER = {name.replace("job/", ""): text for name, text in SINGLE.items() if "step" not in name}


@pytest.mark.parametrize(
    ("lines", "files", "left"),
    [
        ("0::/job/step", UNIFIED, [4]),
        ("9:name=systemd:/x\n4:cpu,memory:/job/step\n0::/", SINGLE, [1, 4]),
        ("4:memory:/docker/of-the-host", CONTAINER, [4]),  # its own tree is mounted as the root
        ("4:memory:/job/step", {}, [0]),  # limited, and nobody can tell how
        ("4:memory:/", {"memory/memory.limit_in_bytes": "9223372036854771712"}, []),
        ("2:cpu:/\n0::/", {}, []),
        (None, {}, []),
    ],
)
def test_what_the_control_group_may_still_take(
    tmp_path: Path, lines: str | None, files: dict[str, str], left: list[int]
) -> None:
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    if lines is not None:
        (tmp_path / "own").write_text(f"{lines}\n")
    found = room.left_in_groups(tmp_path / "own", tmp_path / "groups")
    assert [each // GIGABYTE for each in found] == left


def test_a_full_disk_is_a_failed_save_and_gives_back_what_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    them = Slots(tmp_path, None)
    slot = them.take()
    assert slot is not None
    them.open(slot)
    them.buffer(slot, 5)

    def full(handle: int, offset: int, size: int) -> None:
        os.ftruncate(handle, offset + size // 2)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SaveFailed, match="No space left"):
        them.buffer(slot, MEGABYTE)
    monkeypatch.undo()
    assert (tmp_path / "slot-0" / "buffer").stat().st_size == 4096
    assert len(them.buffer(slot, MEGABYTE)) == MEGABYTE


def test_a_place_that_can_not_be_made_is_a_failed_save(tmp_path: Path) -> None:
    (tmp_path / "stage").write_text("a file is in the way")
    them = Slots(tmp_path / "stage", None)
    slot = them.take()
    assert slot is not None
    with pytest.raises(SaveFailed, match="stage"):
        them.open(slot)


def test_a_published_slot_is_the_runners_until_it_lets_go(tmp_path: Path) -> None:
    them = Slots(tmp_path, None)
    for _ in range(2):
        slot = them.take()
        assert slot is not None
        them.open(slot)
        publish(slot.path)
    assert them.take(seconds=0.05) is None
    assert not them.is_free()
    staged.release(tmp_path / "slot-1")
    again = them.take(seconds=5)
    assert again is not None
    assert again.path == tmp_path / "slot-1"
    assert them.take(0) is None


def test_a_buffer_grows_and_is_the_same_file_for_the_next_process(tmp_path: Path) -> None:
    them = Slots(tmp_path, None)
    slot = them.take()
    assert slot is not None
    them.open(slot)
    them.buffer(slot, 10)[:] = b"0123456789"
    large = them.buffer(slot, 3 * MEGABYTE)
    assert bytes(large[:10]) == b"0123456789"
    inode = (slot.path / "buffer").stat().st_ino
    later = Slots(tmp_path, None)
    same = later.take()
    assert same is not None
    later.open(same)
    assert bytes(later.buffer(same, 10)) == b"0123456789"
    assert (same.path / "buffer").stat().st_ino == inode
    assert large.nbytes == 3 * MEGABYTE


def test_what_frameworks_wrote_into_it_last_time_is_gone(tmp_path: Path) -> None:
    them = Slots(tmp_path, None)
    slot = them.take()
    assert slot is not None
    them.open(slot)
    (slot.inner / "files" / "model").mkdir(parents=True)
    them.open(slot)
    assert not (slot.inner / "files").exists()


@pytest.mark.parametrize("madvise", [True, False])
def test_prepared_slots_have_all_their_pages(
    tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch, madvise: bool
) -> None:
    if not madvise:
        monkeypatch.setattr(slots, "_madvise", lambda: None)
    them = Slots(tmp_path / "stage", memory)
    them.prepare(40 * MEGABYTE)
    them.wait_prepared()
    resident = 0
    for block in Path("/proc/self/smaps").read_text().split("VmFlags"):
        if str(memory) in block:
            resident += next(int(line.split()[1]) for line in block.splitlines() if line.startswith("Rss:")) * 1024
    assert resident >= 2 * 39 * MEGABYTE  # the kernel may have taken a page back
    slot = them.take()
    assert slot is not None
    them.open(slot, 40 * MEGABYTE)
    assert len(them.buffer(slot, 40 * MEGABYTE)) == 40 * MEGABYTE
    them.close()


def test_a_save_does_not_wait_for_the_preparation(tmp_path: Path, memory: Path) -> None:
    them = Slots(tmp_path / "stage", memory)
    them.prepare(200 * MEGABYTE)
    slot = them.take()
    assert slot is not None
    them.open(slot, MEGABYTE)
    them.buffer(slot, MEGABYTE)[:3] = b"abc"
    them.wait_prepared()
    assert (slot.path / "buffer").read_bytes()[:3] == b"abc"


def test_places_in_memory_that_nobody_owns_any_more_are_taken_away(tmp_path: Path, memory: Path) -> None:
    them = Slots(tmp_path / "stage", memory, owned=True)
    slot = them.take()
    assert slot is not None
    them.open(slot, MEGABYTE)
    slots.sweep_memory()
    assert memory.exists()
    publish(slot.path)
    them.close()
    slots.sweep_memory()
    assert memory.exists()  # what was handed over is wanted
    staged.release(slot.path)
    slots.sweep_memory()
    assert not memory.exists()


def test_slots_of_a_runner_are_left_to_it(tmp_path: Path, memory: Path) -> None:
    them = Slots(tmp_path / "stage", memory)
    slot = them.take()
    assert slot is not None
    them.open(slot, MEGABYTE)
    them.close()
    slots.sweep_memory()
    assert (memory / "slot-0").exists()
