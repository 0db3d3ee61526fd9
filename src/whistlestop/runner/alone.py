"""Whether other runners of this user watch the same machine: each holds a shared lock while it lives."""

import contextlib
import fcntl
import os
import tempfile
import zlib


class Alone:
    def __init__(self, machine: str) -> None:
        """`machine`: whatever names it, the same for all who are on it."""
        name = f"whistle-{os.getuid()}-{zlib.crc32(machine.encode()):08x}.lock"
        self._path = os.path.join(tempfile.gettempdir(), name)
        self._fd: int | None = None
        with contextlib.suppress(OSError):
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # not had: somebody else was the last, and all is over

    def is_last(self) -> bool:
        """False also where nobody can tell. Who asks is about to leave, and does not count any more."""
        if self._fd is None:
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            self._fd = None
            return False
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        return True
