"""When a run counts as recovered."""

import pytest

from whistlestop.client import Client
from whistlestop.client.recovery import wait_for_recovery
from whistlestop.domain.errors import ServerUnreachable
from whistlestop.wire.api import AttemptView, PhaseView, ProgressView, RunView

AT = "2026-01-01T00:00:00Z"


def shown(step: int, *attempts: AttemptView, phase: str = "running", status: str = "running") -> RunView:
    train = PhaseView(
        name="train",
        kind="train",
        status=phase,
        needs=[],
        progress=ProgressView(step=step),
        attempts=list(attempts),
    )
    return RunView(
        id="r-1",
        number=1,
        name="x",
        project="p",
        status=status,
        created_at=AT,
        phases=[train],  # type: ignore[arg-type]
    )


def attempt(number: int, *, last: int | None = None, since: int | None = None, stage: str | None = None) -> AttemptView:
    return AttemptView(
        id=f"a-{number}",
        number=number,
        status="started" if stage else "lost",
        pool=f"pool-{number}",
        slots=[0],
        started_at=AT,
        last_step=last,
        resumed_from=since,
        stage=stage,
        up=since is not None,
        text=None if stage else "gone",
    )


class Told(Client):
    def __init__(self, *views: RunView | Exception) -> None:
        self.views = list(views)

    def run(self, run: str) -> RunView:
        view = self.views.pop(0)
        if isinstance(view, Exception):
            raise view
        return view


def test_it_is_back_when_it_is_further_than_before_and_not_sooner() -> None:
    lost = attempt(1, last=50)
    client = Told(
        shown(48, attempt(1, stage="training", last=48)),
        shown(50, lost, phase="pending", status="queued"),
        ServerUnreachable("away"),
        shown(0, lost, attempt(2, stage="preparing")),
        shown(52, lost, attempt(2, stage="training")),  # its steps are heard of before where it began
        shown(41, lost, attempt(2, since=40, stage="training")),
        shown(50, lost, attempt(2, since=40, stage="training")),
        shown(51, lost, attempt(2, since=40, stage="training")),
    )
    found = wait_for_recovery(client, "1", "train", 1)
    assert client.views == []
    assert (found.recovered, found.attempt, found.next_attempt, found.next_pool) == (True, 1, 2, "pool-2")
    assert (found.last_step, found.resumed_from, found.redone) == (50, 40, 10)
    assert found.seconds > found.redone_s > 0
    assert found.reason == "gone"
    way = [found.ended_s, found.placed_s, found.started_s, found.stepped_s, found.seconds]
    assert None not in way
    assert way == sorted(way, key=lambda each: each or 0.0)
    assert len(set(way)) >= 3


@pytest.mark.parametrize(
    ("phase", "status", "recovered"), [("completed", "running", True), ("failed", "failed", False)]
)
def test_a_phase_that_ends_instead_is_not_waited_for(phase: str, status: str, recovered: bool) -> None:
    found = wait_for_recovery(Told(shown(9, attempt(1, last=9), phase=phase, status=status)), "1", "train", 1)
    assert (found.recovered, found.next_attempt, found.redone) == (recovered, None, 0)


def test_nobody_waits_longer_than_was_said() -> None:
    client = Told(*[shown(9, attempt(1, last=9), phase="pending", status="queued")] * 100)
    found = wait_for_recovery(client, "1", "train", 1, within=0.06)
    assert not found.recovered
    assert len(client.views) > 90
