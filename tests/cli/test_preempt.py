"""`whistle preempt`: a run loses its capacity on request, comes back by itself, and what it cost is said."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Whistle

from whistlestop.cli.preempting import recovery_line, stakes
from whistlestop.client.recovery import Recovery
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.watchers import PROGRAMS
from whistlestop.wire.api import AtRiskView, AttemptView, PhaseView, RunView

TASK = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def training(server: ServerProcess, step: int, **env: str) -> str:
    phase = {
        "name": "train",
        "command": [sys.executable, "loop.py"],
        "env": {"PACE": "0.02", **env},
        "checkpoint": {"every": "1000000 steps"},
    }
    run = server.submit(phase, name="trains", directory=PROGRAMS)
    with server.client() as client:
        until(lambda: client.run(run.id).progress.step >= step, within=60, what="the training")
    return str(run.number)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("preempt", "1", "--notice", "soon", "--yes"), "length of time"),
        (("preempt", "1", "--notice", "2h", "--yes"), "an hour at most"),
        (("preempt",), "RUN|HOST"),
    ],
)
def test_what_is_not_understood_is_wrong_usage(whistle: Whistle, words: tuple[str, ...], says: str) -> None:
    result = whistle(*words)
    assert result.code == 2
    assert says in result.err


def test_before_it_is_done_the_question_says_what_it_costs() -> None:
    run = RunView(id="r-1", number=7, name="x", project="p", status="running", created_at="2026-01-01T00:00:00Z")
    attempt = AttemptView(id="a", number=1, status="started", pool="spot", slots=[0], started_at=run.created_at)
    train, task = (PhaseView(name=kind, kind=kind, status="running", needs=[]) for kind in ("train", "task"))
    train.at_risk = AtRiskView(steps=41, seconds=130.0, credits=0.1, step=400, since=run.created_at)
    (text,) = stakes(run, train, attempt, 30.0)
    assert "#7 (x), phase train on spot" in text
    assert "it has 30s to save" in text
    assert "41 steps, 2m10s (since the checkpoint at step 400)" in text
    assert stakes(run, train, attempt, 0.0) == [
        "  #7 (x), phase train on spot: done again: 41 steps, 2m10s (since the checkpoint at step 400)"
    ]
    assert "starts again from its beginning" in stakes(run, task, attempt, 30.0)[0]


def test_afterwards_a_line_says_what_it_has_cost() -> None:
    run = RunView(id="r-1", number=7, name="x", project="p", status="running", created_at="2026-01-01T00:00:00Z")
    lost = Recovery("train", 1, "a", "killed by the host", status="failed")
    assert recovery_line(run, lost) == "Run #7 (x) does not train again: it is failed (killed by the host)."
    back = replace(lost, recovered=True, next_attempt=2, next_pool="b", resumed_from=40, seconds=2.14)
    assert recovery_line(run, back) == (
        "Run #7 (x) trains again after 2.1 s, in pool b, from step 40: 0 steps done again."
    )
    again = replace(back, resumed_from=None, redone=1, redone_s=0.2)
    assert "from the start: 1 step done again (0.2 s)." in recovery_line(run, again)
    assert "was done before it had to leave" in recovery_line(run, replace(lost, recovered=True))


def test_a_run_that_is_preempted_saves_leaves_and_trains_again(served: Whistle, server: ServerProcess) -> None:
    run = training(server, 5)
    refused = served("preempt", run)
    assert refused.code == 2, "without a terminal only --yes is a yes"
    assert "--yes" in refused.err
    result = served("preempt", run, "--yes", "--wait", "--note", "to see it")
    assert result.code == 0
    assert f"Run #{run} (trains) has 30 s to save and leave, and goes back to the queue." in result.out
    assert "trains again after" in result.out
    assert "0 steps done again" in result.out
    said = served("events", run).out
    assert "attempt 1 has to leave pool local" in said
    assert "preempted by local: to see it" in said
    assert "recovering" in said
    assert "preempted" in served("show", run).out


def test_without_notice_the_work_since_the_last_checkpoint_is_done_again(
    served: Whistle, server: ServerProcess
) -> None:
    run = training(server, 5)
    done = served("preempt", run, "--notice", "0", "--yes", "--wait", "--json").json
    assert done["changed"]
    (recovery,) = done["recoveries"]
    assert recovery["recovered"]
    assert (recovery["attempt"], recovery["next_attempt"]) == (1, 2)
    assert recovery["last_step"] >= 5
    # A program that is quicker than its end may have saved all the same.
    assert recovery["redone"] == recovery["last_step"] - (recovery["resumed_from"] or 0)
    assert recovery["seconds"] > recovery["redone_s"]


def test_a_host_is_preempted_with_all_its_runs_and_a_task_starts_over(served: Whistle) -> None:
    Path("task.py").write_text(TASK)
    Path("whistle.yaml").write_text(f"name: task\nkind: task\ncommand: {sys.executable} task.py\n")
    number = str(served("submit", "--json").json["number"])
    until(lambda: served("logs", number, "--grep", "up").out, within=60, what="the task to be up")
    (attempt,) = shown(served, number)
    assert "nobody" in served("preempt", "local/nobody", "--yes").err
    assert "no run nobody" in served("preempt", "nobody", "--yes").err
    result = served("preempt", attempt["host"], "--notice", "1s", "--yes", "--wait")
    assert result.code == 0
    assert f"Run #{number} (task) has 1 s to save and leave" in result.out
    assert "task main runs again after" in result.out
    assert [each["status"] for each in shown(served, number)] == ["preempted", "started"]


def shown(served: Whistle, run: str) -> list[dict[str, Any]]:
    return list(served("show", run, "--json").json["phases"][0]["attempts"])
