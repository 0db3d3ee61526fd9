"""Journal records as values: cutting shipped bytes into records and reading what each one holds."""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from whistlestop.channel.layout import Kind
from whistlestop.domain.errors import WhistleError

HEADER = struct.Struct("<IHH")  # size of the whole record, kind, shape
_POINT = struct.Struct("<qd")


class JournalDamaged(WhistleError):
    """The journal's bytes make no sense."""

    code = "journal_damaged"


class Record(NamedTuple):
    kind: int  # layout.Kind; newer programs may write kinds that we don't know: skip them
    shape: int
    body: bytes  # padded with zero bytes to a multiple of 8

    def names(self) -> tuple[str, ...]:
        """The metric names that a SHAPE record gives to its shape. A later SHAPE of the same number replaces it."""
        names = self._json(Kind.SHAPE)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise JournalDamaged(f"shape {self.shape} is not a list of names")
        return tuple(names)

    def point(self) -> tuple[int, float, tuple[float, ...]]:
        """(step, time, one value per name of the shape) of a POINTS record."""
        self._expect(Kind.POINTS)
        if len(self.body) < _POINT.size or len(self.body) % 8:
            raise JournalDamaged(f"a POINTS record with {len(self.body)} bytes")
        step, at = _POINT.unpack_from(self.body)
        count = (len(self.body) - _POINT.size) // 8
        return step, at, struct.unpack_from(f"<{count}d", self.body, _POINT.size)

    def event(self) -> dict[str, Any]:
        event = self._json(Kind.EVENT)
        if not isinstance(event, dict):
            raise JournalDamaged("an EVENT record that is not an object")
        return event

    def _json(self, kind: Kind) -> Any:
        import json

        self._expect(kind)
        try:
            return json.loads(self.body.rstrip(b"\0"))
        except ValueError as error:
            raise JournalDamaged(f"a {kind.name} record that is not JSON") from error

    def _expect(self, kind: Kind) -> None:
        if self.kind != kind:
            raise JournalDamaged(f"expected a {kind.name} record, found kind {self.kind}")


def parse(data: bytes) -> Iterator[Record]:
    """The records in `data`, which must hold whole ones, as the reader ships them."""
    position = 0
    while position < len(data):
        if position + HEADER.size > len(data):
            raise JournalDamaged(f"{len(data) - position} stray bytes at the end")
        size, kind, shape = HEADER.unpack_from(data, position)
        if size < HEADER.size or size % 8 or position + size > len(data):
            raise JournalDamaged(f"a record of {size} bytes at {position}, with {len(data) - position} left")
        yield Record(kind, shape, data[position + HEADER.size : position + size])
        position += size


def header(size: int, kind: int, shape: int) -> int:
    """A record's first word as the one integer that is stored. Both ends are little-endian machines."""
    return size | kind << 32 | shape << 48


def pad(body: bytes) -> bytes:
    return body + bytes(-len(body) % 8)
