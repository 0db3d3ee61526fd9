"""Files of a checkpoint on a file system: written once, synced, read back. What is large goes past the page cache, and
by more than one thread: hashing, reading and writing leave the interpreter to others."""

import errno
import mmap
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from whistlestop.blobs.manifest import BadName, Damaged, FileEntry, SaveFailed
from whistlestop.blobs.staged import Piece, Staged

LINKED: Final = 64 << 10  # smaller ones are written again: a link saves nothing
LARGE: Final = 8 << 20  # from here on threads are worth their start
THREADS: Final = 2
_CHUNK = 1 << 20
_DIRECT = 1 << 20  # from here on the page cache is only in the way
_PAGE = 4096
_BLOCK = 1 << 20  # stays in the processor's cache from being read to being hashed
_ABOUT_THE_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG, errno.EIO)
_O_DIRECT = getattr(os, "O_DIRECT", 0)
_WRITE_ONCE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)

Item = TypeVar("Item")
_spaces: list[mmap.mmap] = []  # that nobody uses just now


def write(path: Path, data: bytes) -> None:
    """Whole and synced; what is there already is never written over."""
    handle = os.open(path, _WRITE_ONCE, 0o600)
    try:
        _write_all(handle, memoryview(data))
        os.fsync(handle)
    finally:
        os.close(handle)


def read(root: Path, name: str, *, sync: bool = False) -> tuple[int, str]:
    """Size and hash. Only plain files inside `root`: a link could lead anywhere. `sync`: from where it stays, after all
    of it was written there; else it may be in the page cache, and is afterwards."""
    import hashlib

    handle = open_plain(root, name)
    try:
        if sync:
            os.fsync(handle)
            if os.fstat(handle).st_size >= _DIRECT:
                _with_direct(handle)
        digest, size = hashlib.sha256(), 0
        with _space() as space:
            while got := _read_some(handle, space, size):
                digest.update(space[:got])
                size += got
        return size, digest.hexdigest()
    finally:
        os.close(handle)


def stream(root: Path, name: str, entry: FileEntry) -> Iterator[bytes]:
    """The bytes in pieces. Damaged at the end, if they were not those of the manifest."""
    import hashlib

    handle = open_plain(root, name)
    try:
        digest = hashlib.sha256()
        while chunk := os.read(handle, _CHUNK):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != entry.sha256:
            raise Damaged(f"{name} of {root} has changed since it was saved")
    finally:
        os.close(handle)


def write_pieces(staged: Staged, target: Path, known: Mapping[tuple[int, str], Path]) -> tuple[dict[str, str], int]:
    """Every piece as a file below `target`; one that is `known`, by size and hash, is linked to. Returns the hash of
    each, and how many bytes were written."""
    digests: dict[str, str] = {}
    written: list[int] = []

    def one(piece: Piece) -> None:
        handle = open_piece(staged, piece)
        try:
            digests[piece.name] = digest = _digest(blocks(handle, piece))
            path = target / piece.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not _linked(known.get((piece.size, digest)), path):
                _write_large(path, blocks(handle, piece), piece.size)
                written.append(piece.size)
        finally:
            os.close(handle)

    in_threads(one, sorted(staged.pieces, key=lambda piece: -piece.size), staged.bytes)
    return digests, sum(written)


def take_over(source: Path, target: Path) -> None:
    """The same file under another name, or a copy of it. Not synced: whoever reads it back does that."""
    import shutil

    target.parent.mkdir(parents=True, exist_ok=True)
    if not _linked(source, target):
        shutil.copyfile(source, target)


def open_piece(staged: Staged, piece: Piece) -> int:
    """For reading. SaveFailed has no cause if it can't be helped by trying again."""
    try:
        return open_plain(staged.directory, piece.source)
    except BadName as error:
        raise _unreadable(piece, error) from None
    except OSError as error:
        raise _unreadable(piece, error) from (None if is_about_the_file(error) else error)


def fill(handle: int, piece: Piece, done: int, space: memoryview) -> int:
    """How many bytes of the piece were read, from `done` on. The same is true of SaveFailed here."""
    try:
        got = _read_at(handle, space, piece.offset + done)
    except (OSError, OverflowError) as error:
        raise _unreadable(piece, error) from None
    if got == 0:
        raise SaveFailed(f"{piece.source} is shorter than {piece.name} needs")
    return got


