"""Checkpoints of a run: look, fetch, read back, pin, remove, bring back, compare."""

from typing import Annotated

from fastapi import APIRouter, Query

from whistlestop.server.api.access import Ctx, Viewer
from whistlestop.server.api.runs import Run
from whistlestop.server.services import checkpoint_views
from whistlestop.server.store import runs
from whistlestop.wire import api

router = APIRouter(tags=["checkpoints"])


@router.get("/runs/{run}/checkpoints")
def list_checkpoints(
    run: Run,
    context: Ctx,
    _actor: Viewer,
    trashed: Annotated[bool, Query(description="also those that were removed and can be had back")] = False,
) -> list[api.CheckpointView]:
    """Newest first."""
    with context.database.read() as connection:
        return checkpoint_views.of_run(connection, runs.resolve(connection, run), trashed=trashed)
