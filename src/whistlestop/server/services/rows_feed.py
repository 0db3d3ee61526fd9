"""What open lists of runs are told: which run changed, which is gone, and once a second how far each has come."""

import json
import time
from dataclasses import dataclass

import sqlalchemy as sa

from whistlestop.server.services import views
from whistlestop.server.services.context import Context
from whistlestop.server.services.feeds import message
from whistlestop.server.services.hub import ALL
from whistlestop.server.services.list_feed import PAGE, Found, ListFeed
from whistlestop.server.store import phases, runs

TOPIC = "rows"
EVERY = 1.0  # seconds between two looks at the progress of all: a list is not a stopwatch


@dataclass(frozen=True)
class Moved(Found):
    progress: dict[str, str] | None  # run id -> JSON; None: not looked at


class RowsFeed(ListFeed):
    def __init__(self, context: Context, topic: str = TOPIC) -> None:
        super().__init__(context, ALL)
        self._told: dict[str, tuple[int, str]] = {}  # run id -> the version that told it, JSON
        self._looked = 0.0

    def due(self) -> float | None:
        return EVERY if self.context.hub.progress else None

    def look(self) -> Moved:
        found, progress = super().look(), None
        if time.monotonic() - self._looked >= EVERY * 0.9:
            self._looked, progress = time.monotonic(), self._progress()
        return Moved(found.messages, found.newest, progress)

    def take(self, found: Found) -> bool:
        changed = super().take(found)
        assert isinstance(found, Moved)
        if found.progress is None:
            return changed
        before, version = self._told, self.version + 1
        self._told = {
            run: before[run] if run in before and before[run][1] == text else (version, text)
            for run, text in found.progress.items()
        }
        return changed or any(told[0] == version for told in self._told.values())

    def moved(self, shown: int, seen: int) -> bytes:
        """The progress that changed after version `shown`."""
        fresh = [text for version, text in self._told.values() if version > shown]
        return message("progress", f'{{"runs":[{",".join(fresh)}]}}', str(seen)) if fresh else b""

    def _progress(self) -> dict[str, str]:
        """Of each run the newest live attempt's, as `GET /runs` has it."""
        found: dict[str, str] = {}
        with self.context.database.read() as connection:
            live = phases.live_attempts(connection) if self.context.hub.progress else []
        for attempt in sorted(live, key=lambda row: (row.run_id, len(row.phase_id), row.phase_id)):
            if attempt.run_id in found:
                continue  # a later phase beside it
            left = views.seconds_left(self.context, attempt)
            eta = "null" if left is None else f"{left:.1f}"
            progress = views.progress_of(self.context, attempt).model_dump_json()
            found[attempt.run_id] = f'{{"run":{json.dumps(attempt.run_id)},"eta_s":{eta},"progress":{progress}}}'
        return found

    def _changes(self, connection: sa.Connection, seen: int) -> list[tuple[int, bytes]]:
        gone = runs.deleted_since(connection, seen, PAGE)
        told = [(row.seq, message("gone", json.dumps({"run": row.run_id}), str(row.seq))) for row in gone]
        return sorted(super()._changes(connection, seen) + told, key=lambda pair: pair[0])[:PAGE]
