"""What the nodes of a cluster fetch before their runner is there. They show the attempt's own token: it opens nothing
else."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from whistlestop.domain.errors import NotFound, Unauthenticated
from whistlestop.server.api.access import Ctx
from whistlestop.server.services import accounts, bundles, dispatching
from whistlestop.server.services.sessions import bearer
from whistlestop.server.store import nodes, phases, runs
from whistlestop.wire.api import Asked

router = APIRouter(prefix="/runner", include_in_schema=False)


class Trouble(Asked):
    node: int = Field(ge=0)
    text: str = Field(max_length=2000)
    unfit: bool = False  # another try would be answered alike
    left: bool = False  # the node had to be left before its runner was there


async def attempt_token(request: Request) -> str:
    token = bearer(request.headers.get("authorization"))
    if not token:
        raise Unauthenticated("an attempt's own token is needed here")
    return token


Token = Annotated[str, Depends(attempt_token)]


@router.get("/launch")
async def launch(
    request: Request,
    context: Ctx,
    token: Token,
    node: int = 0,
    start: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    def make() -> bytes:
        attempt_id = _attempt(context, token, beginning=node)
        if not request.app.state.starts.is_first(accounts.fingerprint(token), node, start):
            raise NotFound(f"node {node} of this attempt has begun already")
        return msgspec.json.encode(
            dispatching.ready(context, request.app.state.kits, attempt_id, token, node, request.app.state.url())
        )

    return Response(await run_in_threadpool(make), media_type="application/json")


@router.get("/kit")
async def kit(request: Request, context: Ctx, token: Token) -> Response:
    await run_in_threadpool(_attempt, context, token)
    found = await run_in_threadpool(request.app.state.kits.get)
    return Response(found.data, media_type="application/zip")


@router.get("/bundle")
async def bundle(context: Ctx, token: Token) -> FileResponse:
    def find() -> str:
        with context.database.read() as connection:
            attempt = phases.attempt_by_token(connection, accounts.fingerprint(token))
            run = runs.get(connection, attempt.run_id) if attempt is not None and attempt.ended_at is None else None
        if run is None:
            raise NotFound("this attempt is not wanted any more")
        if run.bundle is None:
            raise NotFound("this run has no bundle: it runs in place")
        return str(bundles.path_of(context.settings, run.bundle))

    return FileResponse(await run_in_threadpool(find), media_type="application/x-tar")


@router.post("/trouble")
async def trouble(request: Request, context: Ctx, token: Token, body: Trouble) -> Response:
    attempt_id = await run_in_threadpool(_attempt, context, token)
    told = request.app.state.could_not_start
    await run_in_threadpool(told, attempt_id, body.node, body.text, unfit=body.unfit, left=body.left)
    return Response(status_code=204)


def _attempt(context: Ctx, token: str, *, beginning: int | None = None) -> str:
    """`beginning`: the node whose runner is about to begin. A cluster may start a job twice; a runner begins once."""
    with context.database.read() as connection:
        found = phases.attempt_by_token(connection, accounts.fingerprint(token))
        known = None if found is None or beginning is None else nodes.one(connection, found.id, beginning)
    if found is None or found.ended_at is not None:
        raise NotFound("this attempt is not wanted any more")
    if known is not None and known.told and known.seen_at is None:
        raise NotFound(f"node {beginning} of this attempt has to leave")
    if beginning is not None and (known is not None or (found.nodes == 1 and found.seen_at is not None)):
        raise NotFound(f"node {beginning} of this attempt has begun already")
    return str(found.id)
