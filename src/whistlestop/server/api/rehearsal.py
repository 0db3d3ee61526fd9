"""Losses on purpose: capacity taken back from a run, or from all that runs on a host."""

from typing import Annotated

from fastapi import APIRouter, Path

from whistlestop.server.api.access import Admin, Ctx, Member
from whistlestop.server.api.runs import Run
from whistlestop.server.services import preempting, rehearsing
from whistlestop.wire import api
from whistlestop.wire.rehearsal import PreemptBody, Rehearsal, RehearseBody

router = APIRouter(tags=["rehearsal"])

Name = Annotated[str, Path(max_length=200)]


@router.post("/runs/{run}/preempt")
def preempt_run(run: Run, body: PreemptBody, context: Ctx, actor: Member) -> api.Done:
    """It saves, leaves its capacity and goes back to the queue."""
    return preempting.preempt(context, run, body, actor)


@router.post("/runs/{run}/rehearse")
def rehearse_loss(run: Run, body: RehearseBody, context: Ctx, actor: Member) -> Rehearsal:
    """Something goes wrong with it, on purpose. Who submitted it, or an administrator."""
    return rehearsing.rehearse(context, run, body, actor)


@router.post("/hosts/{pool}/{name}/preempt")
def preempt_host(pool: Name, name: Name, body: PreemptBody, context: Ctx, actor: Admin) -> api.BulkDone:
    """Everything that runs there."""
    return preempting.preempt_host(context, pool, name, body, actor)
