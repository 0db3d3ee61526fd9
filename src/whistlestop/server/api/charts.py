"""What charts and lists draw: small answers, whatever the length of the run."""

import math
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from whistlestop.domain.errors import BadRequest
from whistlestop.server.api.access import Ctx, Viewer
from whistlestop.server.api.readings import Reads
from whistlestop.server.services import charts
from whistlestop.server.store import runs
from whistlestop.wire.charts import Axis, Charts, SeriesList, Sparklines

router = APIRouter(tags=["charts"])

Run = Annotated[str, Path(max_length=200, description="id, #number or unique name")]
Name = Annotated[str, Query(max_length=1000)]
MaxAge = Annotated[float, Query(ge=0, le=60, description="seconds; an answer that old will do")]
MOST_NAMES = 100
MOST_RUNS = 200


@router.get("/runs/{run}/series", response_model=SeriesList)
async def list_series(run: Run, context: Ctx, reads: Reads, _actor: Viewer, max_age: MaxAge = 0.0) -> Response:
    """Every series that the run has logged, with its extent and its last value."""

    def make() -> bytes:
        with context.database.read() as connection:
            return charts.series_list(connection, runs.resolve(connection, run).id).model_dump_json().encode()

    return await reads.chart(("series", run), make, max_age=max_age)


@router.get("/runs/{run}/charts", response_model=Charts)
async def read_charts(
    run: Run,
    context: Ctx,
    reads: Reads,
    _actor: Viewer,
    name: Annotated[list[Name], Query(max_length=MOST_NAMES, description="default: all, the first hundred")] = [],  # noqa: B006
    phase: Annotated[str | None, Query(max_length=200)] = None,
    axis: Axis = "step",
    start: Annotated[
        float | None, Query(alias="from", ge=-1e300, le=1e300, description="step, or unix seconds")
    ] = None,
    end: Annotated[float | None, Query(alias="to", ge=-1e300, le=1e300)] = None,
    width: Annotated[int, Query(ge=1, le=4000, description="buckets at most, as a rule one per pixel")] = 600,
    max_age: MaxAge = 0.0,
) -> Response:
    """Lines in at most `width` buckets with their lowest, highest and last value: no spike is lost."""
    view = charts.View(axis, -math.inf if start is None else start, math.inf if end is None else end, width)

    def make() -> bytes:
        with context.database.read() as connection:
            row = runs.resolve(connection, run)
            names = list(dict.fromkeys(name)) or charts.names(connection, row.id, phase)[:MOST_NAMES]
            found = charts.charts(connection, row.id, names, view, phase=phase) if names else []
        return _encoded(Charts.model_construct(charts=found))

    return await reads.chart(("charts", run, tuple(name), phase, view), make, max_age=max_age)


@router.get("/sparklines", response_model=Sparklines)
async def read_sparklines(
    context: Ctx,
    reads: Reads,
    _actor: Viewer,
    run: Annotated[list[Name], Query(description="ids")],
    width: Annotated[int, Query(ge=1, le=200)] = 40,
    max_age: MaxAge = 5.0,
) -> Response:
    """The loss of many runs at once, in a few buckets each."""
    wanted = sorted(set(run))
    if len(wanted) > MOST_RUNS:
        raise BadRequest(f"{len(wanted)} runs at once are too many", hint=f"ask for {MOST_RUNS} at most")

    def make() -> bytes:
        with context.database.read() as connection:
            return _encoded(charts.sparklines(connection, wanted, width))

    return await reads.chart(("sparklines", tuple(wanted), width), make, max_age=max_age)


def _encoded(view: Charts | Sparklines) -> bytes:
    """Tens of thousands of numbers that we have just made ourselves need no second look."""
    return msgspec.json.encode(view, enc_hook=vars)
