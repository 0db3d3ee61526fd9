"""The file that the ranks of one node share: its name, who makes it, when it is of an earlier start, when it goes away.

A file may outlive its ranks: a crash removes nothing. Every rank's page says which process took it, so that what an
earlier start has left is known: a rank that finds its own page taken by a process that is gone begins a new file.
"""

import mmap
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from whistlestop.channel.control import Control
from whistlestop.channel.layout import SIZE, Word
from whistlestop.domain.errors import WhistleError
from whistlestop.sdk.processes import lives, process_began, started, uptime
from whistlestop.sdk.world import World, coordinator, tensorflow_cluster

try:
    import fcntl
except ImportError:  # Windows: runs run on Linux, the SDK only has to import there
    fcntl = None  # type: ignore[assignment]

FIRST = 2  # pages before those of the ranks
# Words of a rank's page that say whose it is.
STARTED, PARENT, PARENT_STARTED, JOINED, OUT = range(230, 235)
DONE = 1 << 62  # in ACK_SEQ: this rank will never act on anything again

LATE_SECONDS = 30.0  # for an earlier start's file to be replaced by the rank that knows it to be one
_LOCK_SECONDS = 10.0
_OLD_SECONDS = 3600.0  # then a file without a living rank is swept although its launcher lives


class RanksApart(WhistleError):
    """The ranks of this training could not come together."""

    code = "ranks_apart"


class Shared:
    """This process's hold on the file."""

    def __init__(self, path: Path, mapped: mmap.mmap, identity: tuple[int, int], local: int) -> None:
        self.path = path
        self.pages = _pages(mapped)
        self.mine = self.pages[FIRST + local]
        self._identity = identity

    def leave(self) -> None:
        """The last one out takes the file away. One that has not come yet may still need what it says."""
        self.mine[OUT] = 1
        try:
            with _locked(self.path, create=False) as handle:
                if handle is None or _identity(handle) != self._identity:
                    return
                if all(page[OUT] or gone(page) for page in self.pages[FIRST:]):
                    self.path.unlink(missing_ok=True)
        except (OSError, RanksApart):
            pass


def share(path: Path, world: World) -> Shared:
    """Take this rank's page, in a new file if what is there is of an earlier start. RanksApart if it is taken."""
    until = time.monotonic() + LATE_SECONDS
    while True:
        with _locked(path) as handle:
            assert handle is not None
            mapped = _map(handle, SIZE * (FIRST + world.local_size))
            pages = _pages(mapped)
            own = pages[FIRST + world.local_rank]
            if own[Word.PID]:
                _refuse_if_taken(own, world)
                path.unlink(missing_ok=True)
                continue
            if time.monotonic() > until or not _of_earlier_start(pages[FIRST:]):
                _claim(own)
                return Shared(path, mapped, _identity(handle), world.local_rank)
        time.sleep(0.05)


def gone(page: Control) -> bool:
    """The process that took this page is no more. One that nobody took is still to come."""
    return page[Word.PID] > 0 and not lives(page[Word.PID], page[STARTED])


def _refuse_if_taken(own: Control, world: World) -> None:
    if own[OUT] or own[Word.ACK_SEQ] >= DONE or gone(own):
        return
    raise RanksApart(
        f"rank {world.rank} of this training is process {own[Word.PID]} already",
        hint="two trainings at the same time need names, run(name=...), or different MASTER_PORTs",
    )


def _of_earlier_start(pages: Sequence[Control]) -> bool:
    """Nobody in it lives, and all had come before this process began. Most likely the ranks of an earlier start, in
    which ours did not come so far; the ones that come now will see it. Else they are those that we are looking for."""
    came = [page for page in pages if page[Word.PID]]
    if not came or not all(map(gone, came)):
        return False
    return max(page[JOINED] for page in came) < process_began() * 1e6


def _claim(page: Control) -> None:
    parent = os.getppid()
    page[STARTED] = started(os.getpid())
    page[PARENT], page[PARENT_STARTED] = parent, started(parent)
    page[JOINED] = int(uptime() * 1e6)
    page[Word.PID] = os.getpid()  # last: whoever sees it sees the rest


