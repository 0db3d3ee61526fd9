"""What every endpoint starts from: the context, and who asks with which role."""

from typing import Annotated

from fastapi import Depends, Request

from whistlestop.server.services import accounts
from whistlestop.server.services.accounts import Doorkeeper
from whistlestop.server.services.context import Actor, Context

# All of these are coroutines though they wait for nothing: a plain function would cost a thread's turn each.


async def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


def bearer(authorization: str | None) -> str | None:
    if not authorization:
        return None
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


async def viewer(request: Request) -> Actor:
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    return doorkeeper.admit(bearer(request.headers.get("authorization")))


async def member(actor: Annotated[Actor, Depends(viewer)]) -> Actor:
    accounts.require(actor, "member")
    return actor


async def admin(actor: Annotated[Actor, Depends(viewer)]) -> Actor:
    accounts.require(actor, "admin")
    return actor


Ctx = Annotated[Context, Depends(context_of)]
Viewer = Annotated[Actor, Depends(viewer)]
Member = Annotated[Actor, Depends(member)]
Admin = Annotated[Actor, Depends(admin)]
