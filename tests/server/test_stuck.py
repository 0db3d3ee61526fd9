"""A hang on real runs: an event with the place where, stacks on request, and the rank on another node that it is."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from whistlestop.client import Client
from whistlestop.domain.errors import RunEnded
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import EventView

HANGS = """
import threading, time, whistlestop
lock = threading.Lock()
def take_twice():
    lock.acquire()
    lock.acquire()
with whistlestop.run() as run:
    for step in run.steps(total=100_000):
        time.sleep(0.01)
        if step == 30: take_twice()
"""
TRAINS = """
import time, whistlestop
def compute():
    time.sleep(0.01)
with whistlestop.run() as run:
    for step in run.steps(total=100_000):
        compute()
"""
# Two nodes of a rank each: the second does not come back from its loader, the first waits for it.
GANG = """
import os, socket, time, whistlestop
rank, place = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
def connect():
    if rank == 0:
        with socket.create_server(place) as server:
            return server.accept()[0]
    while True:
        try:
            return socket.create_connection(place)
        except OSError:
            time.sleep(0.05)
def all_reduce(line):
    line.sendall(b"x")
    assert line.recv(1)
def load(step):
    time.sleep(1e6 if rank == 1 and step == 30 else 0.01)
line = connect()
with whistlestop.run() as run:
    for step in run.steps(total=100_000):
        load(step)
        all_reduce(line)
"""


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def submit(server: ServerProcess, directory: Path, code: str, floor: float = 0.6, **phase: Any) -> str:
    (directory / "train.py").write_text(code)
    made = {"name": "train", "command": [sys.executable, "train.py"], "env": {"WHISTLE_STUCK_AFTER": str(floor)}}
    return server.submit({**made, **phase}, directory=directory).id


def told(client: Client, run: str, kind: str = "stuck", *, count: int = 1) -> list[EventView]:
    def found() -> list[EventView]:
        events = [event for event in client.events(run, limit=5000) if event.kind == kind]
        return events if len(events) >= count else []

    return until(found, within=120, what=f"{kind} of {run}")


def test_a_deadlock_is_an_event_of_the_run_with_its_stack(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, HANGS)
        (event,) = told(client, run)
        assert (event.scope, event.phase, event.attempt, event.actor) == ("instance", "train", 1, "runner")
        assert event.text.endswith("it is in take_twice (train.py:6).")
        assert event.data["stacks"][0]["frames"][0] == "train.py:6 take_twice"
        assert event.data["expected_s"] < event.data["silent_s"] < event.data["expected_s"] + 30
        assert len(json.dumps(event.data)) < 64 << 10
        assert any(line.startswith("No step for ") for line in server.logs(run))
        client.kill(run, note="it hangs")
        until(lambda: client.run(run).status == "killed", what="its end")
        with pytest.raises(RunEnded, match="can't be looked into any more"):
            client.stacks(run)


def test_the_rank_that_hangs_is_shown_also_when_it_is_on_another_node(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, GANG, nodes=2, slots=1, ranks=1)
        (event,) = told(client, run)
        assert event.data["node"] == 0
        assert event.text.endswith("it waits for others in all_reduce (train.py:15).")
        (other,) = told(client, run, "stacks")  # asked for by the server, without anybody's doing
        assert (other.data["node"], other.data["ranks"]) == (1, {"1": 30})
        assert "rank 1 on " in other.text
        assert other.text.endswith(" is in load (train.py:17).")
        assert sorted(each.data["node"] for each in client.stacks(run)) == [0, 1]


def test_it_goes_on_after_it_was_stopped_and_that_is_told(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        run = submit(server, tmp_path, TRAINS)
        until(lambda: client.run(run).progress.step > 20, what="steps")
        (started,) = told(client, run, "program_started")
        os.killpg(started.data["pid"], signal.SIGSTOP)
        (event,) = told(client, run)
        assert " it is stopped in compute (train.py:4)." in event.text
        os.killpg(started.data["pid"], signal.SIGCONT)
        (again,) = told(client, run, "going_again")
        assert again.data["silent_s"] >= event.data["silent_s"]
