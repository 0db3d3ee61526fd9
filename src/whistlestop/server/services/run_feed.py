"""What one run's dashboards are told. Events are a history and kept for a while; run, progress and series are states,
of which only the newest counts; logs and points are read by cursor, once for all who stand at the same place."""

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
from pydantic import BaseModel

from whistlestop.domain.errors import NotFound
from whistlestop.domain.states import RUN_ENDED, AttemptState
from whistlestop.server.services import charts, history, views
from whistlestop.server.services.context import Context
from whistlestop.server.services.feeds import Feed, message
from whistlestop.server.services.history import format_cursor, parse_cursor
from whistlestop.server.services.seen import Ids, Seen
from whistlestop.server.store import events, phases, runs

KEPT = 1000  # events; who is further behind reads the store
PAGE = 500  # events at once
LINES = 1000  # log lines at once
POINTS = 10_000  # at once
ANSWERS = 8  # readings kept for those who ask the same; who asks later reads again
SERIES_PACE = 0.5  # seconds between two messages of series
Series = tuple[str, str]  # phase, name
T = TypeVar("T")


@dataclass(frozen=True)
class State:
    version: int
    kind: str
    data: str


@dataclass
class Found:
    """One look, in one snapshot of the store."""

    events: list[tuple[int, str]] = field(default_factory=list)
    newest_event: int = 0
    states: dict[str, tuple[str, str]] = field(default_factory=dict)  # key -> kind, data; only what changed
    live: frozenset[str] = frozenset()  # the states' keys that still stand
    series: dict[Series, str] = field(default_factory=dict)
    ended: bool = False


@dataclass(frozen=True)
class Page:
    """A client's own reading: text, where it stands afterwards, and whether there is more right now."""

    text: bytes
    seen: Seen
    more: bool = False


