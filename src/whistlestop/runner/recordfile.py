"""An append-only file of records, each prefixed with its u32 size. A full disk costs records, never the runner."""

import contextlib
import os
from pathlib import Path

_BLOCK = 4 << 20


class RecordFile:
    """One writer. `end` counts whole records only; what a crash tore off behind them is cut at the next open."""

    def __init__(self, fd: int, end: int) -> None:
        self._fd = fd
        self._stored = end
        self._held = b""  # behind what is stored: the disk did not take it yet

    @property
    def end(self) -> int:
        return self._stored + len(self._held)

    @classmethod
    def open(cls, path: Path) -> "RecordFile":
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        end = 0
        while block := os.pread(fd, _BLOCK, end):
            used = _whole(block)
            if used == 0 and len(block) == _BLOCK:  # nonsense for a size: nothing behind it can be read
                break
            end += used
            if used == 0:
                break
        os.ftruncate(fd, end)
        return cls(fd, end)

    def append(self, records: bytes) -> bool:
        """All or nothing. False when the disk takes no more."""
        written = 0
        try:
            while written < len(records):
                written += os.pwrite(self._fd, records[written:], self._stored + written)
        except OSError:
            os.ftruncate(self._fd, self._stored)
            return False
        self._stored += written
        return True

    def hold(self, records: bytes) -> None:
        """Append what must not be lost: from memory, until the disk takes it. Readers see no difference."""
        self._held += records
        self.flush()

    def flush(self) -> bool:
        """Try again what is held. True: everything is on disk."""
        held, self._held = self._held, b""
        if held and not self.append(held):
            self._held = held
        return not self._held

    def read(self, offset: int, limit: int) -> bytes:
        """Whole records from `offset` on, about `limit` bytes, at least one if there is one."""
        if offset >= self._stored:
            held = self._held[offset - self._stored :]
            return held[: _whole(held[:limit]) or _whole(held)]
        block = os.pread(self._fd, min(limit, self._stored - offset), offset)
        used = _whole(block)
        if used == 0 and len(block) >= 4:
            block = os.pread(self._fd, 4 + int.from_bytes(block[:4], "little"), offset)
            used = _whole(block)
        return block[:used]

    def last(self) -> bytes | None:
        """The last record's body."""
        offset = self.last_offset()
        return self.read(offset, 4)[4:] if offset is not None else None

    def last_offset(self) -> int | None:
        """Where the last record begins."""
        offset, found = 0, None
        while data := self.read(offset, _BLOCK):
            position = 0
            while position < len(data):
                found = offset + position
                position += 4 + int.from_bytes(data[position : position + 4], "little")
            offset += len(data)
        return found

    def sync(self) -> None:
        """Through to the disk, as far as it takes it."""
        with contextlib.suppress(OSError):
            os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def _whole(block: bytes) -> int:
    position = 0
    while position + 4 <= len(block):
        size = int.from_bytes(block[position : position + 4], "little")
        if size == 0 or position + 4 + size > len(block):  # no record is empty: a power cut leaves zeros behind
            break
        position += 4 + size
    return position
