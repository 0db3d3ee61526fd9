"""SIGINT and SIGTERM: the handler sets a flag and calls the handler that was there before, nothing else."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """`seen` is how many have come. With `second_ends` the second one ends the program at once."""

    def __init__(self, *, second_ends: bool, wake: Callable[[], None]) -> None:
        self.seen = 0
        self.second_ends = second_ends
        self._wake = wake  # makes the loop look at `seen` at its next boundary
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Only from the main thread, as Python demands; elsewhere it does nothing."""
        if self._before or threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            before = signal.getsignal(number)
            if before is None:  # set by C code: it could neither be called nor put back
                continue
            if before is signal.SIG_IGN and self.second_ends:  # nohup, or a shell's background job
                continue
            self._before[number] = before
            signal.signal(number, self._handle)

    def restore(self) -> None:
        """Put back what was there, unless somebody has put a handler over ours meanwhile."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.seen += 1
        self._wake()
        before = self._before.get(number)
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)
        if self.seen > 1 and self.second_ends:
            self._end(number)

    def _end(self, number: int) -> None:
        self.restore()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
