"""Copying while forward and backward run: what only an optimizer's step changes need not be copied before it."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

# The loop leaves its boundary first: what is done here holds the interpreter's lock for some milliseconds.
_HEAD_START: Final = 0.001


class Unfit(Exception):
    """There is nothing that could be copied later. Says why."""


class Lazy:
    """For the optimizers of torch that are tracked. Their parameters and states are copied by a thread; their steps
    wait for it."""

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self._optimizers = [_innermost(each) for each in optimizers]
        self._hooks: list[Any] = []
        self._thread: threading.Thread | None = None
        self._copied = threading.Event()
        self._copied.set()
        self._since: float | None = None  # the loop waits
        self.waited = 0.0  # seconds that it has waited for the copy that is under way or was the last
        if not optimizers:
            raise Unfit("no optimizer of torch is tracked")
        devices = {each.device.type for each in self._tensors()}
        if devices and "cpu" not in devices:
            raise Unfit(f"only what is in main memory can be copied later, and this is on {', '.join(sorted(devices))}")
        try:
            for each in self._optimizers:
                self._hooks.append(each.register_step_pre_hook(self._before_step))
        except Exception as error:
            self.close()
            raise Unfit(f"nobody can wait for the steps of its optimizer: {error!r}") from error

    def storages(self) -> dict[int, Any]:
        """Those in main memory that nothing but a step changes, each with one of its tensors."""
        return {each.untyped_storage()._cdata: each for each in self._tensors() if each.is_cpu}

    @property
    def copied(self) -> bool:
        """The loop has nothing to wait for."""
        return self._copied.is_set()

    @property
    def busy(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()

    def begin(self, copy: Callable[[], None], behind: Callable[[], None]) -> None:
        """Steps wait for `copy`, and not for what comes behind it. Neither of them raises."""
        self.join()
        self.waited = 0.0
        self._copied.clear()

        def run() -> None:
            time.sleep(_HEAD_START)
            try:
                copy()
            finally:
                self._copied.set()
            behind()

        thread = threading.Thread(target=run, daemon=True, name="whistlestop-copy")
        try:
            thread.start()
            self._thread = thread
        except RuntimeError:  # the program is ending, or has too many: then it is done here
            run()

    def wait(self) -> None:
        """Until the copy is made. Called before every step of an optimizer."""
        if not self._copied.is_set():
            self._since = begun = time.perf_counter()
            self._copied.wait()
            self.waited += time.perf_counter() - begun
            self._since = None

    def blocked(self) -> float:
        """Seconds that the loop has waited so far, told to the thread that copies."""
        since = self._since
        return self.waited if since is None else self.waited + time.perf_counter() - since

    def join(self) -> None:
        """Until all of it is done."""
        self.wait()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        self.join()
        for hook in self._hooks:
            hook.remove()

    def _tensors(self) -> Iterable[Any]:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]
            for state in optimizer.state.values():
                yield from (each for each in state.values() if hasattr(each, "untyped_storage"))

    def _before_step(self, *given: Any) -> None:
        self.wait()


def _innermost(optimizer: Any) -> Any:
    """accelerate puts one of its own around it, which takes no hooks."""
    while not hasattr(optimizer, "_optimizer_step_pre_hooks") and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


class Unchanged:
    """Tensors that nobody may change for a while. Writes to `tensor.data` are not seen."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        self._versions = [(each, each._version) for each in tensors]

    def check(self) -> None:
        for tensor, version in self._versions:
            if tensor._version != version:
                raise ChangedMeanwhile(
                    f"something else than the optimizer's step changed a tensor of shape {tuple(tensor.shape)} while "
                    "it was copied. lazy=True is not for this loop: from now on all is copied at once"
                )


class ChangedMeanwhile(Exception):
    pass
