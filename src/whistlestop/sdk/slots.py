"""The slots in which saves are handed over: two, each with a buffer that is mapped, kept and warm. Memory is asked for
before it is needed, and from the file system, not by touching it: a full disk is an error here, not a SIGBUS."""

import ctypes
import functools
import mmap
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from whistlestop.blobs import staged
from whistlestop.blobs.manifest import SaveFailed
from whistlestop.channel.locks import Lock, Taken, hold
from whistlestop.sdk import room

COUNT: Final = 2
_CHUNK: Final = 16 << 20  # at a time: a save that comes meanwhile waits for no more than this
_STEP: Final = 2 << 20  # sizes are rounded up to it
_POPULATE_WRITE: Final = 23  # madvise, from Linux 5.14 on
_LOOK_SECONDS: Final = 0.01
_OWNER = "owner"
_DAY = 86_400.0


class Slots:
    """`directory` holds slot-0 and slot-1, or links to them in `memory`. `inside`: the ranks of a group have their
    buffers in directories of their own in the same slots; `ranks` says how many share the memory. `owned`: there is no
    runner that takes away what is left."""

    def __init__(
        self, directory: Path, memory: Path | None, *, inside: str = "", ranks: int = 1, owned: bool = False
    ) -> None:
        self.directory = directory
        self._memory = memory
        self._owned = owned
        self._inside = inside
        self._ranks = ranks
        self._shared = bool(inside) or ranks > 1
        self._in_memory: bool | None = None
        self._decided_for = 0
        self._slots = [Slot(directory / f"slot-{number}", inside) for number in range(COUNT)]
        self._lock = threading.Lock()  # between the loop and the thread that prepares
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._owner: Lock | None = None

    def is_free(self) -> bool:
        return any(each.is_free() for each in self._slots)

    def take(self, number: int | None = None, *, seconds: float = 0.0) -> "Slot | None":
        """One that is free, or that very one, if need be after `seconds`. None: they are all the runner's."""
        wanted = self._slots if number is None else [self._slots[number % COUNT]]
        end = time.monotonic() + seconds
        while True:
            for slot in wanted:
                if slot.is_free():
                    return slot
            if time.monotonic() >= end:
                return None
            time.sleep(_LOOK_SECONDS)

    def open(self, slot: "Slot", size: int = 0) -> None:
        """Its directory is there afterwards, with nothing of an earlier save but the buffer. SaveFailed if not."""
        self._hurry.set()
        try:
            with self._lock:
                self._make(slot, size)
            slot.clear()
        except OSError as error:
            raise SaveFailed(f"nothing can be staged in {slot.path}: {error}") from error

    def buffer(self, slot: "Slot", size: int) -> memoryview:
        """Of at least that size. SaveFailed where there is no room for it."""
        self._hurry.set()
        with self._lock:
            return memoryview(self._fit(slot, size))[:size]

    def prepare(self, size: int) -> None:
        """Make room for saves of this size, in the background; the first save then costs what the others cost."""
        waiting = [each for each in self._slots if each.populated < size and each.is_free()]
        if not waiting or (self._thread is not None and self._thread.is_alive()):
            return
        self._hurry.clear()
        thread = threading.Thread(target=self._prepare, args=(size,), daemon=True, name="whistlestop-slots")
        try:
            thread.start()
            self._thread = thread
        except RuntimeError:  # the program is ending, or has too many: the save makes its own room
            pass

    def wait_prepared(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        self._hurry.set()
        self.wait_prepared()
        for slot in self._slots:
            slot.forget()
        if not self._owned:
            return
        if all(slot.is_free() for slot in self._slots):  # else the next start of this training wants it
            if self._memory is not None:
                shutil.rmtree(self._memory, ignore_errors=True)
            shutil.rmtree(self.directory, ignore_errors=True)
        if self._owner is not None:
            self._owner.release()

    # How it is done.

    def _prepare(self, size: int) -> None:
        try:
            for slot in self._slots:
                if slot.is_free():
                    with self._lock:
                        if self._hurry.is_set():
                            return
                        self._make(slot, size)
                    slot.grow_and_populate(size, self._lock, self._hurry.is_set)
        except (OSError, SaveFailed):  # the save itself says what is wrong, if it still is
            pass

    def _fit(self, slot: "Slot", size: int) -> mmap.mmap:
        try:
            self._make(slot, size)
            return slot.fit(size)
        except OSError as error:
            if not self._in_memory or self._shared:
                raise SaveFailed(f"there is no room for {size} bytes in {slot.path}: {error}") from error
        self._in_memory = False  # no room in memory after all
        try:
            self._make(slot, size)
            return slot.fit(size)
        except OSError as error:
            raise SaveFailed(f"there is no room for {size} bytes in {slot.path}: {error}") from error

    def _make(self, slot: "Slot", size: int) -> None:
        """The slot's directory, where it belongs. Another rank may be doing the same: the first one's word holds."""
        if size > self._decided_for or self._in_memory is None:
            self._in_memory = self._memory is not None and room.fits_in_memory(
                size * self._ranks, held=self._held(), memory=self._memory.parent
            )
            self._decided_for = max(size, self._decided_for)
        if self._in_memory and not self._claim():
            self._memory, self._in_memory = None, False
        path = slot.path
        if path.is_dir() and (self._shared or path.is_symlink() == self._in_memory or not size):
            slot.inner.mkdir(exist_ok=True)
            return
        slot.forget()
        if path.is_symlink():
            shutil.rmtree(os.path.realpath(path), ignore_errors=True)
            path.unlink(missing_ok=True)
        elif self._in_memory and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._in_memory:
            self._link(path)
        else:
            path.mkdir(exist_ok=True)
        slot.inner.mkdir(exist_ok=True)

    def _claim(self) -> bool:
        """Whether the place in memory is ours, or a runner's. False: another process of the same attempt saves there;
        it would remove under our hands what it takes for its own."""
        assert self._memory is not None
        if self._owner is None and self._owned:
            sweep_memory(self._memory.parent)
            self._memory.mkdir(exist_ok=True, mode=0o700)
            try:
                self._owner = hold(self._memory / _OWNER)
            except Taken:
                return False
            except OSError:
                pass
        return True

    def _link(self, path: Path) -> None:
        assert self._memory is not None
        target = self._memory / path.name
        for each in (self._memory, target):  # each by itself: parents that are made on the way get another mode
            each.mkdir(exist_ok=True, mode=0o700)
        try:
            path.symlink_to(target, target_is_directory=True)
        except FileExistsError:
            pass

    def _held(self) -> int:
        return sum(each.capacity for each in self._slots if each.path.is_symlink())


class Slot:
    def __init__(self, path: Path, inside: str) -> None:
        self.path = path
        self.inner = path / inside if inside else path  # where this rank's things are
        self.prefix = f"{inside}/" if inside else ""  # of the sources of its pieces
        self.capacity = self.populated = 0
        self._map: mmap.mmap | None = None
        self._inode = 0

    def is_free(self) -> bool:
        return staged.is_free(self.path)

    def clear(self) -> None:
        for name in ("files", "added"):
            if (self.inner / name).exists():
                shutil.rmtree(self.inner / name)

    def forget(self) -> None:
        self._map, self.capacity, self.populated = None, 0, 0  # whoever still looks at it holds it

    def fit(self, size: int) -> mmap.mmap:
        return self._grow(max(size, 1))

    def grow_and_populate(self, size: int, lock: threading.Lock, hurry: Callable[[], bool]) -> None:
        """In pieces, each under the lock, until somebody is in a hurry."""
        for end in range(min(_CHUNK, size), size + _CHUNK, _CHUNK):
            with lock:
                if hurry() or not self.is_free():
                    return
                if self.capacity < min(end, size):
                    self._allocate(min(end, size))
        with lock:
            if hurry():
                return
            mapped = self._grow(size)
        for start in range(0, len(mapped), _CHUNK):
            with lock:
                if hurry() or self._map is not mapped:
                    return
                _populate(mapped, start, min(_CHUNK, len(mapped) - start))
        self.populated = max(self.populated, len(mapped))

    def _allocate(self, size: int) -> None:
        """Of the file system, not of the map: ENOSPC comes here."""
        handle = os.open(self.inner / staged.BUFFER, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            have = os.fstat(handle).st_size
            if have < size:
                try:
                    os.posix_fallocate(handle, have, size - have)
                except OSError:
                    os.ftruncate(handle, have)
                    raise
        finally:
            os.close(handle)

    def _grow(self, size: int) -> mmap.mmap:
        size = -(-size // _STEP) * _STEP if size > _STEP else -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        path = self.inner / staged.BUFFER
        if self._map is not None and self.capacity >= size and _inode(path) == self._inode:
            return self._map
        self._allocate(size)
        handle = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        try:
            status = os.fstat(handle)
            self._map = mmap.mmap(handle, status.st_size)
            self.capacity, self._inode = status.st_size, status.st_ino
        finally:
            os.close(handle)
        return self._map


def sweep_memory(memory: Path = room.MEMORY) -> None:
    """Places in memory of processes that are gone without a runner. What they had handed over stays for a day: the
    next start of that training wants it."""
    for path in memory.glob("whistle-*"):
        try:
            if not (path / _OWNER).exists() or path.stat().st_uid != os.getuid():
                continue
            lock = hold(path / _OWNER)
        except (Taken, OSError):
            continue
        try:
            published = [each.stat().st_mtime for each in path.glob(f"slot-*/{staged.STAGE}")]
            if all(time.time() - at > _DAY for at in published):
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass
        finally:
            lock.release()


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return -1


def _populate(mapped: mmap.mmap, start: int, size: int) -> None:
    """Pages that are there and writable. By madvise, which lets other threads run; else by touching each."""
    first, advise = ctypes.addressof(ctypes.c_char.from_buffer(mapped)), _madvise()
    if advise is not None and advise(first + start, size, _POPULATE_WRITE) == 0:
        return
    for offset in range(start, start + size, mmap.PAGESIZE):
        mapped[offset] = 0


@functools.cache
def _madvise() -> Callable[[int, int, int], int] | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    found.restype = ctypes.c_int
    return found
