"""Server-sent events. What is sent is read from the store by cursor, by one reader for all who are up to date, so a
client that comes back with Last-Event-ID gets what it missed, once. A slow client holds nobody up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from whistlestop.domain.errors import BadRequest
from whistlestop.server.api.access import Ctx, Entered, Viewer
from whistlestop.server.services import history
from whistlestop.server.services.context import Context
from whistlestop.server.services.feeds import Feeds, message
from whistlestop.server.services.hub import ALL
from whistlestop.server.services.list_feed import ListFeed
from whistlestop.server.services.run_feed import RunFeed
from whistlestop.server.services.seen import Seen
from whistlestop.server.services.sessions import Sessions
from whistlestop.server.store import runs

router = APIRouter(tags=["live"])

DEFAULT = "run,events,logs,progress,metrics"
TOPICS = (*DEFAULT.split(","), "series")
QUIET = 15.0  # seconds of silence before a comment keeps the connection open
HELLO, STILL_HERE = b": whistlestop\nretry: 500\n\n", b": still here\n\n"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def feeds_of(request: Request, context: Ctx) -> Feeds:
    """The application's own, made with its first stream: they belong to the event loop that serves it."""
    state = request.app.state
    if not hasattr(state, "feeds"):
        state.feeds = Feeds(context)
    feeds: Feeds = state.feeds
    return feeds


async def still_good(request: Request, entrance: Entered, _actor: Viewer) -> Callable[[], bool]:
    """A stream is one long request: who signs out, or whose token is revoked, must not go on listening."""
    sessions: Sessions = request.app.state.sessions
    return lambda: sessions.still_good(entrance)


AllFeeds = Annotated[Feeds, Depends(feeds_of)]
StillGood = Annotated[Callable[[], bool], Depends(still_good)]  # asks for a viewer, too


@router.get("/runs/{run}/stream", response_class=StreamingResponse)
async def run_stream(
    run: Annotated[str, Path(max_length=200)],
    context: Ctx,
    feeds: AllFeeds,
    good: StillGood,
    topics: Annotated[str, Query(max_length=200)] = DEFAULT,
    logs_from: Literal["start", "end"] = "start",
    last_event_id: Annotated[str | None, Header(max_length=100_000)] = None,
    asked_last: Annotated[
        str | None, Query(alias="last_event_id", max_length=100_000, description="for browsers, which set no header")
    ] = None,
) -> StreamingResponse:
    """One run, live: `topics` out of run, events, logs, progress, metrics, series."""
    wanted = frozenset(filter(None, topics.split(",")))
    if not wanted or not wanted.issubset(TOPICS):
        raise BadRequest(f"{topics!r}: topics are {', '.join(TOPICS)}")
    last = last_event_id or asked_last  # a browser that reconnects by itself sends both, and the header is newer
    seen = Seen.parse(last)

    def find() -> str:
        with context.database.read() as connection:
            run_id = str(runs.resolve(connection, run).id)
            if logs_from == "end" and not last:
                seen.logs = history.log_ends(connection, run_id)
            return run_id

    run_id = await run_in_threadpool(find)
    return StreamingResponse(
        _follow_run(context, feeds, good, run_id, wanted, seen), media_type="text/event-stream", headers=HEADERS
    )


async def seen_event(
    last_event_id: Annotated[str | None, Header(max_length=30)] = None,
    asked_last: Annotated[str | None, Query(alias="last_event_id", max_length=30)] = None,
) -> int | None:
    """How far a client of a list has come: the number of an event. None: it does not say."""
    last = last_event_id or asked_last
    if last and not (last.isascii() and last.isdigit() and len(last) < 19):
        raise BadRequest(f"{last!r} is not an event id of this stream")
    return int(last) if last else None


SeenEvent = Annotated[int | None, Depends(seen_event)]


@router.get("/stream", response_class=StreamingResponse)
async def all_stream(
    context: Ctx,
    feeds: AllFeeds,
    good: StillGood,
    seen: SeenEvent,
) -> StreamingResponse:
    """Every run that changes."""
    return StreamingResponse(
        _follow_all(context, feeds, good, seen or 0), media_type="text/event-stream", headers=HEADERS
    )


async def _follow_run(
    context: Context, feeds: Feeds, good: Callable[[], bool], run_id: str, topics: frozenset[str], seen: Seen
) -> AsyncIterator[bytes]:
    yield HELLO
    looked = shown = 0  # the versions up to which histories were read and states were sent
    behind = False
    async with feeds.join(run_id, RunFeed, topics) as feed:
        while not context.hub.closed:
            news = behind or await feed.beyond(looked, QUIET)
            if not good():
                return
            if not news:
                yield STILL_HERE
                continue
            looked, ended = feed.version, feed.ended  # before reading: what is read is at least as new
            text, seen, behind = await _histories(feed, topics, seen)
            # Who is behind, in a flood maybe, hears the present on the way; the last status comes after the last words.
            if feed.version > shown and not (behind and feed.ended):
                text += feed.fresh_states(topics, seen, shown)
                shown = feed.version
            if text:
                yield text
            if ended and not behind:
                yield message("end", "{}", str(seen))
                return
            if feed.over and not feed.ended:  # one that has ended meanwhile is read to its end at the next turn
                return


async def _histories(feed: RunFeed, topics: frozenset[str], seen: Seen) -> tuple[bytes, Seen, bool]:
    text, behind = b"", False
    for topic, read in (("events", feed.fresh_events), ("logs", feed.fresh_logs), ("metrics", feed.fresh_points)):
        if topic in topics:
            page = await read(seen)
            text += page.text
            seen, behind = page.seen, behind or page.more
    return text, seen, behind


async def _follow_all(context: Context, feeds: Feeds, good: Callable[[], bool], seen: int) -> AsyncIterator[bytes]:
    yield HELLO
    version = 0
    async with feeds.join(ALL, ListFeed, ("runs",)) as feed:
        while not context.hub.closed:
            news = await feed.beyond(version, QUIET)
            if not good():
                return
            if not news:
                yield STILL_HERE
                continue
            version = feed.version
            more = True
            while more and good():
                text, seen, more = await feed.fresh(seen)
                if text:
                    yield text
                await asyncio.sleep(0)
            if feed.over:
                return
