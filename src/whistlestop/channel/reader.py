"""The journal's reading end: whole records by offset, while the writer writes."""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from whistlestop.channel import mapping
from whistlestop.channel.layout import END_OF_SEGMENT, SEGMENT_HEADER, SEGMENT_MAGIC
from whistlestop.channel.records import JournalDamaged, Record, parse
from whistlestop.channel.segments import segment_numbers, segment_path


class JournalReader:
    """Reads while the writer writes. Offsets count record bytes from the journal's beginning, over all segments."""

    def __init__(self, directory: Path, prefix: str) -> None:
        self._directory = directory
        self._prefix = prefix
        self._map: mmap.mmap | None = None
        self._bytes = memoryview(b"")
        self._words = memoryview(b"").cast("Q")
        self._number = -1
        self._position = 0
        self._offset = 0  # of the record at _position

    def read(self, offset: int, limit: int = 1 << 20) -> bytes:
        """Whole records from `offset` on, as stored: about `limit` bytes, at least one record if there is one."""
        if not self._seek(offset):
            return b""
        pieces: list[bytes] = []
        left = limit
        while True:
            start = self._position
            while (size := self._size()) and (size <= left or left == limit):
                self._position += size
                self._offset += size
                left -= size
            if self._position > start:
                pieces.append(bytes(self._bytes[start : self._position]))
            if size or left <= 0 or not self._enter_next():
                return b"".join(pieces)

    def start(self) -> int:
        """The offset of the first record that is still there: early segments may have been shipped and deleted."""
        for number in segment_numbers(self._directory, self._prefix):
            path = segment_path(self._directory, self._prefix, number)
            try:
                with open(path, "rb") as file:
                    head = file.read(SEGMENT_HEADER)
            except FileNotFoundError:  # deleted just now
                continue
            if len(head) < SEGMENT_HEADER or struct.unpack("<QQ", head)[0] != SEGMENT_MAGIC:
                raise JournalDamaged(f"{path} is not a journal segment")
            return int(struct.unpack("<QQ", head)[1])
        return 0

    def end(self) -> int:
        """The offset behind the last visible record."""
        if not self._seek(self._offset if self._map is not None else self.start()):
            return 0
        while True:
            while size := self._size():
                self._position += size
                self._offset += size
            if not self._enter_next():
                return self._offset

    def records(self, offset: int | None = None) -> Iterator[Record]:
        """Everything from `offset`, or from the first that is still there, to the present end."""
        offset = self.start() if offset is None else offset
        while data := self.read(offset):
            offset += len(data)
            yield from parse(data)

    def close(self) -> None:
        if self._map is not None:
            self._words.release()
            self._bytes.release()
            self._map.close()
            self._map = None

    def _size(self) -> int:
        """Size of the record here; 0 when there is none yet, or none any more in this segment."""
        if self._position + 8 > len(self._bytes):
            return 0
        size = int(self._words[self._position >> 3]) & 0xFFFFFFFF
        if size in (0, END_OF_SEGMENT):
            return 0
        if size % 8 or self._position + size > len(self._bytes):
            raise JournalDamaged(
                f"{self._path()}: a record of {size} bytes at {self._position}, in {len(self._bytes)} bytes"
            )
        return size

    def _enter_next(self) -> bool:
        """Go to the next segment if the writer has left this one. True: look again for records here."""
        ended = self._position + 8 > len(self._bytes) or (
            int(self._words[self._position >> 3]) & 0xFFFFFFFF == END_OF_SEGMENT
        )
        following = segment_path(self._directory, self._prefix, self._number + 1)
        if not following.exists():
            if ended:
                raise JournalDamaged(f"{self._path()} ends, and {following.name} is missing")
            return False
        if self._size():  # came in between; this segment is complete once the next one exists
            return True
        return self._enter(self._number + 1, expected=self._offset)

    def _seek(self, offset: int) -> bool:
        """Stand at `offset`. False when the journal has not begun."""
        if self._map is None or offset < self._offset:
            for number in reversed(segment_numbers(self._directory, self._prefix)):
                self._enter(number)
                if self._offset <= offset:
                    break
            else:
                if self._map is None and offset == 0:
                    return False
                raise JournalDamaged(
                    f"{self._prefix}: offset {offset} is no longer stored; the journal begins at {self._offset}"
                )
        while self._offset < offset:
            size = self._size()
            if size:
                self._position += size
                self._offset += size
            elif not self._enter_next():
                raise JournalDamaged(f"{self._prefix}: offset {offset} is past the end at {self._offset}")
        if self._offset != offset:
            raise JournalDamaged(f"{self._prefix}: offset {offset} is inside a record")
        return True

    def _enter(self, number: int, *, expected: int | None = None) -> bool:
        path = segment_path(self._directory, self._prefix, number)
        try:
            mapped = mapping.open_existing(path, writable=False)
        except (OSError, ValueError) as error:
            raise JournalDamaged(f"{path} can't be opened: {error}") from error
        if len(mapped) < SEGMENT_HEADER or len(mapped) % 8:
            raise JournalDamaged(f"{path} has {len(mapped)} bytes")
        magic, first = struct.unpack_from("<QQ", mapped)
        if magic != SEGMENT_MAGIC:
            raise JournalDamaged(f"{path} is not a journal segment")
        if expected is not None and first != expected:
            raise JournalDamaged(f"{path} begins at offset {first}, the one before ends at {expected}")
        self.close()
        self._map = mapped
        self._bytes = memoryview(mapped)
        self._words = self._bytes.cast("Q")
        self._number = number
        self._position = SEGMENT_HEADER
        self._offset = first
        return True

    def _path(self) -> Path:
        return segment_path(self._directory, self._prefix, self._number)
