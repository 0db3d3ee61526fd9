"""Checkpoints of a run: look, fetch, read back, pin, remove, bring back; and where new ones are kept."""

import hashlib
import logging
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import StreamingResponse

from whistlestop.blobs.manifest import MANIFEST, encode
from whistlestop.blobs.open import is_remote
from whistlestop.domain.errors import NotFound, WhistleError
from whistlestop.server.api.access import Ctx, Member, Viewer
from whistlestop.server.api.readings import Reads
from whistlestop.server.api.runs import Run
from whistlestop.server.api.streams import StillGood
from whistlestop.server.services import checkpoint_views, keeping, saving, storages
from whistlestop.server.services.verifying import Verifying
from whistlestop.server.store import runs
from whistlestop.wire import api
from whistlestop.wire.checkpoints import CheckpointDetail, CheckpointDone, SavingView, StorageView, Verified

log = logging.getLogger(__name__)
router = APIRouter(tags=["checkpoints"])
Id = Annotated[str, Path(max_length=200, description="of the checkpoint")]


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


@router.get("/runs/{run}/saving")
def show_saving(run: Run, context: Ctx, _actor: Viewer) -> list[SavingView]:
    """When each phase that trains saves next, and why; and a save that failed, until one succeeds."""
    with context.database.read() as connection:
        return saving.of_run(context, connection, runs.resolve(connection, run))


# What needs the storage goes to threads of its own: one that does not answer must not keep a stop from being heard.


@router.get("/runs/{run}/checkpoints/{checkpoint}")
async def show_checkpoint(run: Run, checkpoint: Id, context: Ctx, reads: Reads, _actor: Viewer) -> CheckpointDetail:
    """With its files and their hashes, as its manifest says."""
    return await reads.stored(lambda: keeping.detail(context, run, checkpoint))


@router.get("/runs/{run}/checkpoints/{checkpoint}/files/{name:path}", response_class=StreamingResponse)
async def read_file(
    run: Run, checkpoint: Id, name: str, context: Ctx, reads: Reads, good: StillGood, _actor: Member
) -> StreamingResponse:
    """One file, a piece in memory at a time. It ends early if it is not what was saved: its hash tells. `manifest.json`
    is the list of them."""

    def find() -> tuple[Iterator[bytes], str]:
        with context.database.read() as connection:
            row, saved = keeping.look(connection, run, checkpoint)
        storage, found = keeping.manifest(context, row, saved)
        if name == MANIFEST:
            manifest = encode(found)
            return iter([manifest]), hashlib.sha256(manifest).hexdigest()
        entry = found.files.get(name)
        if entry is None:
            raise NotFound(f"the checkpoint {keeping.said(saved)} has no file {name}")
        return iter(storage.open_file(found, name)), entry.sha256

    pieces, digest = await reads.stored(find)

    async def content() -> AsyncIterator[bytes]:
        held = b""  # the last piece is not sent before the storage has compared the whole
        try:
            while good() and (piece := await reads.stored(partial(next, pieces, None))) is not None:
                yield held
                held = piece
        except (WhistleError, OSError) as error:
            log.warning("%s of checkpoint %s could not be sent whole: %s", name, checkpoint, error)
            return
        if good():
            yield held

    headers = {
        "ETag": f'"{digest}"',
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(content(), media_type="application/octet-stream", headers=headers)


@router.post("/runs/{run}/checkpoints/{checkpoint}/verify")
async def verify(run: Run, checkpoint: Id, request: Request, reads: Reads, actor: Member) -> Verified:
    """Read everything back and compare. One that takes long is told so: ask again by GET."""
    verifying: Verifying = request.app.state.verifying
    return await reads.waited(lambda: verifying.begin(run, checkpoint, actor))


@router.get("/runs/{run}/checkpoints/{checkpoint}/verify")
async def verified(run: Run, checkpoint: Id, request: Request, reads: Reads, _actor: Viewer) -> Verified:
    verifying: Verifying = request.app.state.verifying
    return await reads.waited(lambda: verifying.ask(run, checkpoint))


@router.post("/runs/{run}/checkpoints/{checkpoint}/pin")
def pin(run: Run, checkpoint: Id, context: Ctx, actor: Member) -> CheckpointDone:
    return keeping.pin(context, run, checkpoint, actor, pinned=True)


@router.post("/runs/{run}/checkpoints/{checkpoint}/unpin")
def unpin(run: Run, checkpoint: Id, context: Ctx, actor: Member) -> CheckpointDone:
    return keeping.pin(context, run, checkpoint, actor, pinned=False)


@router.delete("/runs/{run}/checkpoints/{checkpoint}")
async def remove(
    run: Run,
    checkpoint: Id,
    context: Ctx,
    reads: Reads,
    actor: Member,
    force: Annotated[bool, Query(description="also the newest, the best and a pinned one; never one in use")] = False,
) -> CheckpointDone:
    """It can be had back for a day."""
    return await reads.stored(lambda: keeping.remove(context, run, checkpoint, actor, force=force))


@router.post("/runs/{run}/checkpoints/{checkpoint}/restore")
async def restore(run: Run, checkpoint: Id, context: Ctx, reads: Reads, actor: Member) -> CheckpointDone:
    return await reads.stored(lambda: keeping.restore(context, run, checkpoint, actor))


@router.post("/storage/probe")
async def probe_storage(context: Ctx, reads: Reads, _actor: Member) -> StorageView:
    """Where new runs keep their checkpoints: something small is written there, read and removed."""
    where, options = storages.of_server(context.settings)
    found = await reads.waited(lambda: storages.probe(where, options))
    return StorageView(
        where=where,
        remote=is_remote(where),
        options=dict(options),
        fit=found.fit,
        seconds=round(found.seconds, 3),
        text=found.text,
    )
