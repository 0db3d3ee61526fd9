"""What every list of runs is told: each run that changes, in the order of the changes."""

from collections import deque
from dataclasses import dataclass

import sqlalchemy as sa

from whistlestop.server.services import views
from whistlestop.server.services.context import Context
from whistlestop.server.services.feeds import Feed, message
from whistlestop.server.services.hub import ALL
from whistlestop.server.store import events, runs

KEPT = 500  # changes; who is further behind reads the store
PAGE = 500


@dataclass(frozen=True)
class Found:
    messages: list[tuple[int, bytes]]
    newest: int


class ListFeed(Feed):
    def __init__(self, context: Context, topic: str = ALL) -> None:
        super().__init__(context, topic)
        self._kept: deque[tuple[int, bytes]] = deque()
        self._floor = self._newest = -1

    @property
    def newest(self) -> int:
        """The change up to which was looked; -1 before the first look."""
        return self._newest

    def look(self) -> Found:
        if self._newest < 0:
            with self.context.database.read() as connection:
                return Found([], events.newest(connection))
        found = self._after(self._newest)
        if len(found) == PAGE:
            self.context.hub.shown(self.topic)
        return Found(found, found[-1][0] if found else self._newest)

    def take(self, found: Found) -> bool:
        first = self._newest < 0
        self._floor = found.newest if first else self._floor
        self._newest = found.newest
        self._kept.extend(found.messages)
        while len(self._kept) > KEPT:
            self._floor = self._kept.popleft()[0]
        return first or bool(found.messages)

    async def fresh(self, seen: int) -> tuple[bytes, int, bool]:
        """What changed after `seen`: text, where that ends, and whether there is more right now."""
        floor = self._floor  # before the look: it must not rise above what the look can see
        if seen < floor:
            found = await self.page(self._after, seen)
            newest = found[-1][0] if found else floor
            return b"".join(text for _, text in found), newest, bool(found)
        found = [(seq, text) for seq, text in self._kept if seq > seen]
        return b"".join(text for _, text in found), found[-1][0] if found else seen, False

    def _after(self, seen: int) -> list[tuple[int, bytes]]:
        with self.context.database.read() as connection:
            return self._changes(connection, seen)

    def _changes(self, connection: sa.Connection, seen: int) -> list[tuple[int, bytes]]:
        """All of one snapshot: what a later one has may come after a change that this one lacks."""
        rows = runs.changed_since(connection, seen, PAGE)
        found = views.run_views(self.context, connection, rows)
        return [
            (row.changed, message("run", view.model_dump_json(), str(row.changed)))
            for row, view in zip(rows, found, strict=True)
        ]
