"""Files of a fixed size that are mapped into memory. Preallocated, because a store into a sparse page of a full
disk is SIGBUS: it would end the user's program."""

import mmap
import os
from pathlib import Path


def create(path: Path, size: int) -> mmap.mmap:
    """A new file of `size` zero bytes, for its owner alone. OSError (ENOSPC, EEXIST) leaves nothing behind."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
        else:
            os.write(handle, bytes(size))
        mapped = mmap.mmap(handle, size)
        _touch(mapped)
        return mapped
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(handle)


def open_existing(path: Path, *, writable: bool) -> mmap.mmap:
    handle = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0))
    try:
        return mmap.mmap(handle, 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    finally:
        os.close(handle)


_MADV_POPULATE_WRITE = 23  # Linux 5.14; not named by Python's mmap


def _touch(mapped: mmap.mmap) -> None:
    """Fault all pages in now: else every 85th point pays for one, ten times what the point costs."""
    try:
        mapped.madvise(_MADV_POPULATE_WRITE)
    except (OSError, ValueError, AttributeError):  # an older kernel, another system
        pass
