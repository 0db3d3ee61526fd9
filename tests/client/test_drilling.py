"""What a drill does not do to a run."""

from typing import Any

import pytest

from whistlestop.client import Client
from whistlestop.client.drilling import Drill, Name
from whistlestop.domain.errors import Refused
from whistlestop.wire.api import AttemptView, Done, PhaseView, ProgressView, RunView, SavesView

AT = "2026-01-01T00:00:00Z"


class Unsaved(Client):
    """It trains, and never saves."""

    def __init__(self) -> None:
        self.struck: list[str] = []

    def run(self, run: str) -> RunView:
        attempt = AttemptView(
            id="a-1", number=1, status="started", pool="local", slots=[0], started_at=AT, stage="training", up=True
        )
        train = PhaseView(
            name="train",
            kind="train",
            status="running",
            needs=[],
            progress=ProgressView(step=50),
            attempts=[attempt],
            saves=SavesView(requested=1),
        )
        return RunView(
            id="r-1", number=1, name="x", project="p", status="running", created_at=AT, phases=[train]  # type: ignore[arg-type]
        )  # fmt: skip

    def checkpoints(self, *given: Any, **named: Any) -> Any:
        return []

    def save(self, run: str, **named: Any) -> Done:
        return Done(run=self.run(run), changed=True, text="")

    def rehearse(self, run: str, fault: str, **named: Any) -> Any:
        self.struck.append(fault)

    def preempt(self, run: str, **named: Any) -> Any:
        self.struck.append("preempt")


@pytest.mark.parametrize("fault", ["program", "host", "preempt"])
def test_what_can_not_be_resumed_is_not_ended(fault: Name) -> None:
    client = Unsaved()
    drill = Drill(client, "r-1", phase=None, seconds=0.1, notice=1, within=0.1)
    drill.prepare()
    with pytest.raises(Refused, match="it would lose all of its work"):
        drill.inflict(fault)
    assert not client.struck
