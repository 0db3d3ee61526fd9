"""Projects and their workflows, as the first pages show them."""

from typing import Any

import sqlalchemy as sa

from whistlestop.domain.clock import iso
from whistlestop.domain.errors import SpecInvalid
from whistlestop.domain.states import RUN_ENDED, RunState
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import admin, runs
from whistlestop.wire.api import CodeView
from whistlestop.wire.pages import CodeOfView, ProjectView, WorkflowCard

Row = sa.Row[Any]


def projects(context: Context) -> list[ProjectView]:
    """Those with runs, and those that a workflow names; what happened last comes first."""
    with context.database.read() as connection:
        rows = runs.by_project(connection)
        spent = runs.credits_by_project(connection, context.clock())
        named = {_project(row.spec) for row in admin.all_workflows(connection)}
    counts: dict[str, dict[str, int]] = {name: {} for name in named}
    last: dict[str, float] = {}
    for row in rows:
        counts.setdefault(row.project, {})[row.state] = row.runs
        last[row.project] = max(last.get(row.project, 0.0), row.last_at or 0.0)
    found = [_view(name, by_state, spent.get(name, 0.0), last.get(name)) for name, by_state in counts.items()]
    return sorted(found, key=lambda view: (view.last_at or "", view.name), reverse=True)


def workflows(context: Context, project: str | None) -> list[WorkflowCard]:
    """Those that are for this project, or were used in it."""
    with context.database.read() as connection:
        made = runs.of_workflows(connection)
        saved = admin.all_workflows(connection)
        used: dict[str, list[Any]] = {}
        for row in made:
            used.setdefault(row.workflow.partition("@")[0], []).append(row)
        newest = runs.by_number(connection, [max(row.newest for row in rows) for rows in used.values()])
    return [
        _card(row, used.get(row.name, []), newest)
        for row in saved
        if project is None
        or _project(row.spec) == project
        or any(each.project == project for each in used.get(row.name, []))
    ]


def _card(row: Row, used: list[Any], newest: dict[int, Row]) -> WorkflowCard:
    last = newest.get(max((each.newest for each in used), default=0))
    return WorkflowCard(
        name=row.name,
        version=row.version,
        created_at=iso(row.created_at),
        created_by=row.created_by,
        note=row.note,
        runs=sum(each.runs for each in used),
        newest=None if last is None else code_of(last),
    )


def code_of(run: Row) -> CodeOfView:
    return CodeOfView(
        run=run.id,
        number=run.number,
        name=run.name,
        created_at=iso(run.created_at),
        code=CodeView(bundle=run.bundle, in_place=run.in_place, commit=run.commit, dirty=run.dirty),
    )


def _project(text: str) -> str:
    try:
        return spec_of(text).project
    except SpecInvalid:  # saved by a version that allowed more
        return "default"


def _view(name: str, by_state: dict[str, int], spent: float, last: float | None) -> ProjectView:
    return ProjectView(
        name=name,
        runs=sum(by_state.values()),
        active=sum(number for state, number in by_state.items() if state not in RUN_ENDED),
        queued=by_state.get(RunState.QUEUED, 0),
        running=by_state.get(RunState.RUNNING, 0) + by_state.get(RunState.STARTING, 0),
        waiting=by_state.get(RunState.WAITING, 0),
        failed=by_state.get(RunState.FAILED, 0),
        credits=spent,
        last_at=iso(last) if last else None,
    )
