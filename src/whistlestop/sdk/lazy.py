"""Copying while forward and backward run: what only an optimizer's step changes need not be copied before it."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any


class Lazy:
    """For the optimizers of torch that are tracked. Their parameters and states are copied by a thread; their steps
    wait for it."""

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self._optimizers = optimizers
        self._hooks = [each.register_step_pre_hook(self._before_step) for each in optimizers]
        self._thread: threading.Thread | None = None
        self._since: float | None = None  # the loop waits
        self.waited = 0.0  # seconds, for the copy that is under way or was the last

    def storages(self) -> set[int]:
        """Those that nothing but a step changes."""
        found: set[int] = set()
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                found.update(each.untyped_storage()._cdata for each in group["params"])
            for state in optimizer.state.values():
                found.update(each.untyped_storage()._cdata for each in state.values() if hasattr(each, "_cdata"))
        return found

    @property
    def busy(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()

    def begin(self, copy: Callable[[], None]) -> None:
        self.wait()
        self.waited = 0.0
        thread = threading.Thread(target=copy, daemon=True, name="whistlestop-copy")
        try:
            thread.start()
            self._thread = thread
        except RuntimeError:  # the program is ending, or has too many: then it is done here
            copy()

    def wait(self) -> None:
        """Until what was begun is done. Called before every step of an optimizer."""
        thread = self._thread
        if thread is None:
            return
        self._since = time.perf_counter()
        thread.join()
        self.waited += time.perf_counter() - self._since
        self._since = self._thread = None

    def blocked(self) -> float:
        """Seconds that the loop has waited so far."""
        since = self._since
        return self.waited if since is None else self.waited + time.perf_counter() - since

    def close(self) -> None:
        self.wait()
        for hook in self._hooks:
            hook.remove()

    def _before_step(self, *given: Any) -> None:
        if self._thread is not None:
            self.wait()
