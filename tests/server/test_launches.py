"""What an attempt is launched with, and what the server makes of its runner's words about checkpoints."""

from dataclasses import replace
from pathlib import Path

import pytest

from whistlestop.blobs.storage import DAY
from whistlestop.domain.states import PhaseState
from whistlestop.engines.base import JobState
from whistlestop.server.services import ingest, keeping, launches, submit
from whistlestop.server.store import checkpoints, events, phases
from whistlestop.testing.checkpoints import Attempt
from whistlestop.testing.wait import until
from whistlestop.testing.world import ME, World, ended, world
from whistlestop.wire.api import ContinueBody, RunView
from whistlestop.wire.frames import Data
from whistlestop.wire.launch import Launch


@pytest.fixture
def run(here: World) -> RunView:
    return here.submit()


def launch(here: World, run: str) -> Launch:
    return launches.build(here.context, here.attempt(run).id, "token", "http://127.0.0.1:1")[0]


def test_a_storage_is_waited_for_once_it_has_worked_for_this_run(here: World, run: RunView) -> None:
    here.settle()
    assert not launch(here, run.id).storage_worked
    Attempt(here, run).ended("preempted")
    assert launch(here, run.id).storage_worked


def test_an_attempt_that_could_not_reach_its_checkpoints_costs_nothing_and_takes_nothing_back(
    here: World, run: RunView
) -> None:
    Attempt(here, run).ended("preempted")
    row = here.attempt(run.id)
    with here.context.database.write() as connection:
        phases.update_attempt(connection, row.id, fresh=True)  # as a person allowed
    here.now += 30
    row = here.attempt(run.id)
    ingest.store(here.context, row, [Data("runner", 0, ended("storage_away", gone_at=here.now))])
    here.engine.says[row.id] = JobState.ENDED
    here.settle()
    row = here.attempt(run.id)
    assert (row.reason, row.ended_at) == ("storage_away", row.started_at)
    with here.context.database.read() as connection:
        phase = phases.get(connection, row.phase_id)
    assert (phase.state, phase.not_before, phase.errors_used) == (PhaseState.PENDING, here.now + 1, 0)
    assert phase.from_start


def test_a_checkpoint_is_fetched_beside_a_program_that_is_known_to_wait_for_it(here: World, run: RunView) -> None:
    first = Attempt(here, run)
    saved = first.saved(5)
    first.ended("preempted")
    assert not launch(here, run.id).fetch_beside, "it may read the directory itself"
    second = Attempt(here, run)
    second.at(7)
    second.ended("preempted")
    here.now += 1  # preempted twice without a step: it comes back a little later
    here.settle()
    assert launch(here, run.id).fetch_beside
    Attempt(here, run).ended("checkpoint_damaged")
    assert not launch(here, run.id).fetch_beside, "an older one has to be found first"
    Attempt(here, run).ended("preempted")
    assert launch(here, run.id).fetch_beside
    with here.context.database.write() as connection:
        checkpoints.update(connection, saved, verified=False)
    assert not launch(here, run.id).fetch_beside


def test_what_a_run_continues_from_is_read_with_the_options_of_where_it_lies(tmp_path: Path) -> None:
    elsewhere = {"endpoint": "http://one.example", "region": "x"}
    spec = "name: x\nphases:\n- {name: a, command: 'true'}\n- {name: b, needs: [a], command: 'true'}\n"
    with world(tmp_path, storage="s3://one", storage_options=elsewhere) as here:
        parent = here.submit(spec)
        with here.context.database.write() as connection:
            phases.update(connection, f"{parent.id}.0", state=PhaseState.COMPLETED)
            for phase in ("a", "b"):
                path = f"s3://one/{parent.id}/{phase}/step-000000000005-1"
                checkpoints.add(
                    connection, id=f"c-{phase}", run_id=parent.id, phase=phase, step=5, attempt=1, bytes=1, path=path,
                    committed_at=1.0, verified=True, metrics={},
                )  # fmt: skip
        here.context = replace(here.context, settings=replace(here.settings, storage=None, storage_options={}))
        child = submit.continue_run(here.context, parent.id, ContinueBody(step=5, phase="b"), ME)
        here.settle()
        told = launch(here, child.id)
        assert (told.storage, told.storage_options) == (None, {})
        assert told.restore_options == elsewhere
        assert [(wanted.phase, wanted.options) for wanted in told.inputs] == [("a", elsewhere)]


def test_a_pinned_one_that_a_runner_removed_before_it_heard_of_it_is_had_back(here: World, run: RunView) -> None:
    attempt = Attempt(here, run)
    pinned, other = attempt.saved(5), attempt.saved(6)
    attempt.saved(7)
    keeping.pin(here.context, run.id, pinned, ME, pinned=True)
    for each in attempt.storage.list("main")[1:]:
        attempt.storage.discard(each, here.now)
    attempt.say("checkpoints_removed", ids=[pinned, other], until=here.now + DAY)
    here.tick()

    def kept() -> list[str]:
        with here.context.database.read() as connection:
            return [row.id for row in checkpoints.of_run(connection, run.id) if row.pinned]

    until(lambda: kept() == [pinned], what="the pinned one to be back")
    assert [each.step for each in attempt.storage.list("main")] == [7, 5]
    with here.context.database.read() as connection:
        assert [event.data["id"] for event in events.of_run(connection, run.id, kinds=["checkpoint_restored"])] == [
            pinned
        ]
