"""Used, saved, estimated: what a run's credits say while it runs and after a kill."""

import pytest

from whistlestop.domain.estimates import WARM_UP
from whistlestop.server.services import ingest, verbs, views
from whistlestop.server.store import pools, runs
from whistlestop.testing.world import ME, World
from whistlestop.wire.api import KillBody, RunView
from whistlestop.wire.frames import Data, Progress, RunnerEvent, pack_record


class Trains:
    """An attempt whose loop has begun with it."""

    def __init__(self, here: World, text: str) -> None:
        self.here, self.run, self._offset = here, here.submit(text), 0
        here.settle()
        self.row = here.attempt(self.run.id)
        self.began = here.now
        self.keeper = ingest.ProgressKeeper(here.context, self.row)
        for kind in ("program_started", "attached", "training"):
            self.say(kind)
        here.settle()

    def say(self, kind: str, **data: object) -> None:
        body = pack_record(RunnerEvent(self.here.now, kind, kind, data))
        ingest.store(self.here.context, self.row, [Data("runner", self._offset, body)])
        self._offset += len(body)

    def step(self, step: int, total: int = 60, after: float = 0.0) -> None:
        self.here.now += after
        at = self.here.now
        said = Progress(at, "training", step, total, progress_at=at, loop_started_at=self.began)
        self.keeper.take(said)

    def view(self) -> RunView:
        with self.here.context.database.read() as connection:
            view = views.run_view(self.here.context, connection, runs.get(connection, self.run.id))
            return views.with_kinds(self.here.context, connection, view)


@pytest.fixture
def tenner(here: World) -> World:
    with here.context.database.write() as connection:
        pools.put(connection, "local", at=here.now, price=10.0)
    return here


def test_killed_at_12_of_60_estimated_minutes_of_a_10_credit_run_it_is_2_used_and_8_saved(tenner: World) -> None:
    trains = Trains(tenner, "name: x\ncommand: 'true'\n")
    for minute in range(1, 13):
        trains.step(minute, after=60.0)
    running = trains.view().credits
    assert (running.used, running.estimated) == (pytest.approx(2.0), pytest.approx(10.0))
    assert running.low is not None
    assert running.high is not None
    assert running.used < running.low < 10.0 < running.high, "every minute was like the other, so far"
    verbs.kill(tenner.context, trains.run.id, KillBody(), ME)
    trains.say("ended", reason="killed", last_step=12)
    tenner.settle()
    tenner.now += 3600  # nothing is charged after the kill
    ended = trains.view()
    assert (ended.status, ended.credits.used, ended.credits.saved) == (
        "killed",
        pytest.approx(2.0),
        pytest.approx(8.0),
    )
    assert ended.credits.kinds == {"productive": pytest.approx(2.0)}


def test_an_estimate_is_wide_at_first_and_narrow_later_and_unknown_before_it_is_warm(tenner: World) -> None:
    trains = Trains(tenner, "name: x\ncommand: 'true'\n")
    trains.step(0)
    trains.step(WARM_UP - 1, total=1000, after=100.0)
    early = trains.view().credits
    assert (early.estimated, early.low, early.high) == (None, None, None)
    widths = []
    for step in range(10, 500, 10):
        trains.step(step, total=1000, after=100.0 if step % 20 else 140.0)
        cost = trains.view().credits
        if cost.low is not None and cost.high is not None and cost.estimated is not None:
            assert cost.used <= cost.low <= cost.estimated <= cost.high
            widths.append(cost.high - cost.low)
    assert widths[0] > 1.5 * widths[-1]


def test_what_runs_tells_its_kinds_of_time_up_to_now(tenner: World) -> None:
    trains = Trains(tenner, "name: x\ncommand: 'true'\n")
    trains.step(10, after=360.0)
    tenner.now += 720.0  # no step for as long as twenty of them
    assert trains.view().credits.kinds == {"productive": pytest.approx(1.0), "stalled": pytest.approx(2.0)}
    assert trains.view().credits.redone == 0.0
