"""Capacity that goes while it is used, on a real server; `make soak` runs the drill in full."""

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from whistlestop.client import Client
from whistlestop.client.recovery import wait_for_recovery
from whistlestop.testing.preempt_drill import drill
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.watchers import PROGRAMS
from whistlestop.wire.api import RunView

TASK = {"name": "t", "kind": "task", "command": "true"}
# Kills its runner where it has slot 0: to the server that is a host that takes its runners down.
FATAL = "import os; os.environ['WHISTLE_SLOTS'] == '0' and os.kill(os.getppid(), 9)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for all: every test says what pools there are."""
    with ServerProcess(tmp_path_factory.mktemp("preemption"), slots=1) as started:
        yield started


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with server.client() as made:
        yield made
        server.clear()


def offered(client: Client, *pools: str) -> None:
    """These, and no others; the pool that every server has is away unless it is among them."""
    named = [*pools, *([] if any("name: local," in pool for pool in pools) else ["name: local, slots: 0"])]
    client.apply_pools("pools:\n" + "".join(f"- {{{pool}}}\n" for pool in named), prune=True)


def told(client: Client, run: str, kind: str) -> list[str]:
    return [event.text for event in client.events(run) if event.kind == kind]


def places(view: RunView) -> list[tuple[str, str | None]]:
    return [(attempt.pool, attempt.host) for attempt in view.phases[0].attempts]


@pytest.mark.drill
def test_a_training_that_is_taken_back_again_and_again_finishes_by_itself_bit_for_bit(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "server", slots=1) as server:
        report = drill(server, notices=2, kills=2)
        assert server.complaints() == []
    assert len(report.blows) == 4


def test_a_pool_that_goes_while_a_run_waits_for_it_and_comes_back_runs_it(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    offered(client, "name: local, slots: 1")
    hold = {"name": "t", "kind": "task", "command": ["sh", "-c", "until test -e go; do sleep 0.05; done"]}
    first = server.submit(hold, name="first", directory=tmp_path)
    server.wait(first.id, "running")
    waits = server.submit(TASK, name="waits")
    client.set_pool("local", slots=0)
    (tmp_path / "go").touch()
    assert server.wait(first.id).status == "completed", "what runs there runs on"
    later = server.submit(TASK, name="later")
    for run in (waits, later):
        view = client.run(run.id)
        assert view.status == "queued"
        assert view.queue is not None
        assert "local" in view.queue.waits_for
    client.set_pool("local", slots=1)
    for run in (waits, later):
        assert server.wait(run.id).status == "completed"
    (placed,) = told(client, waits.id, "placed")
    assert "pool local" in placed


def test_a_pool_that_takes_its_slots_back_is_left_for_the_next(server: ServerProcess, client: Client) -> None:
    offered(client, "name: dear, slots: 1, price: 9", "name: cheap, slots: 1, price: 1, market: spot")
    env = {"PACE": "0.02"}
    phase = {"name": "train", "command": [sys.executable, "loop.py"], "env": env, "checkpoint": {"every": "10 steps"}}
    run = server.submit(phase, name="leaves", directory=PROGRAMS).id
    for _ in range(3):
        until(lambda: client.run(run).progress.step > 3, within=60, what="some steps")
        newest = client.run(run).phases[0].attempts[-1]
        if newest.pool == "dear":
            break
        client.preempt(run, notice_s=5.0, attempts=[newest.number])
        assert wait_for_recovery(client, run, "train", newest.number, within=60).recovered
    first, *_, last = places(client.run(run))
    assert (first[0], last[0]) == ("cheap", "dear")
    (left,) = told(client, run, "pool_left")
    assert "cheap" in left
    assert "cheap" in told(client, run, "placed")[-1], "what was passed over, and why"


def test_a_host_that_takes_its_runners_down_is_not_used_again_until_it_is_readmitted(
    server: ServerProcess, client: Client
) -> None:
    offered(client, "name: local, slots: 2, hosts: [{name: bad, slots: 1}, {name: good, slots: 1}]")
    task = {"name": "t", "kind": "task", "command": [sys.executable, "-c", FATAL]}
    excluded = ""
    for _ in range(5):
        run = server.submit(task, name="falls")
        view = server.wait(run.id)
        assert view.status == "completed", view.reason
        assert places(view)[-1] == ("local", "good"), "it goes on elsewhere"
        excluded = excluded or run.id if told(client, run.id, "host_excluded") else excluded
        if len(places(view)) == 1:
            break
    assert places(view) == [("local", "good")], "the bad one is not tried any more"
    (words,) = told(client, excluded, "host_excluded")
    assert "host bad of pool local is excluded" in words
    (host,) = [each for each in client.hosts() if each.name == "bad"]
    assert host.excluded
    assert host.bad
    client.readmit_host("local", "bad")
    again = server.submit(task, name="again").id
    found = until(lambda: places(client.run(again)), within=60, what="an attempt")
    assert found is not None
    assert found[0] == ("local", "bad")


def test_a_deadline_that_spot_can_not_meet_moves_to_on_demand_in_time_and_is_met(
    server: ServerProcess, client: Client
) -> None:
    cheap = "name: cheap, slots: {}, price: 1, market: spot"
    offered(client, cheap.format(1))
    phase = {
        "name": "train",
        "command": [sys.executable, "loop.py"],
        "env": {"STEPS": "300", "PACE": "0.01"},
        "checkpoint": {"every": "10 steps"},
        "capacity": {"changeover": "2s"},
        "work": "5s",
    }
    run = server.submit(phase, name="due", directory=PROGRAMS, deadline="40s").id
    until(lambda: client.run(run).progress.step > 20, within=60, what="some steps")
    (first,) = client.run(run).phases[0].attempts
    offered(client, cheap.format(0), "name: sure, slots: 1, price: 9, market: on_demand")
    client.preempt(run, notice_s=5.0, attempts=[first.number])
    view = server.wait(run)
    assert view.status == "completed", view.reason
    assert [each.reason for each in view.phases[0].stop_reasons if each.decisive] == ["all_steps_done"]
    assert view.ended_at is not None
    took = datetime.fromisoformat(view.ended_at) - datetime.fromisoformat(view.created_at)
    assert took < timedelta(seconds=40)
    assert [pool for pool, _ in places(view)] == ["cheap", "sure"]
    (words,) = told(client, run, "escalated")
    assert "of work in" in words
    assert "on-demand pool sure" in words
