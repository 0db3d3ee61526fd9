"""Workflows, tokens, secrets: what is set up once and used often."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from whistlestop import __version__
from whistlestop.domain.clock import iso
from whistlestop.domain.errors import Forbidden, NotFound
from whistlestop.server.api.access import Admin, Ctx, Entered, Member, Viewer
from whistlestop.server.services import accounts, sessions
from whistlestop.server.store import admin as store
from whistlestop.server.store.runs import Row
from whistlestop.wire import api
from whistlestop.wire.spec_file import parse_spec

router = APIRouter(tags=["set-up"])

Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]


@router.get("/whoami")
def whoami(entered: Entered, actor: Viewer) -> api.WhoView:
    return api.WhoView(name=actor.name, role=actor.role, version=__version__, csrf=entered.csrf)


@router.put("/workflows/{name}")
def save_workflow(name: Name, body: api.WorkflowBody, context: Ctx, actor: Member) -> api.WorkflowView:
    """A new version, unless the newest one has the same text."""
    parse_spec(body.spec)
    with context.database.write() as connection:
        row = store.save_workflow(connection, name, body.spec, note=body.note, by=actor.name, at=context.clock())
    return _workflow(row)


@router.get("/workflows")
def list_workflows(context: Ctx, _actor: Viewer) -> list[api.WorkflowView]:
    with context.database.read() as connection:
        return [_workflow(row) for row in store.all_workflows(connection)]


@router.get("/workflows/{name}")
def show_workflow(
    name: Name, context: Ctx, _actor: Viewer, version: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None
) -> api.WorkflowView:
    with context.database.read() as connection:
        row = store.workflow(connection, name, version)
    if row is None:
        raise NotFound(f"there is no workflow {name}{f'@{version}' if version else ''}", hint="whistle workflow ls")
    return _workflow(row)


@router.get("/workflows/{name}/versions")
def workflow_versions(name: Name, context: Ctx, _actor: Viewer) -> list[api.WorkflowView]:
    with context.database.read() as connection:
        rows = store.workflow_versions(connection, name)
    if not rows:
        raise NotFound(f"there is no workflow {name}", hint="whistle workflow ls")
    return [_workflow(row) for row in rows]


@router.get("/tokens")
def list_tokens(context: Ctx, _actor: Admin) -> list[api.TokenView]:
    return accounts.list_tokens(context)


@router.post("/tokens", status_code=201)
def create_token(body: api.TokenBody, context: Ctx, request: Request, entered: Entered, _actor: Admin) -> api.TokenView:
    """Only by token, as a link: it would outlive the session, and a sign-out would not end it."""
    if entered.session is not None:
        raise Forbidden("a token is made with a token, not by a session", hint="whistle token create")
    view = accounts.create_token(context, body.name, body.role)
    request.app.state.doorkeeper.reload()
    return view


@router.delete("/tokens/{token_id}")
def revoke_token(
    token_id: Annotated[str, Path(max_length=200)], context: Ctx, request: Request, actor: Admin
) -> api.TokenView:
    try:
        return accounts.revoke_token(context, token_id, actor)
    finally:
        request.app.state.doorkeeper.reload()  # also where the token's file can't be removed: its row is gone


@router.post("/links", status_code=201)
def create_link(context: Ctx, entered: Entered, actor: Viewer) -> api.LinkView:
    """A page that signs a browser in, once. Only by token: a session can't make itself a successor."""
    if entered.session is not None:
        raise Forbidden("a link is made with a token, not by a session", hint="whistle open")
    link, until = sessions.new_link(context, actor)
    return api.LinkView(link=link, expires_at=iso(until))


@router.get("/secrets")
def list_secrets(context: Ctx, _actor: Member) -> list[api.SecretView]:
    return accounts.list_secrets(context)


@router.put("/secrets/{name}")
def set_secret(name: Name, body: api.SecretBody, context: Ctx, _actor: Admin) -> api.SecretView:
    return accounts.set_secret(context, name, body.value)


@router.delete("/secrets/{name}", status_code=204)
def remove_secret(name: Name, context: Ctx, _actor: Admin) -> Response:
    accounts.remove_secret(context, name)
    return Response(status_code=204)


def _workflow(row: Row) -> api.WorkflowView:
    return api.WorkflowView(
        name=row.name,
        version=row.version,
        created_at=iso(row.created_at),
        created_by=row.created_by,
        note=row.note,
        spec=row.spec,
    )
