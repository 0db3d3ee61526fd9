"""`whistle stacks`: where a run is now, readably, and what is said where that can't be told."""

import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Whistle

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

TRAINS = """
import time, whistlestop
def compute():
    time.sleep(0.01)
with whistlestop.run() as run:
    for step in run.steps(total=100_000):
        compute()
"""


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def test_stacks_are_taken_when_somebody_asks_and_the_run_goes_on(
    served: Whistle, server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    run = server.submit({"name": "train", "command": [sys.executable, "train.py"]}, directory=tmp_path).id
    assert "Nobody has taken stacks" in served("stacks", run, "--last").err
    with server.client() as client:
        until(lambda: client.run(run).progress.step > 5, what="steps")
        result = served("stacks", run)
        assert result.code == 0
        assert "rank 0 at step " in result.out
        assert "  thread MainThread\n    compute  (train.py:4)\n    <module>  (train.py:7)\n" in result.out
        (event,) = served("stacks", run, "--json").json
        assert event["data"]["stacks"][0]["frames"][0] == "train.py:4 compute"
        assert served("stacks", run, "--last", "--json").json == [event]
        assert "has no phase other" in served("stacks", run, "--phase", "other").err
        step = client.run(run).progress.step
        until(lambda: client.run(run).progress.step > step, what="more steps")
        assert server.events(run).count("stacks_requested") == 2
        client.pause(run)
        until(lambda: client.run(run).status == "waiting", what="the pause")
        refused = served("stacks", run)
        assert (refused.code, "does not run now" in refused.err) == (1, True)
