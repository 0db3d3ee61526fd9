"""Signals that ask this process to leave, held back while it must not: what it has started has to be ended first."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Leaving:
    """Inside, the signals do what they did before only where it is `allowed`, and only the first one; any other is
    carried out at the end, unless we leave by then anyway.

    Not by blocking or ignoring them: what is started meanwhile would inherit that.
    """

    def __init__(self) -> None:
        self._before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}
        self._allowed = False
        self._held: int | None = None

    def __enter__(self) -> "Leaving":
        if threading.current_thread() is threading.main_thread():  # only there Python handles signals
            for number in _SIGNALS:
                before = signal.getsignal(number)
                if before not in (signal.SIG_IGN, None):  # nohup means it
                    self._before[number] = before
                    signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._held is not None and kind is None:
            self._leave(self._held, None)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        try:
            self._allowed = True
            if self._held is not None:
                self._take(self._held, None)
            yield
        finally:
            self._allowed = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        if not self._allowed:
            self._held = number
            return
        self._allowed, self._held = False, None  # one is enough: what follows must not disturb the way out
        self._leave(number, frame)

    def _leave(self, number: int, frame: FrameType | None) -> None:
        before = self._before[number]
        if callable(before):
            before(number, frame)
        else:  # what would end us on the spot also takes its way through everybody's `finally`
            raise SystemExit(128 + number)
