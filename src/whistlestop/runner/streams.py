"""What has to reach the server, stream by stream: how far it was sent, and how far it is safe there."""

import itertools
import os
import re
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from whistlestop.channel.journal import JournalDamaged, JournalReader
from whistlestop.channel.layout import SEGMENT_HEADER, SEGMENT_SIZE
from whistlestop.channel.segments import segment_numbers, segment_path
from whistlestop.runner.numbering import Numbering
from whistlestop.runner.recordfile import RecordFile
from whistlestop.wire.frames import on_node, split_node

CHUNK = 512 << 10
BACKLOG = CHUNK // 2  # a piece of this size has others behind it: journals are cut between records
WINDOW = 4 << 20  # sent and not acknowledged, per stream
_OURS = ("logs", "runner", "metrics-sys")
_JOURNAL = re.compile(r"((?:metrics|events)-\w+)\.\d{6,}\.journal")


class Source(Protocol):
    def end(self) -> int: ...
    def read(self, offset: int, limit: int) -> bytes: ...


class Stream:
    def __init__(self, name: str, source: Source, *, wire: str = "") -> None:
        self.name = name
        self.wire = wire or name  # as the server knows it
        self._source = source
        self._shift = 0
        self.sent = 0
        self.acked = 0
        self.trouble: str | None = None  # nothing more can be read from it

    def resume(self, offset: int, *, shift: int = 0) -> None:
        """Go on from what the server has. `shift`: see numbering.py."""
        self._shift = shift
        self.sent = self.acked = offset

    def end(self) -> int:
        """Where it ends now; what a damaged journal has behind its damage does not count."""
        if self.trouble is not None:
            return self.acked
        try:
            return self._source.end() + self._shift
        except JournalDamaged as error:
            self.trouble = error.text
            return self.acked

    def safe(self) -> bool:
        return self.acked >= self.end()

    def reached(self, place: int) -> bool:
        """Whether everything before this place in the source has been sent."""
        return self.sent - self._shift >= place

    def take(self, *, until: int | None = None) -> tuple[int, bytes] | None:
        """The next bytes to send and their offset; None when there are none, or when the window is full.

        `until` is a place in the source, between two records: nothing behind it is taken.
        """
        if until is not None and self.reached(until):
            return None
        if self.trouble is not None or self.sent - self.acked >= WINDOW or self.sent >= self.end():
            return None
        try:
            place = self.sent - self._shift
            data = self._source.read(place, CHUNK if until is None else min(CHUNK, until - place))
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

    def __init__(
        self,
        directory: Path,
        *,
        logs: RecordFile,
        runner: RecordFile,
        node: int = 0,
        numbering: Numbering | None = None,
    ) -> None:
        self._directory = directory
        self._node = node
        self._numbering = numbering
        self._held_from: int | None = None
        self.held_since = 0.0
        self._runner_last = True
        self._trimmed: dict[str, int] = {}
        self._offsets: dict[str, int] = {}
        self._streams = {"logs": self._new("logs", _File(logs)), "runner": self._new("runner", _File(runner))}

    def discover(self) -> list[Stream]:
        try:
            names = os.listdir(self._directory)
        except OSError:  # removed under our hands: what we hold open can still be sent
            names = []
        for name in names:
            match = _JOURNAL.fullmatch(name)
            if match is not None and match[1] not in self._streams:
                stream = self._new(match[1], _Journal(self._directory, match[1]))
                stream.resume(self._offsets.get(stream.wire, 0))
                self._streams[match[1]] = stream
        return self.all()

    def _new(self, name: str, source: Source) -> Stream:
        return Stream(name, source, wire=on_node(name, self._node) if name in _OURS else name)

    def has_program(self) -> bool:
        """Whether the program has written something already."""
        return any(name not in _OURS for name in self._streams)

    def hold_back(self, place: int) -> None:
        """What the `runner` file has from here on, the end, is sent when everything else is safe at the server."""
        self._held_from, self.held_since = place, time.monotonic()

    def let_go(self) -> None:
        """The server does not take the rest: the end must reach it all the same, or the slots stay taken."""
        self._held_from, self._runner_last = None, False

    def take(self, stream: Stream) -> tuple[int, bytes] | None:
        if stream.name != "runner" or self._held_from is None:
            return stream.take()
        if stream.reached(self._held_from) and self._others_safe():
            self._held_from = None
        return stream.take(until=self._held_from)

    def _others_safe(self) -> bool:
        return all(stream.safe() for look in (self.all, self.discover) for stream in look() if stream.name != "runner")

    def trim(self) -> None:
        """Delete the segments of metrics that the server has. Events stay: a salvager hears them again."""
        for stream in self._streams.values():
            if stream.name.startswith("metrics-") and stream.acked - self._trimmed.get(stream.name, 0) >= SEGMENT_SIZE:
                self._trimmed[stream.name] = stream.acked
                _trim(self._directory, stream.name, stream.acked)

    def all(self) -> list[Stream]:
        # The runner's own words last: `ended` must find everything else at the server already.
        return sorted(self._streams.values(), key=lambda stream: (stream.name == "runner") is self._runner_last)

    def resume(self, offsets: Mapping[str, int]) -> None:
        """A new connection: go on from what the server has."""
        self._offsets = dict(offsets)
        own = {name: offsets.get(on_node(name, self._node), 0) for name in ("logs", "runner")}
        shifts = self._numbering.settle({**offsets, **own}) if self._numbering is not None else {}
        for stream in self._streams.values():
            stream.resume(offsets.get(stream.wire, 0), shift=shifts.get(stream.name, 0))

    def acknowledge(self, wire: str, offset: int) -> bool:
        """Whether something that waited for this may be sent now."""
        stream = self._streams.get(split_node(wire)[0])
        if stream is None:
            return False
        full = stream.sent - stream.acked >= WINDOW
        stream.acked = max(stream.acked, offset)
        return full or self._held_from is not None

    def all_safe(self) -> bool:
        """The server has everything there is."""
        return all(stream.safe() for stream in self.discover())

    def safe_bytes(self) -> int:
        """How much the server has, of everything."""
        return sum(stream.acked for stream in self._streams.values())

    def troubles(self) -> list[str]:
        return [stream.trouble for stream in self._streams.values() if stream.trouble is not None]


def _trim(directory: Path, prefix: str, acked: int) -> None:
    numbers = segment_numbers(directory, prefix)
    for number, following in itertools.pairwise(numbers):
        try:
            with segment_path(directory, prefix, following).open("rb") as file:
                _, first = struct.unpack("<QQ", file.read(SEGMENT_HEADER))
            if first > acked:
                return
            segment_path(directory, prefix, number).unlink()
        except (OSError, struct.error):
            return


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
