"""What pages ask beside the runs: projects, their workflows, and what a verb would do before it is done."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from whistlestop.server.api.access import Ctx, Viewer
from whistlestop.server.api.streams import HEADERS, HELLO, QUIET, STILL_HERE, AllFeeds, SeenEvent, StillGood
from whistlestop.server.services import consequences, preview, projects
from whistlestop.server.services.context import Context
from whistlestop.server.services.feeds import Feeds
from whistlestop.server.services.rows_feed import TOPIC, RowsFeed
from whistlestop.wire import api, pages

router = APIRouter(tags=["pages"])


@router.get("/projects")
def list_projects(context: Ctx, _actor: Viewer) -> list[pages.ProjectView]:
    return projects.projects(context)


@router.get("/projects/{project}/workflows")
def project_workflows(
    project: Annotated[str, Path(max_length=200)], context: Ctx, _actor: Viewer
) -> list[pages.WorkflowCard]:
    """Saved specs that are for this project, or were used in it."""
    return projects.workflows(context, project)


@router.get("/runs/{run}/consequences")
def run_consequences(
    run: Annotated[str, Path(max_length=200)],
    context: Ctx,
    _actor: Viewer,
    verb: pages.Verb,
    phase: Annotated[str | None, Query(max_length=200)] = None,
) -> pages.Consequences:
    """What the verb would do now: kept, lost, freed, paid, and how long it takes by measurement."""
    return consequences.consequences(context, run, verb, phase)


@router.post("/bulk/preview")
def preview_bulk(body: api.BulkBody, context: Ctx, _actor: Viewer) -> pages.Preview:
    """A bulk request, judged and not done."""
    return preview.preview(context, body)


@router.get("/rows/stream", response_class=StreamingResponse)
async def rows_stream(
    context: Ctx,
    feeds: AllFeeds,
    good: StillGood,
    seen: SeenEvent,
) -> StreamingResponse:
    """For lists: `run` (one that changed), `gone` (one that was deleted) and `progress` of those that run. Begins at
    `last_event_id`, the `cursor` of `GET /runs`; without, now."""
    return StreamingResponse(_follow(context, feeds, good, seen), media_type="text/event-stream", headers=HEADERS)


async def _follow(context: Context, feeds: Feeds, good: Callable[[], bool], seen: int | None) -> AsyncIterator[bytes]:
    yield HELLO
    version = 0
    async with feeds.join(TOPIC, RowsFeed, ("rows",)) as feed:
        while not context.hub.closed:
            news = await feed.beyond(version, QUIET)
            if not good():
                return
            if not news:
                yield STILL_HERE
                continue
            if feed.over and feed.newest < 0:  # its first look has failed, or the server leaves: there is no "here" yet
                return
            if seen is None:  # from here on, also for one that is cut off before the first message
                seen = feed.newest
                yield f"id: {seen}\n\n".encode()
            shown, version = version, feed.version
            more = True
            while more and good():
                text, seen, more = await feed.fresh(seen)
                if text:
                    yield text
                await asyncio.sleep(0)
            if text := feed.moved(shown, seen):
                yield text
            if feed.over:
                return
