"""Advice on one run. It changes nothing."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from whistlestop.server.api.access import Ctx, Viewer
from whistlestop.server.api.readings import Reads
from whistlestop.server.services import advising
from whistlestop.server.store import runs
from whistlestop.wire.advice import AdviceView

router = APIRouter(tags=["runs"])


@router.get("/runs/{run}/advice", response_model=AdviceView)
async def show_advice(
    run: Annotated[str, Path(max_length=200)],
    context: Ctx,
    reads: Reads,
    _actor: Viewer,
    phase: Annotated[str | None, Query(max_length=200)] = None,
    max_age: Annotated[float, Query(ge=0, le=60, description="seconds; an answer that old will do")] = 0.0,
) -> Response:
    """Kill, stop, wait, or fix and continue: why, on what evidence, and what each choice costs."""

    def make() -> bytes:
        with context.database.read() as connection:
            found = advising.advice_on(context, connection, runs.resolve(connection, run), phase)
        return found.model_dump_json().encode()

    return await reads.chart(("advice", run, phase), make, max_age=max_age)
