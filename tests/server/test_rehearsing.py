"""Losses on purpose: what is recorded of them, who may, and what they do not cost."""

import asyncio

import pytest

from whistlestop.domain.errors import Forbidden, Refused
from whistlestop.server.services import ingest, launches, rehearsing, standing
from whistlestop.server.services.context import Actor
from whistlestop.server.store import events, phases, pools
from whistlestop.testing.world import ME, TRAIN, World, ended
from whistlestop.wire.frames import Data, Rehearse
from whistlestop.wire.rehearsal import Rehearsal, RehearseBody


def rehearse(here: World, run: str, fault: str, actor: Actor = ME) -> tuple[Rehearsal, list[Rehearse]]:
    """While its runner is connected."""

    async def asked() -> tuple[Rehearsal, list[Rehearse]]:
        attempt = here.attempt(run).id
        with here.context.hub.listen(attempt):
            body = RehearseBody(fault=fault, seconds=2.0)  # type: ignore[arg-type]
            return rehearsing.rehearse(here.context, run, body, actor), here.context.hub.rehearsals(attempt)

    return asyncio.run(asked())


def started(here: World, text: str = TRAIN) -> str:
    run = here.submit(text)
    here.settle()
    return run.id


def end(here: World, run: str, reason: str, step: int = 5) -> None:
    ingest.store(here.context, here.attempt(run), [Data("runner", 0, ended(reason, last_step=step))])
    here.settle()
    here.now += 120.0
    here.tick()


def test_it_is_recorded_and_handed_to_its_runner_once(here: World) -> None:
    run = started(here)
    done, handed = rehearse(here, run, "link")
    assert (done.fault, done.attempt, done.warning) == ("link", 1, None)
    assert handed == [Rehearse("link", 2.0)]
    assert here.context.hub.rehearsals(here.attempt(run).id) == [], "it does not stand"
    with here.context.database.read() as connection:
        (event,) = events.of_run(connection, run, kinds=["rehearsal_requested"])
    assert "can't reach the server for 2 s" in event.text


def test_a_runner_that_is_not_connected_is_not_asked(here: World) -> None:
    run = started(here)
    with pytest.raises(Refused, match="can't be reached"):
        rehearsing.rehearse(here.context, run, RehearseBody(fault="host"), ME)


def test_others_may_not(here: World) -> None:
    run = started(here)
    with pytest.raises(Forbidden):
        rehearse(here, run, "host", Actor("bob", "member"))
    rehearse(here, run, "host", Actor(ME.name, "member"))


def test_a_program_that_dies_in_a_rehearsal_costs_no_retry(here: World) -> None:
    run = started(here)
    for _ in range(3):
        done, _ = rehearse(here, run, "program")
        assert "retries is 0" in (done.warning or "") or "used up" in (done.warning or "")
        end(here, run, "signalled")
        assert here.run_state(run) == "starting", "it goes on"
    end(here, run, "signalled")
    assert here.run_state(run) == "failed", "for real it counts"


def test_nobody_saves_more_often_because_a_loss_was_rehearsed(here: World) -> None:
    run = started(here)
    rehearse(here, run, "host")
    end(here, run, "runner_lost")
    with here.context.database.read() as connection:
        rate = launches.preemption_rate(phases.of_pool(connection, "local"), here.now)
    assert rate <= 1 / 7200, "as if nothing had been lost"


@pytest.mark.parametrize("rehearsed", [True, False])
def test_a_host_keeps_its_good_name(here: World, rehearsed: bool) -> None:
    with here.context.database.write() as connection:
        pools.put(connection, "local", at=here.now, slots=2, hosts=[{"name": "h1", "slots": 2}])
    run = started(here)
    for step in range(1, 4):
        if rehearsed:
            rehearse(here, run, "host")
        end(here, run, "runner_lost", step)
    with here.context.database.read() as connection:
        (found,) = standing.standings(connection, here.now)
    assert (found.weight > 2.5) is not rehearsed
