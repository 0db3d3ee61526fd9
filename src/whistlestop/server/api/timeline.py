"""The timeline of one run."""

from typing import Annotated

from fastapi import APIRouter, Path

from whistlestop.server.api.access import Ctx, Viewer
from whistlestop.server.services import timeline
from whistlestop.server.store import runs
from whistlestop.wire.timeline import TimelineView

router = APIRouter(tags=["runs"])


@router.get("/runs/{run}/timeline")
def show_timeline(run: Annotated[str, Path(max_length=200)], context: Ctx, _actor: Viewer) -> TimelineView:
    """Evaluations, ends of epochs and the stages of every start, phase by phase."""
    with context.database.read() as connection:
        return timeline.timeline(context, connection, runs.resolve(connection, run))
