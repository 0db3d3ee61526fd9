"""Slow work beside the scheduler: one thing of a kind at a time, never in its way."""

import logging
import threading
from collections.abc import Callable

from whistlestop.domain.errors import EngineUnreachable

log = logging.getLogger(__name__)


class Aside:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

    def soon(self, kind: str, work: Callable[[], None]) -> None:
        """Start it, unless the same kind is under way: whoever asks again on the next tick gets what is new then."""
        with self._lock:
            if kind in self._under_way:
                return
            self._under_way.add(kind)
        threading.Thread(target=self._do, args=(kind, work), name=kind, daemon=True).start()

    def _do(self, kind: str, work: Callable[[], None]) -> None:
        try:
            work()
        except EngineUnreachable as error:  # a cluster's trouble, not ours
            log.warning("%s: %s It is tried again.", kind, error.text)
        except Exception:
            log.exception("%s failed; it is tried again", kind)
        finally:
            with self._lock:
                self._under_way.discard(kind)
