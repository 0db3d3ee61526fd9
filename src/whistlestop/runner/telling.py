"""Events from other threads: told in the loop, in their order, and none behind the end."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any


class FromThread:
    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[..., None]) -> None:
        self._loop, self._tell = loop, tell
        self.over = False  # the end was told: nothing may come behind it

    def __call__(self, kind: str, text: str, /, **data: Any) -> None:
        """Blocks until it is told: `ended` must not overtake it."""
        done = threading.Event()

        def tell() -> None:
            try:
                if not self.over:
                    self._tell(kind, text, **data)
            finally:
                done.set()

        self._loop.call_soon_threadsafe(tell)
        done.wait()
