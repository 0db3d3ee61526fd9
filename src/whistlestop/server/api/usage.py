"""What was spent, and what projects may spend. Everybody may look, an admin gives budgets."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from whistlestop.server.api.access import Admin, Ctx, Viewer
from whistlestop.server.api.readings import Reads
from whistlestop.server.services import budgets, usage
from whistlestop.wire.usage import BudgetBody, BudgetView, By, UsageView

router = APIRouter(tags=["usage"])

Project = Annotated[str, Path(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]*$")]
Moment = Annotated[str | None, Query(max_length=40, description="7d (ago), 2026-01-31, a whole time, or all")]


@router.get("/usage", response_model=UsageView)
async def show_usage(
    context: Ctx,
    reads: Reads,
    _actor: Viewer,
    by: By = "project",
    project: Annotated[str | None, Query(max_length=200)] = None,
    since: Moment = "30d",
    until: Moment = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Credits and slot-hours, by kind of time; what runs is counted up to now."""

    def make() -> bytes:
        now = context.clock()
        begin, end = usage.moment(since or "30d", now), usage.moment(until, now) if until else None
        found = usage.usage_view(context, by=by, project=project, since=begin, until=end, limit=limit)
        return found.model_dump_json().encode()

    return await reads.once(make)


@router.get("/budgets")
def list_budgets(context: Ctx, _actor: Viewer) -> list[BudgetView]:
    with context.database.read() as connection:
        return [budgets.view(balance) for balance in budgets.balances(context, connection)]


@router.put("/budgets/{project}")
def put_budget(project: Project, body: BudgetBody, context: Ctx, actor: Admin) -> BudgetView:
    """Another amount counts from where the one before did, unless `restart` is set."""
    return budgets.put(context, project, body, actor)


@router.delete("/budgets/{project}", status_code=204)
def remove_budget(project: Project, context: Ctx, _actor: Admin) -> Response:
    budgets.remove(context, project)
    return Response(status_code=204)
