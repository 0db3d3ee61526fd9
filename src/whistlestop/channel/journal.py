"""The append-only journal, its writing end. A record is visible once its first word is stored, whole, or not at all.

Why a crash at any moment leaves only whole records: a record's body and a zero in the word behind it go in first,
its own first word last, in one store. Whatever a torn write left further on is covered by that zero.
"""

import json
import mmap
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from whistlestop.channel import mapping
from whistlestop.channel.layout import END_OF_SEGMENT, SEGMENT_HEADER, SEGMENT_MAGIC, SEGMENT_SIZE, Kind
from whistlestop.channel.locks import Lock, Taken, hold
from whistlestop.channel.plain import plain_name, plain_value
from whistlestop.channel.reader import JournalReader
from whistlestop.channel.records import JournalDamaged, Record, header, pad, parse
from whistlestop.channel.segments import segment_numbers, segment_path

__all__ = ["JournalDamaged", "JournalReader", "JournalWriter", "Record", "parse", "segment_numbers", "segment_path"]

_RETRY_SECONDS = 1.0  # after a failed allocation: asking a full disk at every step would slow the loop
_TURN_SECONDS = 0.001  # far longer than a write takes; in a signal handler it can only pass
_LAST_SHAPE = 0xFFFF


class _Shape:
    __slots__ = ("header", "last", "names", "number", "pack", "size")

    def __init__(self, number: int, names: tuple[str, ...]) -> None:
        self.number = number
        self.names = names
        self.size = 8 + 16 + 8 * len(names)
        self.header = header(self.size, Kind.POINTS, number)
        self.pack = struct.Struct(f"=qd{len(names)}dq").pack_into  # the last q: the zero behind the record
        self.last = 0  # position of its newest record in this segment; 0 = none


