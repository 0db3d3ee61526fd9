"""Logs as a whole: how long they are, and all of one as text. Their lines are read in `api.runs`."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from whistlestop.server.api.access import Ctx, Viewer
from whistlestop.server.services import history
from whistlestop.server.store import runs
from whistlestop.wire.logs import LogSize

router = APIRouter(tags=["runs"])
Run = Annotated[str, Path(max_length=200, description="id, #number or unique name")]


@router.get("/runs/{run}/logs/size")
def log_sizes(run: Run, context: Ctx, _actor: Viewer) -> list[LogSize]:
    """Lines by attempt, in order."""
    with context.database.read() as connection:
        return history.log_sizes(connection, runs.resolve(connection, run).id)


@router.get("/runs/{run}/logs/raw", response_class=StreamingResponse)
def raw_log(
    run: Run, context: Ctx, _actor: Viewer, attempt: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None
) -> StreamingResponse:
    """Everything that was printed, as text to be kept; a piece in memory at a time."""
    with context.database.read() as connection:
        row = runs.resolve(connection, run)

    def text() -> Iterator[str]:
        cursor: str | None = None
        more = True
        while more:
            with context.database.read() as connection:  # a slow reader must not hold a snapshot for hours
                lines, cursor, more = history.log_text(connection, row.id, attempt=attempt, after=cursor)
            yield lines

    name = f"run-{row.number}{f'-attempt-{attempt}' if attempt else ''}.log"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return StreamingResponse(text(), media_type="text/plain; charset=utf-8", headers=headers)
