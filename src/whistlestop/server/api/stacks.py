"""Where a run's program is now."""

from fastapi import APIRouter

from whistlestop.server.api.access import Ctx, Member
from whistlestop.server.api.runs import Run
from whistlestop.server.services import stacks
from whistlestop.wire.stacks import StacksAsked, StacksBody

router = APIRouter(tags=["runs"])


@router.post("/runs/{run}/stacks")
def take_stacks(run: Run, body: StacksBody, context: Ctx, actor: Member) -> StacksAsked:
    """The stacks of all its Python processes are taken, from outside; they come as events of kind `stacks`."""
    return stacks.ask(context, run, body, actor)
