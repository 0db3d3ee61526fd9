"""Logs as a whole: how long they are. Their lines are read in `api.runs`."""

from typing import Annotated

from fastapi import APIRouter, Path

from whistlestop.server.api.access import Ctx, Viewer
from whistlestop.server.services import history
from whistlestop.server.store import runs
from whistlestop.wire.logs import LogSize

router = APIRouter(tags=["runs"])


@router.get("/runs/{run}/logs/size")
def log_sizes(run: Annotated[str, Path(max_length=200)], context: Ctx, _actor: Viewer) -> list[LogSize]:
    """Lines by attempt, in order."""
    with context.database.read() as connection:
        return history.log_sizes(connection, runs.resolve(connection, run).id)