class RunFeed(Feed):
    def __init__(self, context: Context, run_id: str) -> None:
        super().__init__(context, run_id)
        self._events: deque[tuple[int, str]] = deque()
        self._floor = self._newest = -1  # every event after the floor is kept
        self._states: dict[str, State] = {}
        self._series: dict[Series, tuple[int, str]] = {}
        self._shown: dict[str, Any] = {}  # by the reader's thread alone: what it has told last
        self._told: dict[Series, tuple[Any, ...]] = {}
        self._series_at = -math.inf
        self._series_waits = False
        self._memory: dict[tuple[Any, ...], Any] = {}  # the last answers of this version

    # --- the reader ------------------------------------------------------------------------------------------------

    def look(self) -> Found:
        found = Found()
        with self.context.database.read() as connection:
            row = runs.get(connection, self.topic)
            if self._newest < 0:
                found.newest_event = events.newest(connection)
            else:
                fresh = events.of_run(connection, self.topic, after=self._newest, limit=PAGE)
                found.events = [(event.seq, _json(views.event_view(event))) for event in fresh]
                found.newest_event = fresh[-1].seq if fresh else self._newest
            found.live = self._progress(connection, found)
            if self._shown.get("run") != row.changed:
                self._shown["run"] = row.changed
                found.states["run"] = "run", self._run(connection)
            found.ended = row.state in RUN_ENDED and len(found.events) < PAGE
            self._look_at_series(connection, found)
        if len(found.events) == PAGE:
            self.context.hub.shown(self.topic)  # there is more than one page: look again
        return found

    def _progress(self, connection: sa.Connection, found: Found) -> frozenset[str]:
        live = [row for row in phases.live_of_run(connection, self.topic) if row.state == AttemptState.STARTED]
        names = {row.id: row.name for row in phases.of_runs(connection, [self.topic]).get(self.topic, [])}
        for attempt in live:
            view = views.progress_of(self.context, attempt)
            if self._shown.get(attempt.id) != view:
                self._shown[attempt.id] = view
                left = views.seconds_left(self.context, attempt)
                eta = "null" if left is None else f"{left:.3f}"
                name = json.dumps(names[attempt.phase_id])
                data = f'{{"phase":{name},"attempt":{attempt.number},"eta_s":{eta},"progress":{_json(view)}}}'
                found.states[attempt.id] = "progress", data
        return frozenset({"run", *(attempt.id for attempt in live)})

    def _look_at_series(self, connection: sa.Connection, found: Found) -> None:
        if not self.wanted["series"]:
            return
        now = time.monotonic()
        self._series_waits = now - self._series_at < SERIES_PACE and not found.ended
        if self._series_waits:
            return
        self._series_at = now
        for key, newest in charts.newest(connection, self.topic).items():
            told = (newest.step, newest.value, newest.records)
            if self._told.get(key) != told:  # NaN differs from itself: told again, which costs little
                self._told[key] = told
                value = newest.value if newest.value is not None and math.isfinite(newest.value) else None
                found.series[key] = json.dumps(
                    {
                        "phase": key[0],
                        "name": key[1],
                        "step": newest.step,
                        "value": value,
                        "records": newest.records,
                    },
                    separators=(",", ":"),
                )

    def _run(self, connection: sa.Connection) -> str:
        return _json(views.run_view(self.context, connection, runs.get(connection, self.topic), whole=False))

    async def joined(self) -> None:
        if self.wanted["series"] == 1:
            self.wake()  # nobody has looked at them, or not for a while
        known = self._states.get("run")
        if known is not None and not self.over:
            # The run may have changed long ago, and its clocks go on: who comes now counts from now.
            fresh = await self.page(self._read_run, known.data)
            if self._states.get("run") is known:
                self._states["run"] = State(known.version, "run", fresh)
        self._memory.clear()  # logs and points that nobody followed may have grown since they were read

    def _read_run(self, known: str) -> str:
        try:
            with self.context.database.read() as connection:
                return self._run(connection)
        except NotFound:
            return known  # it was deleted a moment ago: the reader tells

    def due(self) -> float | None:
        if not self._series_waits:
            return None
        return max(0.0, self._series_at + SERIES_PACE - time.monotonic())

    def take(self, found: Found) -> bool:
        first = self._newest < 0
        self._floor = found.newest_event if first else self._floor
        self._newest = found.newest_event
        self._events.extend(found.events)
        while len(self._events) > KEPT:
            self._floor = self._events.popleft()[0]
        following = self.version + 1
        for key, (kind, data) in found.states.items():
            self._states[key] = State(following, kind, data)
        for gone in self._states.keys() - found.live:
            del self._states[gone]
        for series, data in found.series.items():
            self._series[series] = following, data
        self.ended = found.ended
        by_cursor = self.wanted["logs"] + self.wanted["metrics"]
        news = bool(first or found.events or found.states or found.series or found.ended or by_cursor)
        if news:
            self._memory.clear()
        return news

    # --- the clients -----------------------------------------------------------------------------------------------

    async def fresh_events(self, seen: Seen) -> Page:
        if seen.event < self._floor:
            return await self._shared("events", seen, self._missed_events)
        return self._remembered(("events", str(seen)), lambda: self._kept_events(seen))

    def fresh_states(self, topics: frozenset[str], seen: Seen, since: int) -> bytes:
        """Those that changed after version `since`."""
        return self._remembered(("states", topics, str(seen), since), lambda: self._states_since(topics, seen, since))

    async def fresh_logs(self, seen: Seen) -> Page:
        return await self._shared("logs", seen, self._log_lines)

    async def fresh_points(self, seen: Seen) -> Page:
        return await self._shared("points", seen, self._points)

    def _kept_events(self, seen: Seen) -> Page:
        return _event_page([(seq, data) for seq, data in self._events if seq > seen.event], seen)

    def _states_since(self, topics: frozenset[str], seen: Seen, since: int) -> bytes:
        told = [
            (state.kind, state.data)
            for key, state in sorted(self._states.items(), key=lambda item: item[0] == "run")
            if state.version > since and state.kind in topics
        ]
        if "series" in topics:
            changed = ",".join(data for version, data in self._series.values() if version > since)
            if changed:
                told.append(("series", f'{{"series":[{changed}]}}'))
        ids, last = Ids(seen), len(told) - 1
        return b"".join(
            message(kind, data, ids.after(data, seen, last=index == last)) for index, (kind, data) in enumerate(told)
        )

    def _remembered(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        if key not in self._memory:
            self._memory[key] = make()
        known: T = self._memory[key]
        while len(self._memory) > ANSWERS:
            del self._memory[next(iter(self._memory))]  # the oldest
        return known

    async def _shared(self, what: str, seen: Seen, read: Callable[[Seen], Page]) -> Page:
        """One reading for all who stand at the same place. It goes on if the one who began it leaves."""
        loop = asyncio.get_running_loop()
        where = (what, str(seen), self.version)
        task = self._remembered(where, lambda: loop.create_task(self.page(read, seen)))
        page: Page = await asyncio.shield(task)
        return page

    def _missed_events(self, seen: Seen) -> Page:
        floor = self._floor  # before the look: it must not rise above what the look can see
        with self.context.database.read() as connection:
            fresh = events.of_run(connection, self.topic, after=seen.event, limit=PAGE)
            found = [(row.seq, _json(views.event_view(row))) for row in fresh]
        if not found:
            return Page(b"", Seen(floor, seen.logs, seen.metrics))
        return _event_page(found, seen, more=True)

    def _log_lines(self, seen: Seen) -> Page:
        with self.context.database.read() as connection:
            page = history.log_page(connection, self.topic, after=format_cursor(seen.logs), limit=LINES)
        now = Seen(seen.event, dict(seen.logs), seen.metrics)
        parts, ids, last = [], Ids(seen), len(page.lines) - 1
        for index, line in enumerate(page.lines):
            now.logs[line.attempt] = line.line
            data = _json(line)
            parts.append(message("log", data, ids.after(data, now, last=index == last)))
        now.logs = parse_cursor(page.cursor)
        return Page(b"".join(parts), now, page.more)

    def _points(self, seen: Seen) -> Page:
        now, parts = seen, []
        with self.context.database.read() as connection:
            found, more = history.fresh_points(connection, self.topic, seen.metrics, POINTS)
        for fresh in found:
            now = Seen(seen.event, seen.logs, fresh.cursor)  # with each: points do not say their numbers
            body = "[" + ",".join(_json(item) for item in fresh.series) + "]"
            data = f'{{"attempt":{fresh.attempt},"phase":{json.dumps(fresh.phase)},"series":{body}}}'
            parts.append(message("points", data, str(now)))
        return Page(b"".join(parts), now, more)


def _event_page(found: list[tuple[int, str]], seen: Seen, *, more: bool = False) -> Page:
    parts, ids, now = [], Ids(seen), seen
    for seq, data in found:
        now = Seen(seq, seen.logs, seen.metrics)
        parts.append(message("event", data, ids.after(data, now, last=seq == found[-1][0])))
    return Page(b"".join(parts), now, more)


def _json(model: BaseModel) -> str:
    return model.model_dump_json()
