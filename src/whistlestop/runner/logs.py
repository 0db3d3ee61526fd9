"""The attempt's log: the program's two output streams and the runner's own words, stamped, bounded, on disk."""

import os
import select
import threading
import time
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from whistlestop.runner.cleaning import clean_text
from whistlestop.runner.lines import UPDATE_EVERY, Lines, Secrets, looks_like_exception
from whistlestop.runner.recordfile import RecordFile
from whistlestop.wire.frames import LogLine, pack_record

TAIL_LINES = 1000  # kept from behind the limit: how a program died is told by its last words
TAIL_BYTES = 4 << 20
_READ = 1 << 20


class LogBook:
    """Appends lines to the `logs` stream, from any thread. Past `limit` bytes, lines are counted and the last kept."""

    def __init__(self, file: RecordFile, *, limit: int, rank: int = 0) -> None:
        self._file = file
        self._limit = limit
        self._rank = rank
        self._lock = threading.Lock()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._lost = 0  # lines that a full disk did not take
        self.dropped_lines = 0
        self.dropped_bytes = 0
        self.last_exception = ""
        self.heard_at = time.monotonic()  # when the program last printed something

    def add(self, stream: str, lines: list[str], at: float, rank: int | None = None) -> None:
        if not lines:
            return
        rank = self._rank if rank is None else rank
        self.heard_at = time.monotonic()
        for text in reversed(lines[-50:]):
            if looks_like_exception(text):
                self.last_exception = text[:500]
                break
        with self._lock:
            if self.dropped_lines and len(lines) > TAIL_LINES:
                # In a flood most lines are only counted: packing them would cost more than reading them.
                self.dropped_lines += len(lines) - TAIL_LINES
                self.dropped_bytes += sum(map(len, lines[:-TAIL_LINES]))
                lines = lines[-TAIL_LINES:]
            records = [pack_record(LogLine(at, stream, rank, text)) for text in lines]
            if self._file.end + sum(map(len, records)) <= self._limit and not self.dropped_lines:
                self._write(b"".join(records), len(records))
            else:
                self._drop(records, at)

    def say(self, text: str) -> None:
        """A line of the runner's own, limit or no limit."""
        with self._lock:
            self._write(pack_record(LogLine(time.time(), "sys", self._rank, clean_text(text))), 1)

    def close(self) -> None:
        """The last lines from behind the limit go to the end of the log. May be called again."""
        with self._lock:
            lines, size = self.dropped_lines - len(self._tail), self.dropped_bytes - self._tail_bytes
            if self._tail and lines > 0:
                mark = f"{lines} lines ({size} bytes) dropped here: the log limit was reached"
                self._write(pack_record(LogLine(time.time(), "sys", self._rank, mark)), 1)
            self.dropped_lines, self.dropped_bytes = max(0, lines), max(0, size)
            self._write(b"".join(self._tail), len(self._tail))
            self._tail.clear()
            self._tail_bytes = 0

    def _drop(self, records: list[bytes], at: float) -> None:
        if not self.dropped_lines:
            mark = f"the log limit of {self._limit} bytes is reached: from here on only the last lines are kept"
            self._write(pack_record(LogLine(at, "sys", self._rank, mark)), 1)
        for record in records:
            self.dropped_lines += 1
            self.dropped_bytes += len(record)
            self._tail.append(record)
            self._tail_bytes += len(record)
            while len(self._tail) > TAIL_LINES or self._tail_bytes > TAIL_BYTES:
                self._tail_bytes -= len(self._tail.popleft())

    def _write(self, records: bytes, count: int) -> None:
        if self._lost:
            mark = pack_record(
                LogLine(time.time(), "sys", self._rank, f"{self._lost} lines lost here: the disk was full")
            )
            if not self._file.append(mark):
                self._lost += count
                return
            self._lost = 0
        if records and not self._file.append(records):
            self._lost += count


class Source(NamedTuple):
    """Whose output it is: `out` or `err` of a rank; of None: of what starts them, or of a program that has none."""

    stream: str
    rank: int | None = None


class Capture:
    """Reads the program's output in a thread until both pipes are closed or `stop` is called."""

    def __init__(self, book: LogBook, secrets: Secrets) -> None:
        self._book = book
        self._secrets = secrets
        self._lines: dict[Source, Lines] = {}
        self._wake_read, self._wake_write = os.pipe()
        self._thread: threading.Thread | None = None

    def start(self, *, out: int, err: int, ranks: Mapping[int, Source] = MappingProxyType({})) -> None:
        """`ranks`: pipes of single ranks, which nobody may ever open."""
        streams = {out: Source("out"), err: Source("err"), **ranks}
        self._lines = {source: Lines(self._secrets) for source in streams.values()}
        self._thread = threading.Thread(target=self._run, args=(streams,), daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Wait for the rest of the output; after `timeout` leave it. False: somebody still holds a pipe open."""
        assert self._thread is not None
        self._thread.join(timeout)
        drained = not self._thread.is_alive()
        if not drained:
            os.write(self._wake_write, b"x")
            self._thread.join(5.0)
        os.close(self._wake_write)
        return drained

    def _run(self, streams: dict[int, Source]) -> None:
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        for fd in streams:
            poller.register(fd, select.POLLIN)
        last_update = 0.0
        while any(source.rank is None for source in streams.values()):
            waiting = any(lines.waiting for lines in self._lines.values())
            ready = poller.poll(UPDATE_EVERY * 1000 if waiting else None)
            now = time.time()
            for fd, _ in ready:
                if fd == self._wake_read:
                    streams = {}
                    break
                if not self._read(fd, streams[fd], now):
                    poller.unregister(fd)
                    os.close(fd)
                    del streams[fd]
            if waiting and now - last_update >= UPDATE_EVERY:
                last_update = now
                for (name, rank), lines in self._lines.items():
                    self._book.add(name, lines.update(now), now, rank)
        now = time.time()
        for fd, source in streams.items():  # whoever started the ranks has ended, and so have they
            while self._read(fd, source, now):
                pass
            os.close(fd)
        for (name, rank), lines in self._lines.items():
            self._book.add(name, lines.finish(), now, rank)
        os.close(self._wake_read)

    def _read(self, fd: int, source: Source, now: float) -> bool:
        """False: there is no more, now or ever."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        self._book.add(source.stream, self._lines[source].feed(data, now) if data else [], now, source.rank)
        return bool(data)
