"""The server may go and come back: runs go on, are found again, and none runs twice."""

import os
import signal
import sys
from pathlib import Path

import pytest

from whistlestop.client import Client
from whistlestop.testing.restart_drill import drill
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.watchers import alive_with, runners_of


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    """Each test starts it again, and it has lost nothing by that."""
    return shared_server


def train(steps: int = 100_000) -> dict[str, object]:
    return {"name": "train", "command": [sys.executable, "train.py"], "env": {"STEPS": str(steps)}}


def test_sigterm_ends_the_server_in_good_order_and_the_run_goes_on(server: ServerProcess, programs: Path) -> None:
    run = server.submit(train(400), directory=programs)
    until(lambda: server.client().run(run.id).progress.step > 5, what="some steps")
    assert server.stop() == 0
    assert not (server.data / "server.json").exists()
    assert alive_with(f"WHISTLE_RUN={run.id}"), "the program ended with the server"
    until(lambda: not alive_with(f"WHISTLE_PHASE=train\0WHISTLE_RUN={run.id}"), within=60, what="the program to end")
    server.start()
    ended = server.wait(run.id)
    assert ended.status == "completed"
    assert len(ended.phases[0].attempts) == 1
    points = server.client().metrics(run.id, ["loss"]).series[0].points
    assert [step for step, _, _ in points] == list(range(400))


def test_an_open_stream_does_not_hold_the_servers_end_up(server: ServerProcess) -> None:
    run = server.submit({"name": "t", "kind": "task", "command": ["sleep", "600"]})
    with Client(server.url, server.token) as client:
        stream = client.stream(run.id, give_up_after=0.1)
        next(stream)
        assert server.stop() == 0
    server.start()


def test_a_request_that_was_answered_is_carried_out_after_a_crash(server: ServerProcess, programs: Path) -> None:
    run = server.submit(train(), directory=programs)
    until(lambda: server.client().run(run.id).progress.step > 5, what="some steps")
    server.client().kill(run.id)
    server.kill()
    server.start()
    assert server.wait(run.id).status == "killed"
    assert not alive_with(f"WHISTLE_RUN={run.id}")


def test_a_runner_that_dies_is_noticed_and_the_run_recovers(server: ServerProcess, programs: Path) -> None:
    phase = {**train(400), "checkpoint": {"every": "10 steps"}}
    run = server.submit(phase, directory=programs)
    client = server.client()
    until(lambda: client.checkpoints(run.id), what="a checkpoint")
    attempt = client.run(run.id).phases[0].attempts[0]
    (runner,) = runners_of(attempt.id)
    os.kill(runner, signal.SIGKILL)
    until(lambda: len(client.run(run.id).phases[0].attempts) == 2, what="the second attempt")
    lost = client.run(run.id).phases[0].attempts[0]
    assert (lost.status, lost.reason) == ("lost", "runner_lost")
    assert not alive_with(f"WHISTLE_ATTEMPT={attempt.id}")
    client.stop(run.id)
    ended = server.wait(run.id)
    assert ended.status == "completed"
    points = client.metrics(run.id, ["weight"]).series[0].points
    assert [(step, value) for step, value, _ in points] == [(step, step + 1.0) for step in range(len(points))]
    assert sum(item.credits for item in ended.phases[0].attempts) == ended.credits.used


def test_a_program_that_is_killed_from_outside_is_told_apart_and_retried(server: ServerProcess, programs: Path) -> None:
    run = server.submit({**train(), "retries": 1}, directory=programs)
    client = server.client()
    for number in (1, 2):
        until(lambda n=number: len(client.run(run.id).phases[0].attempts) == n, what="the attempt")  # type: ignore[misc]
        until(lambda: client.run(run.id).progress.stage == "training", what="training")
        attempt = client.run(run.id).phases[0].attempts[-1]
        for pid, what in alive_with(f"WHISTLE_ATTEMPT={attempt.id}").items():
            if "train.py" in what:
                os.kill(pid, signal.SIGKILL)
    ended = server.wait(run.id)
    assert ended.status == "failed"
    assert [attempt.reason for attempt in ended.phases[0].attempts] == ["signalled", "signalled"]
    assert ended.phases[0].attempts[0].signal == "SIGKILL"


def test_runner_and_program_killed_together_are_one_loss(server: ServerProcess, programs: Path) -> None:
    run = server.submit(train(), directory=programs)
    client = server.client()
    until(lambda: client.run(run.id).progress.step > 5, what="some steps")
    attempt = client.run(run.id).phases[0].attempts[0]
    for pid in (*runners_of(attempt.id), *alive_with(f"WHISTLE_ATTEMPT={attempt.id}")):
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(client.run(run.id).phases[0].attempts) == 2, what="the second attempt")
    assert client.run(run.id).phases[0].attempts[0].reason == "runner_lost"


def test_the_server_is_killed_again_and_again_and_nothing_is_lost_or_doubled(data: Path) -> None:
    with ServerProcess(data, slots=2) as server:
        report = drill(server, 3, seed=11)
    assert report.points > 100
