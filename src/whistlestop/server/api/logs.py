"""Logs as a whole: how long they are, and all of one as text. Their lines are read in `api.runs`."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from whistlestop.server.api.access import Ctx, Viewer
from whistlestop.server.api.readings import Reads
from whistlestop.server.api.streams import StillGood
from whistlestop.server.services import history
from whistlestop.server.store import runs
from whistlestop.wire.logs import LogSize

router = APIRouter(tags=["runs"])
Run = Annotated[str, Path(max_length=200, description="id, #number or unique name")]

CUT = "[cut off here by Whistlestop: you have signed out, or the token was revoked]\n"


@router.get("/runs/{run}/logs/size")
def log_sizes(run: Run, context: Ctx, _actor: Viewer) -> list[LogSize]:
    """Lines by attempt, in order."""
    with context.database.read() as connection:
        return history.log_sizes(connection, runs.resolve(connection, run).id)


@router.get("/runs/{run}/logs/raw", response_class=StreamingResponse)
async def raw_log(
    run: Run,
    context: Ctx,
    reads: Reads,
    good: StillGood,
    attempt: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> StreamingResponse:
    """Everything that was printed until now, as text to be kept; a piece in memory at a time."""

    def find() -> tuple[str, int, history.Cursor]:
        with context.database.read() as connection:
            row = runs.resolve(connection, run)
            return row.id, row.number, history.log_ends(connection, row.id)

    run_id, number, ends = await reads.piece(find)

    def read(after: str | None) -> tuple[str, str, bool]:
        with context.database.read() as connection:  # a slow reader must not hold a snapshot for hours
            return history.log_text(connection, run_id, attempt=attempt, after=after, until=ends)

    async def text() -> AsyncIterator[str]:
        cursor: str | None = None
        more = True
        while more:
            if not good():
                yield CUT  # a file that ends without a word would be taken for the whole
                return
            lines, cursor, more = await reads.piece(partial(read, cursor))
            yield lines

    name = f"run-{number}{f'-attempt-{attempt}' if attempt else ''}.log"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return StreamingResponse(text(), media_type="text/plain; charset=utf-8", headers=headers)