def blocks(handle: int, piece: Piece) -> Iterator[memoryview]:
    """The bytes of a piece, each time in the same memory, which is aligned. Copied, not mapped: the file is the
    program's, and one that is cut short under our hands would end this process."""
    done = 0
    with _space() as space:
        while done < piece.size:
            with space[: piece.size - done] as free:
                got = fill(handle, piece, done, free)
            with space[:got] as block:
                yield block
            done += got


def is_about_the_file(error: OSError) -> bool:
    """Else it says nothing about it: too many open files, no memory, a share that is away."""
    return error.errno in _ABOUT_THE_FILE


def in_threads(act: Callable[[Item], None], items: Iterable[Item], size: int) -> None:
    """All of them; the first error is raised when the others have ended. Alone where that is not worth it."""
    everything = list(items)
    if size < LARGE or len(everything) < 2:
        for item in everything:
            act(item)
        return
    left = iter(everything)
    errors: list[BaseException] = []

    def work() -> None:
        for item in left:
            if errors:
                return
            try:
                act(item)
            except BaseException as error:
                errors.append(error)

    # By hand: an executor can't be made any more while the interpreter ends, and that is when last saves are written.
    helpers = [threading.Thread(target=work, daemon=True) for _ in range(THREADS - 1)]
    started = []
    for helper in helpers:
        try:
            helper.start()
            started.append(helper)
        except RuntimeError:  # no more threads, for the same reason or another: then alone
            break
    work()
    for helper in started:
        helper.join()
    if errors:
        raise errors[0]


def sync_directory(path: Path) -> None:
    if os.name == "nt":  # directories can't be opened there
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_plain(root: Path, name: str) -> int:
    path = root / name
    if os.path.realpath(path) != os.path.join(os.path.realpath(root), name):
        raise BadName(f"{name} leads out of {root} through a link")
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadName(f"{name} is not a plain file")
    return handle


@contextmanager
def _space() -> Iterator[memoryview]:
    """Kept from one file to the next: fresh pages for each would cost more than hashing it."""
    try:
        space = _spaces.pop()
    except IndexError:
        space = mmap.mmap(-1, _BLOCK)
    try:
        with memoryview(space) as view:
            yield view
    finally:
        if len(_spaces) < THREADS:
            _spaces.append(space)


def _read_some(handle: int, space: memoryview, offset: int) -> int:
    try:
        return _read_at(handle, space, offset)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _without_direct(handle)  # this file system wants it otherwise
        return _read_at(handle, space, offset)


def _read_at(handle: int, space: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(handle, [space], offset)
    os.lseek(handle, offset, os.SEEK_SET)
    data = os.read(handle, len(space))
    space[: len(data)] = data
    return len(data)


def _unreadable(piece: Piece, error: Exception) -> SaveFailed:
    return SaveFailed(f"{piece.name} can't be read from {piece.source}: {error}")


def _digest(parts: Iterable[memoryview]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _linked(source: Path | None, target: Path) -> bool:
    if source is None:
        return False
    try:
        os.link(source, target)
    except OSError:  # another file system, no links there, too many, or gone: then it is written
        return False
    return True


def _write_large(path: Path, parts: Iterable[memoryview], size: int) -> None:
    """Not synced: whoever reads it back does that."""
    direct = _O_DIRECT if size >= _DIRECT else 0
    mode = 0o400 if size >= LINKED else 0o600  # who writes to what is linked to changes several checkpoints at once
    try:
        handle = os.open(path, _WRITE_ONCE | direct, mode)
    except OSError:
        if not direct:
            raise
        path.unlink(missing_ok=True)
        handle, direct = os.open(path, _WRITE_ONCE, mode), 0  # a file system without it
    try:
        for part in parts:
            if direct and (len(part) % _PAGE or not _write_direct(handle, part)):
                direct = _without_direct(handle)
            if not direct:
                _write_all(handle, part)
    finally:
        os.close(handle)


def _write_direct(handle: int, part: memoryview) -> bool:
    """False: nothing was written, this file system wants it otherwise."""
    done = 0
    while done < len(part):
        try:
            done += os.write(handle, part[done:])
        except OSError as error:
            if error.errno != errno.EINVAL or done:
                raise
            return False
    return True


def _without_direct(handle: int) -> int:
    import fcntl

    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~_O_DIRECT)
    return 0


def _with_direct(handle: int) -> None:
    if _O_DIRECT:
        import fcntl

        try:
            fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | _O_DIRECT)
        except OSError:  # a file system without it
            pass


def _write_all(handle: int, view: memoryview) -> None:
    while view:
        view = view[os.write(handle, view) :]