# The file.


def _map(handle: int, size: int) -> mmap.mmap:
    """Whoever comes first makes it. Only ours: the shared place belongs to everybody on this machine."""
    status = os.fstat(handle)
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or not stat.S_ISREG(status.st_mode)):
        raise RanksApart("the file that the ranks share belongs to somebody else; remove it")
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)  # never shrinks, never clears: the order of arrival does not matter
    elif status.st_size < size:
        os.ftruncate(handle, size)
    return mmap.mmap(handle, size)


def _pages(mapped: mmap.mmap) -> list[Control]:
    return [Control(mapped, start) for start in range(0, len(mapped), SIZE)]


@contextmanager
def _locked(path: Path, *, create: bool = True) -> Iterator[int | None]:
    """The file that has this name, and nobody else in here. None if there is none, and it is not to be made."""
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | (os.O_CREAT if create else 0)
    while True:
        try:
            handle = os.open(path, flags, 0o600)
        except FileNotFoundError:
            if create:
                raise
            yield None
            return
        try:
            _lock(handle, path)
            try:
                if _identity(handle) != _named(path):
                    continue  # it was taken away meanwhile
                yield handle
                return
            finally:
                if fcntl is not None:
                    fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may hold the same file open
        finally:
            os.close(handle)


def _lock(handle: int, path: Path) -> None:
    until = time.monotonic() + _LOCK_SECONDS
    while fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise RanksApart(f"another process holds {path}, and does not let go of it") from None
            time.sleep(0.002)
        except OSError:  # this file system has no locks
            return


def _identity(handle: int) -> tuple[int, int]:
    status = os.fstat(handle)
    return status.st_dev, status.st_ino


def _named(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino


# Its name, where no runner has made a place for it.


def shared_path(world: World, tag: str, env: Mapping[str, str] | None = None) -> Path:
    """What all ranks of this training know, and others don't. `tag`: which of its runs."""
    import hashlib

    env = os.environ if env is None else env
    known = [env.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "PMIX_NAMESPACE")]
    known += [tensorflow_cluster(env), coordinator()]
    if not any(known):
        parent = os.getppid()
        known = [str(parent), str(started(parent))]  # its number alone is given away again one day
    known += [env.get(name, "") for name in ("MASTER_ADDR", "SLURM_JOB_ID", "SLURM_STEP_ID")]
    known += [str(world.size), str(world.local_size), str(world.node), tag]
    digest = hashlib.sha256("\0".join(known).encode(errors="surrogateescape")).hexdigest()[:24]
    return shared_memory() / f"{_prefix()}{digest}"


def shared_memory() -> Path:
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        return memory
    import tempfile

    return Path(tempfile.gettempdir())


def _prefix() -> str:
    return f"whistle-{os.getuid() if hasattr(os, 'getuid') else 0}-"


def sweep(but: Path) -> None:
    """Take away what crashed trainings have left: none of their ranks lives, nor who started them. Never raises."""
    try:
        left = [path for path in but.parent.glob(f"{_prefix()}*") if path != but]
    except OSError:
        return
    for path in left:
        try:
            with _locked(path, create=False) as handle:
                if handle is not None and _is_left(handle):
                    path.unlink(missing_ok=True)
        except (OSError, ValueError, RanksApart):  # somebody else's, or somebody else is at it
            continue


def _is_left(handle: int) -> bool:
    status = os.fstat(handle)
    if status.st_size <= FIRST * SIZE or status.st_size % SIZE:
        return time.time() - status.st_mtime > LATE_SECONDS  # else it is just being made
    pages = [page for page in _pages(mmap.mmap(handle, status.st_size))[FIRST:] if page[Word.PID]]
    if not all(map(gone, pages)):
        return False
    if not any(lives(page[PARENT], page[PARENT_STARTED]) for page in pages):
        return bool(pages) or time.time() - status.st_mtime > LATE_SECONDS
    return uptime() - max(page[JOINED] for page in pages) / 1e6 > _OLD_SECONDS
