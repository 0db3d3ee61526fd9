"""A real run, changed while it trains: what was changed is done again, at the same steps, after a crash."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import ChangeView, PhaseView, RunView


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def submit(server: ServerProcess, programs: Path, **more: Any) -> RunView:
    phase = {"name": "train", "command": ["python", "steered.py"], "checkpoint": {"every": "1 hours"}, "retries": 2}
    return server.submit({**phase, **more}, name="steered", directory=programs)


def phase_of(client: Client, run: RunView) -> PhaseView:
    return client.run(run.id).phases[0]


def reached(client: Client, run: RunView, step: int) -> None:
    until(lambda: phase_of(client, run).progress.step >= step, what=f"step {step}")


def applied(client: Client, run: RunView, count: int) -> list[ChangeView]:
    def all_of_them() -> list[ChangeView]:
        found = [change for change in phase_of(client, run).steering if change.step is not None]
        return found if len(found) == count else []

    return until(all_of_them, what=f"{count} changes to be applied")


def program(client: Client, run: RunView) -> int:
    started = [event for event in client.events(run.id) if event.kind == "program_started"]
    return int(started[-1].data["pid"])


def test_a_save_is_made_while_the_run_goes_on(server: ServerProcess, client: Client, programs: Path) -> None:
    run = submit(server, programs)
    reached(client, run, 5)
    client.save(run.id)
    saves = until(lambda: (found := phase_of(client, run).saves).done == 1 and found, what="the checkpoint")
    assert [item.step for item in client.checkpoints(run.id)] == [saves.step]
    reached(client, run, (saves.step or 0) + 5)


def test_a_save_before_the_loop_is_made_in_the_loop(
    server: ServerProcess, client: Client, programs: Path, tmp_path: Path
) -> None:
    slow = ["bash", "-c", 'until [ -e "$GO" ]; do sleep 0.01; done; exec python steered.py']
    go = tmp_path / "go"
    run = submit(server, programs, command=slow, env={"GO": str(go)})
    until(lambda: "program_started" in server.events(run.id), what="the program")
    client.save(run.id)
    until(lambda: any(event.kind == "save_requested" for event in client.events(run.id)), what="the request")
    go.touch()
    until(lambda: phase_of(client, run).saves.done == 1, what="the checkpoint")


def test_what_was_changed_is_replayed_at_its_step_after_a_crash(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    run = submit(server, programs)
    reached(client, run, 5)
    client.save(run.id)
    until(lambda: phase_of(client, run).saves.done == 1, what="the checkpoint")
    saved = phase_of(client, run).saves.step or 0
    until(lambda: "rate" in phase_of(client, run).params, what="the parameter")
    client.set_params(run.id, {"rate": 0.5})
    total = phase_of(client, run).progress.step + 400
    client.extend(run.id, steps=total)
    rate, end = applied(client, run, 2)
    assert rate.step is not None
    assert end.step is not None
    assert min(rate.step, end.step) > saved
    os.kill(program(client, run), signal.SIGKILL)
    done = server.wait(run.id)
    assert done.status == "completed"
    first, second = done.phases[0].attempts
    assert (first.signal, second.resumed_from, second.last_step) == ("SIGKILL", saved, total)
    series = client.metrics(run.id, ["rate", "weight"]).series
    rates = {step: value for step, value, _ in next(each for each in series if each.name == "rate").points}
    assert sorted(rates) == list(range(total))
    assert {step for step, value in rates.items() if value == 0.5} == set(range(rate.step, total))
    weight = rate.step * 1.0 + (total - rate.step) * 0.5
    assert f"after the loop: weight {weight}" in server.logs(run.id)
    said = [(event.actor, event.text) for event in client.events(run.id) if event.kind == "steered"]
    assert len(said) == 2, "a replay is no new event"
    assert said[0][1] == f"rate was set to 0.5 at step {rate.step}, asked by {said[0][0]}"
    child = client.continue_run(run.id)
    assert [change.seq for change in child.phases[0].steering] == [1, 2]


def test_a_change_before_the_start_holds_from_the_first_step(
    server: ServerProcess, client: Client, programs: Path, tmp_path: Path
) -> None:
    first = {"name": "wait", "kind": "task", "command": 'until [ -e "$GO" ]; do sleep 0.01; done'}
    go = tmp_path / "go"
    train = {"name": "train", "command": ["python", "steered.py"], "needs": ["wait"]}
    run = server.submit({**first, "env": {"GO": str(go)}}, train, name="early", directory=programs)
    client.set_params(run.id, {"rate": 2.0}, phase="train")
    client.extend(run.id, steps=20, phase="train")
    go.touch()
    done = server.wait(run.id)
    assert done.status == "completed"
    assert "after the loop: weight 40.0" in server.logs(run.id)
    assert [change.step for change in done.phases[1].steering] == [0, 0]


@pytest.mark.parametrize("how", ["server killed", "server stopped"])
def test_a_change_is_not_forgotten_by_a_server_that_goes(
    server: ServerProcess, client: Client, programs: Path, how: str
) -> None:
    run = submit(server, programs)
    reached(client, run, 5)
    until(lambda: "rate" in phase_of(client, run).params, what="the parameter")
    client.set_params(run.id, {"rate": 0.5})
    server.kill() if how == "server killed" else server.stop()
    server.start()
    assert applied(server.client(), run, 1)[0].value == 0.5
