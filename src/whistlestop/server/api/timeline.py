"""The timeline of one run."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from whistlestop.server.api.access import Ctx, Viewer
from whistlestop.server.api.readings import Reads
from whistlestop.server.services import timeline
from whistlestop.server.store import runs
from whistlestop.wire.timeline import TimelineView

router = APIRouter(tags=["runs"])


@router.get("/runs/{run}/timeline", response_model=TimelineView)
async def show_timeline(
    run: Annotated[str, Path(max_length=200)],
    context: Ctx,
    reads: Reads,
    _actor: Viewer,
    max_age: Annotated[float, Query(ge=0, le=60, description="seconds; an answer that old will do")] = 0.0,
) -> Response:
    """Evaluations, ends of epochs and the stages of every start, phase by phase."""

    def make() -> bytes:
        with context.database.read() as connection:
            found = timeline.timeline(context, connection, runs.resolve(connection, run))
        return found.model_dump_json().encode()

    return await reads.chart(("timeline", run), make, max_age=max_age)
