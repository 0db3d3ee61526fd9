"""Server-sent events. The hub only wakes; what is sent is read from the store by cursor, so a client that comes back
with Last-Event-ID gets what it missed, once. A slow client holds nobody up: it is simply asked less often."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from whistlestop.domain.errors import BadRequest, NotFound
from whistlestop.domain.states import RUN_ENDED, AttemptState
from whistlestop.server.api.access import Ctx, Viewer
from whistlestop.server.services import history, views
from whistlestop.server.services.context import Context
from whistlestop.server.services.history import Cursor, format_cursor, parse_cursor
from whistlestop.server.services.hub import ALL
from whistlestop.server.store import events, phases, runs

router = APIRouter(tags=["live"])

Topic = Literal["run", "events", "logs", "progress", "metrics"]
TOPICS: tuple[Topic, ...] = ("run", "events", "logs", "progress", "metrics")
QUIET = 15.0  # seconds of silence before a comment keeps the connection open
PACE = 0.1  # seconds between two looks at most: a page can't show more, and a busy run has more
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@dataclass
class Seen:
    """How far one client has come: `e120;l1:530.2:14;m1:4000`."""

    event: int = 0
    logs: Cursor = field(default_factory=dict)
    metrics: Cursor = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> "Seen":
        if not text:
            return cls()
        found = re.fullmatch(r"e(\d{1,18});l([\d:.]*);m([\d:.]*)", text, re.ASCII)
        if found is None:
            raise BadRequest(f"{text[:40]!r} is not an event id of this stream")
        return cls(int(found[1]), parse_cursor(found[2]), parse_cursor(found[3]))

    def __str__(self) -> str:
        return f"e{self.event};l{format_cursor(self.logs)};m{format_cursor(self.metrics)}"


@router.get("/runs/{run}/stream", response_class=StreamingResponse)
async def run_stream(
    run: Annotated[str, Path(max_length=200)],
    context: Ctx,
    _actor: Viewer,
    topics: Annotated[str, Query(max_length=200)] = ",".join(TOPICS),
    last_event_id: Annotated[str | None, Header(max_length=100_000)] = None,
) -> StreamingResponse:
    """One run, live: `topics` out of run, events, logs, progress, metrics."""
    wanted = frozenset(filter(None, topics.split(",")))
    if not wanted or not wanted.issubset(TOPICS):
        raise BadRequest(f"{topics!r}: topics are {', '.join(TOPICS)}")
    seen = Seen.parse(last_event_id)

    def find() -> str:
        with context.database.read() as connection:
            return str(runs.resolve(connection, run).id)

    run_id = await run_in_threadpool(find)
    body = _follow_run(context, run_id, wanted, seen)
    return StreamingResponse(body, media_type="text/event-stream", headers=HEADERS)


@router.get("/stream", response_class=StreamingResponse)
async def all_stream(
    context: Ctx, _actor: Viewer, last_event_id: Annotated[str | None, Header(max_length=30)] = None
) -> StreamingResponse:
    """Every run that changes."""
    if last_event_id and not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19):
        raise BadRequest(f"{last_event_id!r} is not an event id of this stream")
    body = _follow_all(context, int(last_event_id or 0))
    return StreamingResponse(body, media_type="text/event-stream", headers=HEADERS)


async def _follow_run(context: Context, run_id: str, topics: frozenset[str], seen: Seen) -> AsyncIterator[str]:
    shown: dict[str, Any] = {}
    yield ": whistlestop\nretry: 500\n\n"
    with context.hub.listen(run_id) as waiter:
        while not context.hub.closed:
            try:
                parts, ended = await run_in_threadpool(_read_run, context, run_id, topics, seen, shown)
            except NotFound:
                yield _message("end", "{}", str(seen))
                return
            for part in parts:
                yield part
            if ended:
                yield _message("end", "{}", str(seen))
                return
            if not await waiter.wait(QUIET):
                yield ": still here\n\n"
            await asyncio.sleep(PACE)


def _read_run(
    context: Context, run_id: str, topics: frozenset[str], seen: Seen, shown: dict[str, Any]
) -> tuple[list[str], bool]:
    """What is new, and whether that was the last of it."""
    parts: list[str] = []
    with context.database.read() as connection:
        row = runs.get(connection, run_id)
        full = False
        if "events" in topics:
            fresh = events.of_run(connection, run_id, after=seen.event, limit=500)
            for event in fresh:
                seen.event = event.seq
                parts.append(_message("event", _json(views.event_view(event)), str(seen)))
            full = len(fresh) == 500
        if "logs" in topics:
            page = history.log_page(connection, run_id, after=format_cursor(seen.logs), limit=1000)
            for line in page.lines:
                seen.logs[line.attempt] = line.line
                parts.append(_message("log", _json(line), str(seen)))
            seen.logs = parse_cursor(page.cursor)
            full = full or page.more
        if "metrics" in topics:
            for attempt, phase, series in history.fresh_points(connection, run_id, seen.metrics):
                body = "[" + ",".join(_json(item) for item in series) + "]"
                data = f'{{"attempt":{attempt.number},"phase":{json.dumps(phase)},"series":{body}}}'
                parts.append(_message("points", data, str(seen)))
        if "progress" in topics:
            parts += _progress(context, connection, run_id, shown, str(seen))
        if "run" in topics and shown.get("run") != row.changed:
            shown["run"] = row.changed
            parts.append(_message("run", _json(views.run_view(context, connection, row, whole=False)), str(seen)))
        quiet = row.state in RUN_ENDED and not full
        if full:
            context.hub.shown(run_id)
    return parts, quiet


def _progress(context: Context, connection: Any, run_id: str, shown: dict[str, Any], seen: str) -> Iterator[str]:
    names = {row.id: row.name for row in phases.of_runs(connection, [run_id]).get(run_id, [])}
    for attempt in phases.live_of_run(connection, run_id):
        view = views.progress_of(context, attempt)
        if attempt.state == AttemptState.STARTED and shown.get(attempt.id) != view:
            shown[attempt.id] = view
            left = views.seconds_left(context, attempt)
            eta = "null" if left is None else f"{left:.3f}"
            name = json.dumps(names[attempt.phase_id])
            data = f'{{"phase":{name},"attempt":{attempt.number},"eta_s":{eta},"progress":{_json(view)}}}'
            yield _message("progress", data, seen)


async def _follow_all(context: Context, seen: int) -> AsyncIterator[str]:
    yield ": whistlestop\nretry: 500\n\n"
    with context.hub.listen(ALL) as waiter:
        while not context.hub.closed:
            parts, seen = await run_in_threadpool(_read_all, context, seen)
            for part in parts:
                yield part
            if len(parts) < 500 and not await waiter.wait(QUIET):
                yield ": still here\n\n"
            await asyncio.sleep(PACE)


def _read_all(context: Context, seen: int) -> tuple[list[str], int]:
    with context.database.read() as connection:
        rows = runs.changed_since(connection, seen)
        found = views.run_views(context, connection, rows)
    parts = []
    for row, view in zip(rows, found, strict=True):
        seen = row.changed
        parts.append(_message("run", _json(view), str(seen)))
    return parts, seen


def _json(model: BaseModel) -> str:
    return model.model_dump_json()


def _message(event: str, data: str, seen: str) -> str:
    return f"event: {event}\nid: {seen}\ndata: {data}\n\n"
