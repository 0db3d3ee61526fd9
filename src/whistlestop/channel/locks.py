"""One holder of a file at a time, among all processes and within this one."""

import errno
import os
import threading
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: runs run on Linux, the SDK only has to import there
    fcntl = None  # type: ignore[assignment]

_Key = tuple[int, int]

# The kernel's record locks belong to the process: a second holder in it would get the same lock, and closing its file
# would let go of the first one's. So what this process holds is known by device and inode. The process's number is
# kept with it: a forked child inherits this table, but no lock.
_held: dict[_Key, int] = {}
_guard = threading.Lock()


class Taken(Exception):
    """Another process holds it, or another part of this one."""


class Lock:
    """Held until `release`, or until the process ends."""

    def __init__(self, handle: int, key: _Key) -> None:
        self._handle = handle
        self._key = key
        self._process = os.getpid()

    def release(self) -> None:
        if self._handle < 0:
            return
        with _guard:
            os.close(self._handle)
            self._handle = -1
            if self._process == os.getpid() and _held.get(self._key) == self._process:
                del _held[self._key]


def hold(path: Path) -> Lock:
    """Taken if somebody else has it; OSError if the file can't be made. Where there are no locks, all get it.

    A record lock, not flock: workers that the program forks must not keep it alive.
    """
    with _guard:
        if _ours(path):
            raise Taken(f"this process holds {path} already")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            if fcntl is not None:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                os.close(handle)
                raise Taken(f"another process holds {path}") from None
            # ENOLCK, ENOTSUP: this file system has no locks.
        status = os.fstat(handle)
        key = (status.st_dev, status.st_ino)
        _held[key] = os.getpid()
        return Lock(handle, key)


def _ours(path: Path) -> bool:
    """Looked up before it is opened: closing it again would let go of the lock."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return _held.get((status.st_dev, status.st_ino)) == os.getpid()


def _forget_guard() -> None:
    """In a forked child the guard may be with a thread that does not exist there."""
    global _guard
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_guard)
