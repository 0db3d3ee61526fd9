"""Work that may wait, one thing after the other, in a thread of its own that begins with the first."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from whistlestop.domain.errors import EngineUnreachable

log = logging.getLogger(__name__)


class Lane:
    def __init__(self, name: str) -> None:
        self._name = name
        self._work: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    def soon(self, work: Callable[[], None]) -> None:
        """Unless the same already waits."""
        with self._wake:
            if work not in self._work:
                self._work.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._wake.notify()

    def _run(self) -> None:
        said = ""
        while True:
            with self._wake:
                while not self._work:
                    self._wake.wait()
                work = self._work.popleft()
            try:
                work()
            except EngineUnreachable as error:
                if error.text != said:  # once a second, perhaps for days
                    log.warning("%s", said := error.text)
            except Exception:
                log.exception("a cluster could not be asked; it is tried again")
