"""What every endpoint starts from: the context, and who asks with which role."""

from typing import Annotated

from fastapi import Depends, Request

from whistlestop.server.api.guard import ENTRANCE
from whistlestop.server.services import accounts
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.services.sessions import Entrance

# All of these are coroutines though they wait for nothing: a plain function would cost a thread's turn each.


async def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def entrance(request: Request) -> Entrance:
    """As the guard has let them in: nobody comes here past it."""
    entered: Entrance = request.scope[ENTRANCE]
    return entered


async def viewer(entrance: Annotated[Entrance, Depends(entrance)]) -> Actor:
    return entrance.actor


async def member(actor: Annotated[Actor, Depends(viewer)]) -> Actor:
    accounts.require(actor, "member")
    return actor


async def admin(actor: Annotated[Actor, Depends(viewer)]) -> Actor:
    accounts.require(actor, "admin")
    return actor


Ctx = Annotated[Context, Depends(context_of)]
Entered = Annotated[Entrance, Depends(entrance)]
Viewer = Annotated[Actor, Depends(viewer)]
Member = Annotated[Actor, Depends(member)]
Admin = Annotated[Actor, Depends(admin)]
