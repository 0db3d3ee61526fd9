"""Where a run's program is now, by the client: asked, and waited for."""

import time
from typing import TYPE_CHECKING

from whistlestop.client.calls import Calls
from whistlestop.client.transport import quoted

if TYPE_CHECKING:  # a command imports those shapes that it asks for
    from whistlestop.wire.api import EventView
    from whistlestop.wire.stacks import StacksAsked

LOOK_EVERY = 0.1


class StackCalls(Calls):
    def ask_stacks(self, run: str, *, phase: str | None = None) -> "StacksAsked":
        """Its runners take the stacks of its processes, and tell them as events of kind `stacks`."""
        from whistlestop.wire.stacks import StacksAsked, StacksBody

        return self._post(StacksAsked, f"/runs/{quoted(run)}/stacks", StacksBody(phase=phase))

    def stacks(self, run: str, *, phase: str | None = None, timeout: float = 30.0) -> "list[EventView]":
        """The same, and the answers: one from each node, fewer if some have not come within `timeout` seconds."""
        from whistlestop.wire.api import EventView

        asked, deadline = self.ask_stacks(run, phase=phase), time.monotonic() + timeout
        while True:
            query = {"after": asked.after, "limit": 5000, "search": "stacks"}
            events = self._list(EventView, f"/runs/{quoted(asked.run)}/events", query)
            found = [event for event in events if event.kind == "stacks" and event.data.get("asked") == asked.asked]
            if len(found) >= asked.nodes or time.monotonic() > deadline:
                return found
            time.sleep(LOOK_EVERY)
