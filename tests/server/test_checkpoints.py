"""What the server knows of checkpoints: what they took, which of them count, what is at risk, what can be had back."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from whistlestop.blobs.storage import DAY
from whistlestop.domain.errors import NoCheckpoint
from whistlestop.server.services import checkpoint_views, launches, saving, submit, views
from whistlestop.server.services.storages import of_run
from whistlestop.server.store import checkpoints, events, phases, runs
from whistlestop.testing.checkpoints import Attempt
from whistlestop.testing.wait import until
from whistlestop.testing.world import ME, World, world
from whistlestop.wire.api import CheckpointView, ContinueBody, PhaseView, RunView
from whistlestop.wire.checkpoints import SavingView

BEST = """
name: x
command: 'true'
checkpoint: {keep: {last: 2, best: 1, by: loss}}
"""


@pytest.fixture(params=["sqlite", "postgres"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with world(tmp_path, url) as made:
        yield made


def listed(here: World, run: RunView, *, trashed: bool = False) -> list[CheckpointView]:
    with here.context.database.read() as connection:
        return checkpoint_views.of_run(connection, runs.get(connection, run.id), trashed=trashed)


def phase_of(here: World, run: RunView) -> PhaseView:
    with here.context.database.read() as connection:
        return views.run_view(here.context, connection, runs.get(connection, run.id)).phases[0]


def test_what_a_save_took_is_kept_with_it(here: World) -> None:
    run = here.submit()
    attempt = Attempt(here, run)
    attempt.saved(5, block_seconds=0.25, upload_seconds=3.5, written=7, why="cadence")
    attempt.saved(6)
    second, first = listed(here, run)
    assert (first.block_seconds, first.upload_seconds, first.written, first.why) == (0.25, 3.5, 7, "cadence")
    assert (first.verified, first.verified_at) == (True, first.committed_at)
    assert (second.block_seconds, second.written, second.why) == (None, None, "")
    assert [second.newest, first.newest] == [True, False]


def test_the_best_is_the_one_by_the_metric_that_the_spec_names(here: World) -> None:
    run = here.submit(BEST)
    attempt = Attempt(here, run)
    for step, loss in ((1, 0.5), (2, 0.2), (3, 0.2), (4, None), (5, float("nan"))):
        attempt.saved(step, metrics={"loss": loss})
    attempt.saved(6, metrics={"loss": 0.1}, healthy=False)
    assert [view.step for view in listed(here, run) if view.best] == [3]


def test_a_removed_one_counts_no_more_until_its_day_is_over_and_then_it_is_gone(here: World) -> None:
    run = here.submit()
    attempt = Attempt(here, run)
    first, second = attempt.saved(5), attempt.saved(6)
    with here.context.database.read() as connection:
        storage = of_run(here.settings, runs.get(connection, run.id))
    storage.discard(storage.list("main")[0], here.now)
    attempt.say("checkpoints_removed", ids=[second], until=here.now + DAY)
    assert [view.id for view in listed(here, run)] == [first]
    gone = listed(here, run, trashed=True)[0]
    assert gone.id == second
    assert gone.trashed_until is not None
    assert not gone.newest
    with here.context.database.write() as connection:
        newest = checkpoints.newest(connection, run.id, "main")
        assert newest is not None
        assert newest.id == first
        checkpoints.update(connection, second, pinned=True)
        assert checkpoints.protected(connection, run.id) == []
        checkpoints.update(connection, second, pinned=False)
    with pytest.raises(NoCheckpoint):
        submit.continue_run(here.context, run.id, ContinueBody(step=6), ME)
    here.now += DAY - 10
    here.tick()
    assert len(storage.trashed("main")) == 1
    here.now += 20
    here.tick()
    until(lambda: len(listed(here, run, trashed=True)) == 1, what="the row of the one whose day is over to go")
    assert storage.trashed("main") == []
    assert [checkpoint.id for checkpoint in storage.list("main")] == [first]


def test_a_damaged_one_is_marked_and_the_one_before_it_is_taken(here: World) -> None:
    run = here.submit()
    attempt = Attempt(here, run)
    first = attempt.saved(5)
    attempt.saved(6)
    attempt.say("checkpoint_set_aside", path=listed(here, run)[0].path, why="a file has changed")
    damaged, good = listed(here, run)
    assert (damaged.verified, damaged.newest, good.newest) == (False, False, True)
    child = submit.continue_run(here.context, run.id, ContinueBody(), ME)
    assert child.parent is not None
    assert child.parent.step == 5
    with pytest.raises(NoCheckpoint, match="damaged"):
        submit.continue_run(here.context, run.id, ContinueBody(step=6), ME)
    with here.context.database.read() as connection:
        assert first in checkpoints.protected(connection, run.id)


def test_a_save_that_failed_is_an_event(here: World) -> None:
    run = here.submit()
    Attempt(here, run).say("save_failed", step=7, why="cadence", text="no space is left", tries=3)
    with here.context.database.read() as connection:
        said = events.of_run(connection, run.id, kinds=["save_failed"])[0]
    assert (said.scope, said.phase, said.data["step"], said.text) == ("instance", "main", 7, "save_failed!")


def test_what_no_checkpoint_holds_is_at_risk_in_steps_time_and_credits(here: World) -> None:
    run = here.submit()
    assert phase_of(here, run).at_risk is None
    attempt = Attempt(here, run)
    attempt.at(40)
    here.now += 60
    risk = phase_of(here, run).at_risk
    assert risk is not None
    assert (risk.steps, risk.seconds, risk.step) == (40, 60.0, None)
    assert risk.credits == pytest.approx(60.0)  # a slot costs a credit a second here
    attempt.saved(50, upload_seconds=2.0)
    attempt.at(53)
    here.now += 10
    risk = phase_of(here, run).at_risk
    assert risk is not None
    assert (risk.steps, risk.seconds, risk.step) == (3, 12.0, 50)
    attempt.ended("finished")
    assert phase_of(here, run).at_risk is None


def test_after_a_resume_the_time_of_this_attempt_is_at_risk_and_the_steps_since_the_last_one_saved(here: World) -> None:
    run = here.submit()
    first = Attempt(here, run)
    first.saved(50)
    here.now += 1000
    first.ended("preempted")
    second = Attempt(here, run)
    second.at(52)
    here.now += 7
    risk = phase_of(here, run).at_risk
    assert risk is not None
    assert (risk.steps, risk.seconds, risk.step) == (2, 7.0, 50)


def saving_of(here: World, run: RunView) -> list[SavingView]:
    with here.context.database.read() as connection:
        return saving.of_run(here.context, connection, runs.get(connection, run.id))


def every(word: str) -> str:
    return f"name: x\ncommand: 'true'\ncheckpoint: {{every: {word}}}\n"


def test_when_it_saves_next_and_why_is_known_from_its_cadence_and_its_saves(here: World) -> None:
    for word, step, seconds, why in (
        ("50 steps", 100, None, "every 50 steps"),
        ("10 minutes", None, 600, "every 10 minutes"),
        ("[1 epoch, 1 hour]", 80, 3600, "every 1 epoch or 1 hour"),
        ("auto", None, 120, "a save costs 1 s"),
    ):
        run = here.submit(f"name: x\ncommand: 'true'\ncheckpoint: {{every: {word}}}\n")
        assert saving_of(here, run) == []
        attempt = Attempt(here, run)
        attempt.at(40, batches=40)
        here.now += 100
        attempt.saved(50, block_seconds=1.0, upload_seconds=2.0)
        attempt.at(52, batches=40)
        here.now += 10
        [found] = saving_of(here, run)
        assert found.next is not None
        assert (found.next.step, found.failed) == (step, None)
        assert why in found.next.why
        at = found.next.at and datetime.fromisoformat(found.next.at).timestamp()
        assert at == (seconds and pytest.approx(here.now - 12 + seconds, abs=5))  # counted from when it was taken
        attempt.ended("finished")
        assert saving_of(here, run) == []


def test_a_save_that_failed_is_told_until_one_succeeds(here: World) -> None:
    run = here.submit()
    attempt = Attempt(here, run)
    attempt.saved(5)
    attempt.say("save_failed", step=7, why="cadence", tries=3)
    [found] = saving_of(here, run)
    assert found.failed is not None
    assert (found.phase, found.failed.step, found.failed.text) == ("main", 7, "save_failed!")
    attempt.saved(8)
    assert saving_of(here, run) == []


def test_the_rate_of_preemptions_comes_from_the_record_of_the_pool(here: World) -> None:
    run = here.submit()
    attempt = Attempt(here, run)
    launch, _ = launches.build(here.context, attempt.row.id, "token", "http://127.0.0.1:1")
    assert launch.preemption_rate == pytest.approx(1 / 7200)
    here.now += 3600
    attempt.say("ended", reason="host_lost", last_step=5, saved_step=5)
    here.context.hub.over(attempt.row.id)
    here.settle()
    with here.context.database.read() as connection:
        assert launches.preemption_rate(phases.of_pool(connection, "local"), here.now) == pytest.approx(2 / 10800)
    second = Attempt(here, run)
    here.now += 3600
    second.say("ended", reason="preempted", last_step=9, saved_step=9)
    with here.context.database.read() as connection:
        assert launches.preemption_rate(phases.of_pool(connection, "local"), here.now) == pytest.approx(2 / 14400)
        assert launches.preemption_rate(phases.of_pool(connection, "other"), here.now) == pytest.approx(1 / 7200)
