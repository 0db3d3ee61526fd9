"""Runs: submit, list, look at, and every verb."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, TypeAdapter

from whistlestop.domain.errors import BadRequest, NotFound
from whistlestop.domain.states import RunState
from whistlestop.server.api.access import Ctx, Member, Viewer
from whistlestop.server.api.readings import Reads
from whistlestop.server.services import bundles, forms, history, steering, submit, verbs, views
from whistlestop.server.store import events, runs
from whistlestop.wire import api

router = APIRouter(tags=["runs"])

Run = Annotated[str, Path(max_length=200, description="id, #number or unique name")]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
EVENTS = TypeAdapter(list[api.EventView])
MOST_POINTS = 200_000  # in one answer: some ten megabytes
Sort = Literal[
    "created", "-created", "priority", "-priority", "name", "-name", "status", "-status",
    "started", "-started", "ended", "-ended", "by", "-by",
]  # fmt: skip


@router.post("/check", response_model=api.CheckedForm)
async def check(body: api.CheckBody, reads: Reads, _actor: Viewer) -> Response:
    return await reads.once(lambda: _encoded(forms.check(body.spec, body.set)))


@router.put("/bundles/{digest}")
async def put_bundle(digest: Digest, request: Request, context: Ctx, _actor: Member) -> api.BundleView:
    return await bundles.receive(context.settings, digest, request.stream())


@router.head("/bundles/{digest}", status_code=204)
def has_bundle(digest: Digest, context: Ctx, _actor: Member) -> Response:
    if not bundles.path_of(context.settings, digest).exists():
        raise NotFound(f"there is no bundle {digest[:12]}…")
    return Response(status_code=204)


@router.post("/runs", status_code=201)
def submit_run(body: api.Submit, context: Ctx, actor: Member) -> api.RunView:
    return submit.submit(context, body, actor)


@router.get("/runs")
def list_runs(
    context: Ctx,
    _actor: Viewer,
    status: Annotated[list[api.RunStatus], Query(max_length=10)] = [],  # noqa: B006
    project: Annotated[str | None, Query(max_length=200)] = None,
    search: Annotated[str | None, Query(max_length=200)] = None,
    workflow: Annotated[str | None, Query(max_length=200, description="any version of it")] = None,
    sort: Sort = "-created",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[str | None, Query(max_length=20)] = None,
) -> api.RunPage:
    skip = _page(after)
    wanted = runs.Filter(tuple(status), project, search, workflow)
    with context.database.read() as connection:
        rows = runs.listing(connection, wanted, sort=sort, limit=limit + 1, skip=skip)
        total = runs.count(connection, wanted) if skip or len(rows) > limit else len(rows)
        found = views.run_views(context, connection, rows[:limit])
        cursor = str(events.newest(connection))
    return api.RunPage(runs=found, next=str(skip + limit) if len(rows) > limit else None, total=total, cursor=cursor)


@router.get("/runs/{run}")
def show_run(run: Run, context: Ctx, _actor: Viewer) -> api.RunView:
    with context.database.read() as connection:
        view = views.run_view(context, connection, runs.resolve(connection, run))
        return views.with_kinds(context, connection, view)


@router.post("/runs/{run}/stop")
def stop_phase(run: Run, body: api.StopBody, context: Ctx, actor: Member) -> api.Done:
    return verbs.stop(context, run, body, actor)


@router.post("/runs/{run}/save")
def save_now(run: Run, body: api.SaveBody, context: Ctx, actor: Member) -> api.Done:
    return steering.save(context, run, body, actor)


@router.post("/runs/{run}/extend")
def extend_phase(run: Run, body: api.ExtendBody, context: Ctx, actor: Member) -> api.Done:
    return steering.extend(context, run, body, actor)


@router.post("/runs/{run}/params")
def set_params(run: Run, body: api.ParamsBody, context: Ctx, actor: Member) -> api.Done:
    return steering.set_params(context, run, body, actor)


@router.post("/runs/{run}/pause")
def pause_run(run: Run, body: api.PauseBody, context: Ctx, actor: Member) -> api.Done:
    return verbs.pause(context, run, body, actor)


@router.post("/runs/{run}/resume")
def resume_run(run: Run, body: api.ResumeBody, context: Ctx, actor: Member) -> api.Done:
    return verbs.resume(context, run, body, actor)


@router.post("/runs/{run}/kill")
def kill_run(run: Run, body: api.KillBody, context: Ctx, actor: Member) -> api.Done:
    return verbs.kill(context, run, body, actor)


@router.post("/runs/{run}/cancel")
def cancel_run(run: Run, body: api.KillBody, context: Ctx, actor: Member) -> api.Done:
    return verbs.kill(context, run, body, actor, discard=True)


@router.post("/runs/{run}/rerun", status_code=201)
def rerun(run: Run, body: api.RerunBody, context: Ctx, actor: Member) -> api.RunView:
    return submit.rerun(context, run, body, actor)


@router.post("/runs/{run}/continue", status_code=201)
def continue_run(run: Run, body: api.ContinueBody, context: Ctx, actor: Member) -> api.RunView:
    return submit.continue_run(context, run, body, actor)


@router.patch("/runs/{run}")
def note_run(run: Run, body: api.NoteBody, context: Ctx, actor: Member) -> api.RunView:
    return verbs.set_note(context, run, body.note, actor)


@router.delete("/runs/{run}")
def delete_run(run: Run, context: Ctx, actor: Member) -> api.Done:
    return verbs.delete(context, run, actor)


@router.post("/bulk")
def bulk(body: api.BulkBody, context: Ctx, actor: Member) -> api.BulkDone:
    return verbs.bulk(context, body, actor)


@router.get("/runs/{run}/events", response_model=list[api.EventView])
async def list_events(
    run: Run,
    context: Ctx,
    reads: Reads,
    _actor: Viewer,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=5000)] = 500,
    scope: Literal["run", "instance"] | None = None,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="the last ones before this seq")] = None,
    newest: Annotated[bool, Query(description="the last ones instead of the first")] = False,
    search: Annotated[str | None, Query(max_length=200, description="plain text, any case")] = None,
    kind: Annotated[list[str], Query(max_length=50, description="only these")] = [],  # noqa: B006
    without: Annotated[list[str], Query(max_length=50, description="all but these kinds")] = [],  # noqa: B006
) -> Response:
    """Always in their order; with `newest` or `before` the last `limit` of them."""

    def make() -> bytes:
        with context.database.read() as connection:
            row = runs.resolve(connection, run)
            found = events.of_run(
                connection,
                row.id,
                after=after,
                before=before,
                newest=newest or before is not None,
                limit=limit,
                scope=scope,
                search=search,
                kinds=kind,
                without=without,
            )
            return EVENTS.dump_json([views.event_view(event) for event in found])

    return await reads.once(make)


@router.get("/runs/{run}/logs", response_model=api.LogPage)
async def read_logs(
    run: Run,
    context: Ctx,
    reads: Reads,
    _actor: Viewer,
    phase: Annotated[str | None, Query(max_length=200)] = None,
    attempt: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    grep: Annotated[str | None, Query(max_length=500, description="plain text, any case")] = None,
    level: Literal["debug", "info", "warning", "error"] | None = None,
    tail: Annotated[int | None, Query(ge=1, le=100_000)] = None,
    after: Annotated[str | None, Query(max_length=100_000, description="cursor of the last answer")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    def make() -> bytes:
        with context.database.read() as connection:
            page = history.log_page(
                connection,
                runs.resolve(connection, run).id,
                phase=phase,
                attempt=attempt,
                grep=grep,
                level=level,
                tail=tail,
                after=after,
                limit=limit,
            )
        return _encoded(page)

    return await reads.once(make)


@router.get("/runs/{run}/metrics", response_model=api.MetricsView)
async def read_metrics(
    run: Run,
    context: Ctx,
    reads: Reads,
    _actor: Viewer,
    name: Annotated[list[str], Query(max_length=1000)] = [],  # noqa: B006
    phase: Annotated[str | None, Query(max_length=200)] = None,
    after: Annotated[str | None, Query(max_length=100_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS, description="points")] = history.MOST_POINTS,
) -> Response:
    def make() -> bytes:
        with context.database.read() as connection:
            run_id = runs.resolve(connection, run).id
            view = history.metrics_view(connection, run_id, wanted=name, phase=phase, after=after, limit=limit)
        return _encoded(view)

    return await reads.once(make)


@router.get("/queue")
def queue(context: Ctx, _actor: Viewer) -> list[api.RunView]:
    """Who waits, in order, and for what."""
    with context.database.read() as connection:
        rows = runs.listing(connection, runs.Filter((RunState.QUEUED,)), sort="-priority", limit=1000)
        found = views.run_views(context, connection, rows)
    return sorted(found, key=lambda view: view.queue.position if view.queue else 0)


def _encoded(view: BaseModel) -> bytes:
    return view.model_dump_json(by_alias=True).encode()


def _page(after: str | None) -> int:
    if not after:
        return 0
    if not (after.isascii() and after.isdigit()):
        raise BadRequest(f"{after!r} is not a page", hint="pass on `next` of the last answer")
    return min(int(after), 2**31)
