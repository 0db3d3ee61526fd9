"""The bytes of a checkpoint as objects named by their hash: put once, read back, and fetched, several at a time.

Memory is bounded, whatever the size of the checkpoint: pieces of up to 32 MiB are read as a whole, as many at a time as
there is room for; larger ones go in blocks.
"""

import contextlib
import hashlib
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from whistlestop.blobs import files
from whistlestop.blobs.manifest import Damaged, FileEntry, SaveFailed, check_name
from whistlestop.blobs.objects import Objects, WrongSize
from whistlestop.blobs.staged import Piece, Staged

THREADS: Final = 4
WHOLE: Final = 32 << 20  # larger ones go in blocks, and are fetched in ranges of this size
LARGE: Final = 48 << 20  # what the blocks of one take that are under way
ROOM: Final = 112 << 20  # for all that is on its way

_HUGE: Final = 2 << 20

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Uploaded:
    files: dict[str, FileEntry] = field(default_factory=dict)
    put: dict[str, int] = field(default_factory=dict)  # hash and size of those that were not there


def upload(objects: Objects, parts: str, staged: Staged, there: Mapping[str, int]) -> Uploaded:
    """Every piece of it below `parts`, but those that are `there` by hash and size. SaveFailed if one can't be read."""
    done, lock, large = Uploaded(), threading.Lock(), threading.Lock()
    room = _Room(ROOM)
    claimed: set[str] = set()

    def is_mine(name: str, entry: FileEntry) -> bool:
        with lock:
            done.files[name] = entry
            if there.get(entry.sha256) == entry.size or entry.sha256 in claimed:
                return False
            claimed.add(entry.sha256)
            return True

    def one(piece: Piece) -> None:
        handle = files.open_piece(staged, piece)
        try:
            if piece.size <= WHOLE:
                with room.take(piece.size):
                    data = _space(piece.size)
                    _fill(handle, piece, data)
                    entry = FileEntry(piece.size, hashlib.sha256(data).hexdigest())
                    if not is_mine(piece.name, entry):
                        return
                    objects.put(f"{parts}/{entry.sha256}", data)
            else:
                with large, room.take(LARGE):
                    entry = FileEntry(piece.size, _digest(files.blocks(handle, piece)))
                    if not is_mine(piece.name, entry):
                        return
                    objects.put_large(
                        f"{parts}/{entry.sha256}", lambda: map(bytes, files.blocks(handle, piece)), piece.size
                    )
        except OSError as error:
            raise SaveFailed(f"{piece.name} could not be sent: {error}") from error
        finally:
            os.close(handle)
        with lock:
            done.put[entry.sha256] = entry.size

    in_parallel(one, sorted(staged.pieces, key=lambda piece: -piece.size))
    done.files = dict(sorted(done.files.items()))
    return done


def read(objects: Objects, parts: str, entry: FileEntry) -> Iterator[memoryview]:
    """In pieces. PartDamaged, at the end at the latest, if it is not what its name says."""
    digest = hashlib.sha256()
    try:
        for chunk in objects.stream(f"{parts}/{entry.sha256}", total=entry.size):
            digest.update(chunk)
            yield chunk
    except (FileNotFoundError, WrongSize) as error:
        raise _damaged(entry, error) from error
    if digest.hexdigest() != entry.sha256:
        raise PartDamaged("has changed since it was saved", entry)


def check(objects: Objects, parts: str, wanted: Iterable[FileEntry]) -> list["PartDamaged"]:
    """Read them all, each once. What is wrong with those that are not what their names say."""

    def one(entry: FileEntry) -> PartDamaged | None:
        try:
            for _ in read(objects, parts, entry):
                pass
        except PartDamaged as error:
            return error
        return None

    return [found for found in in_parallel(one, sorted(set(wanted), key=lambda entry: -entry.size)) if found]


def fetch(objects: Objects, parts: str, wanted: Mapping[str, FileEntry], into: Path) -> None:
    """As files below `into`. PartDamaged unless all are what the manifest says."""
    ranges: list[tuple[Path, FileEntry, int]] = []
    for name, entry in wanted.items():
        target = into / check_name(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"")
        ranges += [(target, entry, start) for start in range(0, max(1, entry.size), WHOLE)]

    def one(item: tuple[Path, FileEntry, int]) -> None:
        target, entry, start = item
        with target.open("r+b", buffering=0) as file:
            if entry.size <= WHOLE:
                for chunk in read(objects, parts, entry):
                    _write(file.fileno(), chunk)
                return
            file.seek(start)
            size = min(WHOLE, entry.size - start)
            try:
                for chunk in objects.stream(f"{parts}/{entry.sha256}", start=start, size=size, total=entry.size):
                    _write(file.fileno(), chunk)
            except (FileNotFoundError, WrongSize) as error:
                raise _damaged(entry, error) from error

    def check_large(item: tuple[str, FileEntry]) -> None:
        """The ranges have arrived in any order; the file is still in memory."""
        name, entry = item
        if files.read(into, name) != (entry.size, entry.sha256):
            raise PartDamaged("has changed since it was saved", entry)

    in_parallel(one, sorted(ranges, key=lambda each: -each[1].size))
    in_parallel(check_large, [(name, entry) for name, entry in wanted.items() if entry.size > WHOLE])


class PartDamaged(Damaged):
    """What is wrong with it, to be said behind the name of a file."""

    def __init__(self, text: str, entry: FileEntry) -> None:
        super().__init__(text)
        self.entry = entry


def in_parallel(act: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """All of them; the first error is raised when those under way have ended."""
    everything = list(items)
    if len(everything) < 2:
        return [act(item) for item in everything]
    with ThreadPoolExecutor(THREADS) as pool:
        waiting = [pool.submit(act, item) for item in everything]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class _Room:
    """Who needs more than is left waits for the others."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def take(self, size: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: size <= self._left)
            self._left -= size
        try:
            yield
        finally:
            with self._changed:
                self._left += size
                self._changed.notify_all()


def _space(size: int) -> memoryview:
    """It goes when nobody has it any more. In large pages, where there are such: small ones take longer to be given
    than to be hashed."""
    space = mmap.mmap(-1, max(1, size))
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            space.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(space)[:size]


def _fill(handle: int, piece: Piece, data: memoryview) -> None:
    """Copied, not mapped: what is hashed is what is put, whatever the program does to its file meanwhile."""
    done = 0
    while done < piece.size:
        done += files.fill(handle, piece, done, data[done:])


def _digest(blocks: Iterable[memoryview]) -> str:
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def _write(handle: int, view: memoryview) -> None:
    while view:
        view = view[os.write(handle, view) :]


def _damaged(entry: FileEntry, error: Exception) -> PartDamaged:
    return PartDamaged(f"has {error}" if isinstance(error, WrongSize) else "is not there any more", entry)