class JournalWriter:
    """Appends to the journal `prefix` in `directory`, going on where an earlier process ended.

    Trouble with the disk never raises: what can't be stored is counted in `dropped`. One writer writes at a time;
    `taken` says that another one, here or in another process, holds this journal, `damaged` that what is there can't be
    continued. Everything is dropped then.
    """

    def __init__(self, directory: Path, prefix: str, *, segment_size: int = SEGMENT_SIZE) -> None:
        self.dropped = 0
        self.taken = False
        self.damaged = False
        self._directory = directory
        self._prefix = prefix
        self._segment_size = segment_size
        # Whose turn it is to write: pop and append of a list are atomic and cost a tenth of a lock. A signal handler
        # that logs while its own thread is writing finds it empty; its record is written right after.
        self._turn: list[None] = [None]
        self._late: list[Callable[[], bool]] = []
        self._closed = False
        self._lock: Lock | None = None
        self._map: mmap.mmap | None = None
        self._bytes = memoryview(b"")
        self._words = memoryview(b"").cast("Q")
        self._number = -1
        self._first = 0  # journal offset of this segment's first record
        self._position = 0  # where the next record goes
        self._limit = 0  # records end here: one word is left for the end mark
        self._retry_at = 0.0
        self._shapes: dict[tuple[str, ...], _Shape] = {}
        self._quick: dict[tuple[str, ...], _Shape] = {}  # those that the recorder may take without asking
        self._next_shape = 1
        self._latest: dict[str, float] = {}  # from the segments before this one

    def acquire(self) -> bool:
        """Hold the journal from now on. False if another writer has it; the first record does the same."""
        try:
            return not self.taken and not self._closed and self._hold()
        except OSError:  # the disk says no: asked again with the first record
            return True

    def points(self, step: int, at: float, values: Mapping[str, float]) -> None:
        """One value per name at `step`. Raises what float() of a bad value raises; nothing is stored then."""
        names = tuple(values)
        body = struct.pack(f"=qd{len(names)}d", step, at, *values.values())
        self._in_turn(lambda: self._put_points(names, body))

    def recorder(self, step: Sequence[int], refused: Callable[[Mapping[str, Any]], None]) -> Callable[..., None]:
        """`points` for the training loop: a function of keyword arguments that stores them at step[0], now.

        Everything is in this one function, because each call would cost a tenth of the whole. Names that `allow` has
        not been told of, and values that are not numbers, go to `refused`; an error of ours never comes out of it.
        """
        clock, late, quick, take, give = time.time, self._late, self._quick, self._turn.pop, self._turn.append

        def record(**values: Any) -> None:
            try:
                take()
            except IndexError:
                return refused(values)  # another thread is writing: the slow way waits for it
            except BaseException:  # an interrupt right behind the call: the turn is ours
                give(None)
                raise
            fine = False
            try:
                shape = quick.get(tuple(values))
                if shape is not None:
                    position = self._position
                    if position + shape.size > self._limit:
                        if not self._make_room(shape.size):
                            self.dropped += 1
                            return None
                        position = self._position
                    shape.pack(self._bytes, position + 8, step[0], clock(), *values.values(), 0)
                    self._words[position >> 3] = shape.header
                    shape.last = position
                    self._position = position + shape.size
                    fine = True
            except Exception:
                self._settle()
            except BaseException:
                self._settle()
                raise
            finally:
                give(None)
            if not fine:
                refused(values)
            return self._write_late() if late else None

        return record

    def allow(self, names: tuple[str, ...]) -> None:
        """The recorder may store these from now on: their values are plain numbers, and nobody waits for them."""
        if names in self._shapes:
            self._quick[names] = self._shapes[names]

    def latest(self) -> dict[str, float]:
        """The newest value of every name. Read back from the journal: values are never held, they may be tensors."""
        latest = dict(self._latest)
        for shape in sorted(self._shapes.values(), key=lambda shape: shape.last):
            if shape.last:
                values = struct.unpack_from(f"={len(shape.names)}d", self._bytes, shape.last + 24)
                latest.update(zip(shape.names, values, strict=True))
        return latest

    def event(self, event: Mapping[str, Any]) -> None:
        self.append(Kind.EVENT, 0, json.dumps(plain_value(event), separators=(",", ":")).encode())

    def append(self, kind: int, shape: int, body: bytes) -> None:
        self._in_turn(lambda: self._put(kind, shape, body))

    def close(self) -> None:
        """What comes afterwards is dropped."""
        self._closed = True
        self._unmap()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def abandon(self) -> None:
        """In a forked child: the journal belongs to the parent; from here on everything is dropped."""
        self._turn[:] = [None]  # it may be with a thread that does not exist here
        self.taken = True
        self._unmap()

    def _in_turn(self, write: Callable[[], bool]) -> None:
        try:
            self._turn.pop()
        except IndexError:
            return self._later(write)
        try:
            if not write():
                self.dropped += 1
        except BaseException:
            self._settle()
            raise
        finally:
            self._turn.append(None)
        return self._write_late() if self._late else None

    def _put_points(self, names: tuple[str, ...], body: bytes) -> bool:
        shape = self._shapes.get(names) or self._define(names)
        if shape is None or not self._put(Kind.POINTS, shape.number, body):
            return False
        shape.last = self._position - shape.size
        return True

    def _put(self, kind: int, shape: int, body: bytes) -> bool:
        body = pad(body)
        size = 8 + len(body)
        if self._position + size > self._limit and not self._make_room(size):
            return False
        position = self._position
        self._bytes[position + 8 : position + size] = body
        self._words[(position + size) >> 3] = 0
        self._words[position >> 3] = header(size, kind, shape)
        self._position = position + size
        return True

    def _define(self, names: tuple[str, ...]) -> _Shape | None:
        if self._map is None and not self._make_room(0):  # an earlier process may have defined it
            return None
        if names in self._shapes:
            return self._shapes[names]
        if self._next_shape > _LAST_SHAPE:  # numbers start again; a later definition replaces the earlier one
            self._latest = self.latest()
            self._shapes.clear()
            self._quick.clear()
            self._next_shape = 1
        if not self._put(Kind.SHAPE, self._next_shape, json.dumps([plain_name(name) for name in names]).encode()):
            return None
        self._remember(self._next_shape, names)
        return self._shapes[names]

    def _remember(self, number: int, names: tuple[str, ...]) -> None:
        self._quick.pop(names, None)
        self._shapes[names] = _Shape(number, names)
        self._next_shape = number + 1

    def _make_room(self, size: int) -> bool:
        """Have a segment with room for `size` bytes. False when the disk or another process says no."""
        if self.taken or self.damaged or self._closed or time.monotonic() < self._retry_at:
            return False
        try:
            if self._map is None and not self._continue():
                return False
            if self._map is None or self._position + size > self._limit:
                self._next_segment(size)
        except OSError:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            return False
        return True

    def _continue(self) -> bool:
        """Go on where an earlier process ended. False when another one still writes."""
        if not self._hold():
            return False
        numbers = segment_numbers(self._directory, self._prefix)
        if not numbers:
            return True
        reader = JournalReader(self._directory, self._prefix)
        try:
            for record in reader.records():
                if record.kind == Kind.SHAPE:
                    self._remember(record.shape, record.names())
                elif record.kind == Kind.POINTS:  # its definition may have gone with an early segment
                    self._next_shape = max(self._next_shape, record.shape + 1)
        except JournalDamaged:
            # Nothing behind the damage can be reached: the whole journal is set aside for people to look at.
            self.damaged = True
            return False
        finally:
            reader.close()
        self._number = numbers[-1]
        path = segment_path(self._directory, self._prefix, self._number)
        self._use(mapping.open_existing(path, writable=True))
        self._first = self._words[1]
        self._settle()
        return True

    def _hold(self) -> bool:
        if self._lock is None:
            try:
                self._lock = hold(self._directory / f"{self._prefix}.lock")
            except Taken:
                self.taken = True
        return not self.taken

    def _next_segment(self, size: int) -> None:
        length = max(self._segment_size, SEGMENT_HEADER + size + 8)
        length += -length % 8
        first = self._first + self._position - SEGMENT_HEADER if self._map is not None else 0
        path = segment_path(self._directory, self._prefix, self._number + 1)
        making = path.with_suffix(".making")
        making.unlink(missing_ok=True)
        mapped = mapping.create(making, length)
        struct.pack_into("<QQ", mapped, 0, SEGMENT_MAGIC, first)
        os.rename(making, path)
        if self._map is not None:
            # Only now that the next one is there: the mark sends readers to it.
            self._words[self._position >> 3] = END_OF_SEGMENT
        self._number += 1
        self._use(mapped)
        self._first = first
        self._position = SEGMENT_HEADER

    def _use(self, mapped: mmap.mmap) -> None:
        self._unmap()
        self._map = mapped
        self._bytes = memoryview(mapped)
        self._words = self._bytes.cast("Q")
        self._position = SEGMENT_HEADER
        self._limit = len(mapped) - 8

    def _unmap(self) -> None:
        self._latest = self.latest()
        for shape in self._shapes.values():
            shape.last = 0
        self._position = self._limit = 0
        if self._map is not None:
            self._words.release()
            self._bytes.release()
            self._map.close()
            self._map = None

    def _settle(self) -> None:
        """Step over every record that is visible: an interrupt may have come between its store and ours."""
        if self._map is None:
            return
        while self._position < self._limit:
            size = self._words[self._position >> 3] & 0xFFFFFFFF
            if size in (0, END_OF_SEGMENT):
                return
            self._position += size

    def _later(self, write: Callable[[], bool]) -> None:
        """Another thread, or this one further down its stack, is writing: wait for it a little, then leave it to it."""
        self._late.append(write)
        deadline = time.monotonic() + _TURN_SECONDS
        while not self._turn and time.monotonic() < deadline:
            time.sleep(0)
        if self._turn:
            self._write_late()

    def _write_late(self) -> None:
        while self._late:
            try:
                write = self._late.pop(0)
            except IndexError:  # another thread took it
                return
            self._in_turn(write)
