"""Who is told of what, and what became of it. Everybody may look, an admin sets it up: it is the server that posts."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from whistlestop.server.api.access import Admin, Ctx, Viewer
from whistlestop.server.services import receivers
from whistlestop.wire.alerts import DeliveryState, DeliveryView, ReceiverBody, ReceiverView

router = APIRouter(tags=["alerts"])

Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]


@router.get("/alerts/receivers")
def list_receivers(context: Ctx, _actor: Viewer) -> list[ReceiverView]:
    return receivers.listed(context)


@router.post("/alerts/receivers", status_code=201)
def add_receiver(body: ReceiverBody, context: Ctx, actor: Admin) -> ReceiverView:
    """It hears of what happens from now on. The secret that webhooks are signed with is told in this answer alone."""
    return receivers.add(context, body, actor)


@router.delete("/alerts/receivers/{name}", status_code=204)
def remove_receiver(name: Name, context: Ctx, _actor: Admin) -> Response:
    """What it has not taken yet is dropped."""
    receivers.remove(context, name)
    return Response(status_code=204)


@router.post("/alerts/receivers/{name}/test", status_code=202)
def try_receiver(name: Name, context: Ctx, actor: Admin) -> DeliveryView:
    """An alert that says that it is a test, in its turn. What a failing receiver has not taken is tried at once."""
    return receivers.try_out(context, name, actor)


@router.get("/alerts/deliveries")
def list_deliveries(
    context: Ctx,
    _actor: Viewer,
    receiver: Annotated[str | None, Query(max_length=100)] = None,
    run: Annotated[str | None, Query(max_length=200)] = None,
    state: DeliveryState | None = None,
    delivery: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[DeliveryView]:
    """The newest first; those that have ended are known for two weeks."""
    return receivers.deliveries(context, receiver=receiver, run=run, state=state, delivery=delivery, limit=limit)
