"""Losses on purpose, for `whistle drill`: done to this attempt and to nobody else, the moment the server asks for it.

What follows is as real as if it had happened by itself: nothing here tells the rest of the runner.
"""

import os
import signal
import time
from collections.abc import Callable
from typing import NoReturn, Protocol

from whistlestop.blobs.storage import StorageFailed
from whistlestop.engines.containment import Tree
from whistlestop.runner.program import Program
from whistlestop.runner.recordfile import RecordFile
from whistlestop.wire.frames import Fault, Rehearse


class Tell(Protocol):
    def __call__(self, kind: str, text: str, /, **data: object) -> None: ...


class Faults:
    """`cut`: no link for so many seconds. `lose_host` does not return."""

    def __init__(
        self,
        *,
        tell: Tell,
        kill_program: Callable[[], object],
        lose_host: Callable[[], NoReturn],
        cut: Callable[[float], None],
    ) -> None:
        self._tell, self._kill_program, self._lose_host, self._cut = tell, kill_program, lose_host, cut
        self._slow = 0.0  # seconds by which the next commit is late
        self._failing = 0.0  # seconds for which commits will fail, from the next one on
        self._failing_until: float | None = None

    def take(self, asked: Rehearse) -> None:
        try:
            fault = Fault(asked.fault)
        except ValueError:  # of a newer server
            self._tell("notice", f"A rehearsal of {asked.fault!r} was asked for, which this runner does not know.")
            return
        self._tell(
            "rehearsal", f"A rehearsal: {_SAYS[fault].format(asked.seconds)}.", fault=fault, seconds=asked.seconds
        )
        match fault:
            case Fault.PROGRAM:
                self._kill_program()
            case Fault.HOST:
                self._lose_host()
            case Fault.LINK:
                self._cut(asked.seconds)
            case Fault.STORAGE:
                self._slow = asked.seconds
            case Fault.SAVE:
                self._failing, self._failing_until = asked.seconds, None

    def before_commit(self) -> None:
        """In the keeper's thread. StorageFailed, or a pause, if that was asked for."""
        slow, self._slow = self._slow, 0.0
        if slow:
            time.sleep(slow)
        if self._failing and self._failing_until is None:
            self._failing_until = time.monotonic() + self._failing
        if self._failing_until is not None and time.monotonic() < self._failing_until:
            raise StorageFailed("a rehearsal makes every save fail for a while")
        self._failing, self._failing_until = 0.0, None


def lose_host(events: RecordFile, tree: Tree, program: Program) -> NoReturn:
    """As if the machine had been switched off."""
    events.flush()
    tree.kill_at_once()
    program.signal(signal.SIGKILL)
    while True:
        os.kill(os.getpid(), signal.SIGKILL)


_SAYS = {
    Fault.PROGRAM: "the program is killed",
    Fault.HOST: "the program and its runner are killed, as if the host were lost",
    Fault.LINK: "the server is out of reach for {:g} s",
    Fault.STORAGE: "the storage takes {:g} s longer for the next save",
    Fault.SAVE: "saves fail for {:g} s, from the next one on",
}
