"""What has to reach the server, stream by stream: how far it was sent, and how far it is safe there."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from whistlestop.channel.journal import JournalDamaged, JournalReader
from whistlestop.runner.recordfile import RecordFile

CHUNK = 512 << 10
WINDOW = 4 << 20  # sent and not acknowledged, per stream
_JOURNAL = re.compile(r"((?:metrics|events)-\w+)\.\d{6,}\.journal")


class Source(Protocol):
    def end(self) -> int: ...
    def read(self, offset: int, limit: int) -> bytes: ...


class Stream:
    def __init__(self, name: str, source: Source) -> None:
        self.name = name
        self._source = source
        self.sent = 0
        self.acked = 0
        self.trouble: str | None = None  # nothing more can be read from it

    def end(self) -> int:
        """Where it ends now; what a damaged journal has behind its damage does not count."""
        if self.trouble is not None:
            return self.acked
        try:
            return self._source.end()
        except JournalDamaged as error:
            self.trouble = error.text
            return self.acked

    def take(self) -> tuple[int, bytes] | None:
        """The next bytes to send and their offset; None when there are none, or when the window is full."""
        if self.trouble is not None or self.sent - self.acked >= WINDOW or self.sent >= self.end():
            return None
        try:
            data = self._source.read(self.sent, CHUNK)
        except JournalDamaged as error:
            self.trouble = error.text
            return None
        if not data:
            return None
        offset = self.sent
        self.sent += len(data)
        return offset, data


class Streams:
    """All streams of the attempt. Journals turn up when a rank writes its first record."""

    def __init__(self, directory: Path, *, logs: RecordFile, runner: RecordFile) -> None:
        self._directory = directory
        self._offsets: dict[str, int] = {}
        self._streams = {"logs": Stream("logs", _File(logs)), "runner": Stream("runner", _File(runner))}

    def discover(self) -> list[Stream]:
        for path in self._directory.iterdir():
            match = _JOURNAL.fullmatch(path.name)
            if match is not None and match[1] not in self._streams:
                stream = Stream(match[1], _Journal(self._directory, match[1]))
                stream.sent = stream.acked = self._offsets.get(match[1], 0)
                self._streams[match[1]] = stream
        return self.all()

    def all(self) -> list[Stream]:
        # The runner's own words last: `ended` must find everything else at the server already.
        return sorted(self._streams.values(), key=lambda stream: stream.name == "runner")

    def resume(self, offsets: Mapping[str, int]) -> None:
        """A new connection: go on from what the server has."""
        self._offsets = dict(offsets)
        for stream in self._streams.values():
            stream.sent = stream.acked = offsets.get(stream.name, 0)

    def acknowledge(self, name: str, offset: int) -> None:
        stream = self._streams.get(name)
        if stream is not None:
            stream.acked = max(stream.acked, offset)

    def all_safe(self) -> bool:
        """The server has everything there is."""
        return all(stream.acked >= stream.end() for stream in self.discover())

    def troubles(self) -> list[str]:
        return [stream.trouble for stream in self._streams.values() if stream.trouble is not None]


class _File:
    def __init__(self, file: RecordFile) -> None:
        self._file = file

    def end(self) -> int:
        return self._file.end

    def read(self, offset: int, limit: int) -> bytes:
        return self._file.read(offset, limit)


class _Journal:
    """Two readers: looking at the end must not lose the place of the one that reads."""

    def __init__(self, directory: Path, prefix: str) -> None:
        self._ender = JournalReader(directory, prefix)
        self._reader = JournalReader(directory, prefix)

    def end(self) -> int:
        return self._ender.end()

    def read(self, offset: int, limit: int) -> bytes:
        return self._reader.read(offset, limit)
