"""Looking at runs: names that do not exist, summaries, filters of events, and the list that stays."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Whistle, own_process
from tests.cli.watching_kit import TRAINING

from whistlestop.cli.output import show
from whistlestop.cli.run_view import _attempt_steps, _attempt_why, run_view
from whistlestop.cli.runs_table import _why
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import AttemptView, FindingView, PhaseView, ProgressView, RunView

ENDING = TRAINING.replace("100_000", "300").replace("5_000", "100")


def test_what_a_run_does_not_have_is_said_with_what_it_has(served: Whistle) -> None:
    Path("train.py").write_text(ENDING)
    assert served("run", "--name", "looked", "--", sys.executable, "train.py").code == 0
    phase = served("logs", "looked", "--phase", "nope")
    assert (phase.code, phase.out) == (1, "")
    assert "has no phase 'nope'" in phase.err
    assert "there is: main" in phase.err
    assert served("logs", "looked", "--attempt", "7", "--json").error["code"] == "not_found"
    metric = served("metrics", "looked", "los")
    assert (metric.code, metric.out) == (1, "")
    assert 'did you mean "loss"?' in metric.err
    assert "val_loss" in metric.err
    assert served("metrics", "looked", "--phase", "nope").code == 1
    assert served("metrics", "looked", "loss").code == 0
    shown = served("show", "looked").out
    assert "best [bold]" in shown
    assert "0 → 300" in shown
    kinds = [event["kind"] for event in served("events", "looked", "--kind", "evaluation,checkpoint", "--json").json]
    assert set(kinds) == {"evaluation", "checkpoint"}
    last = served("events", "looked", "--tail", "2").out.splitlines()
    assert len(last) == 2
    assert "run_completed" in last[1]
    assert served("events", "looked", "--kind", "evaluation", "-n", "1", "-f").out.count("\n") == 1
    none = served("events", "looked", "--kind", "nope")
    assert (none.code, none.out) == (0, "")
    assert "evaluation" in none.err
    run = served("run", "--json", "--", "sh", "-c", "echo O''OM; seq 50000").json
    lost = served("logs", run["id"], "--grep", "OOM", "-n", "5")
    assert (lost.code, lost.out) == (0, "")
    assert "Of the 50,000 newest lines 0 match; older ones were not looked at" in lost.err
    whole = served("logs", run["id"], "--grep", "OOM")
    assert (whole.out.count("OOM"), whole.err) == (1, "")


def test_an_attempt_that_starts_has_not_gone_back() -> None:
    given = {
        "id": "a",
        "number": 2,
        "status": "started",
        "pool": "local",
        "slots": [0],
        "started_at": "2026-01-01T00:00:00Z",
    }
    assert _attempt_steps(AttemptView(**given, resumed_from=3566, last_step=0)) == "3,566 → …"  # type: ignore[arg-type]
    assert _attempt_steps(AttemptView(**given, resumed_from=3566, last_step=3600)) == "3,566 → 3,600"  # type: ignore[arg-type]
    assert _attempt_steps(AttemptView(**{**given, "status": "lost"}, resumed_from=3566)) == "3,566"  # type: ignore[arg-type]
    assert _attempt_steps(AttemptView(**given)) == ""  # type: ignore[arg-type]


def test_an_attempt_says_why_it_is_where_it_is_and_when_it_has_to_leave() -> None:
    attempt = AttemptView(
        id="a",
        number=1,
        status="started",
        pool="spot",
        slots=[0],
        started_at="2026-01-01T00:00:00Z",
        why_here="the cheapest",
        leaves_at="2026-01-01T00:00:30Z",
        leaves_why="preempted by mia",
    )
    said = _attempt_why(attempt)
    assert said.startswith("has to leave by ")
    assert said.endswith(":30 (preempted by mia); placed on spot: the cheapest")
    assert _attempt_why(attempt.model_copy(update={"reachable": False})).startswith("not heard of for a while; has to")


def test_a_run_of_several_attempts_is_whole_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    at = "2026-01-01T00:00:00Z"
    place = {"pool": "spot-a", "host": "node-17", "slots": [0], "started_at": at}
    attempts = [
        AttemptView(id="a", number=1, status="preempted", last_step=11_930, ended_at=at, credits=1.25, **place),  # type: ignore[arg-type]
        AttemptView(id="b", number=2, status="started", resumed_from=11_930, last_step=12_138, **place),  # type: ignore[arg-type]
    ]
    done = ProgressView(step=12_138, total=40_000, epoch=12, fraction=0.3, stage="training")
    phase = PhaseView(name="train", kind="train", status="running", needs=[], attempts=attempts, progress=done)
    run = RunView(
        id="r-1", number=7, name="x", project="p", status="running", created_at=at, phases=[phase], progress=done
    )
    show(run_view(run))
    said = capsys.readouterr().out
    assert "…" not in said
    for words in ("12,138/40,000", "↯ preempted", "0 → 11,930", "11,930 → 12,138", "spot-a", "node-17"):
        assert words in said


def test_a_list_that_stays_tells_every_change(served: Whistle, server: ServerProcess) -> None:
    refused = served("ls", "-w")
    assert refused.code == 2
    assert "--json" in refused.err
    lines = own_process(server.data, Path(), "ls", "-w", "--json", "--search", "live", stdout=subprocess.PIPE)
    mine, theirs = pty.openpty()
    table = own_process(
        server.data, Path(), "ls", "-w", stdin=theirs, stdout=theirs, stderr=theirs, env_more={"TERM": "xterm"}
    )
    os.close(theirs)
    said = b""

    def reads(word: str) -> bool:
        nonlocal said
        said += os.read(mine, 65536)
        return word.encode() in said

    until(lambda: reads("Ctrl-C leaves"), within=60, what="the table")
    assert served("run", "--name", "live one", "--", "true").code == 0
    assert served("run", "--name", "other", "--", "true").code == 0
    until(lambda: reads("live one") and reads("completed"), within=60, what="the run in the table")
    assert lines.stdout is not None
    told = []
    while not told or told[-1]["status"] != "completed":
        told.append(json.loads(lines.stdout.readline()))
    assert {run["name"] for run in told} == {"live one"}
    assert served("delete", "live one", "--yes").code == 0
    gone = json.loads(lines.stdout.readline())
    while "deleted" not in gone:
        gone = json.loads(lines.stdout.readline())
    assert gone == {"id": told[0]["id"], "deleted": True}
    for process in (lines, table):
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    lines.stdout.close()
    os.close(mine)


def test_no_other_command_loads_what_the_page_needs() -> None:
    code = (
        "import sys; from whistlestop.cli import ls, show, watch, logs, events, metrics, main; "
        "from whistlestop.client.client import Client; sys.exit('textual' in sys.modules or 'rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_was_found_stands_below_its_phase_and_a_failed_runs_cause_before_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = FindingView(
        cause="device_memory", weight="fatal", confidence=0.98, says="the accelerator ran out of memory at step 40",
        do="Use a smaller batch.", since="2026-01-01T00:00:00Z",
    )  # fmt: skip
    less_sure = found.model_copy(
        update={"cause": "slow_rank", "weight": "bad", "confidence": 0.7, "says": "slow", "do": ""}
    )
    run = RunView(
        id="r", number=1, name="x", project="p", status="failed", reason="phase main: exit code 1",
        cause="the accelerator ran out of memory", created_at="2026-01-01T00:00:00Z",
        phases=[PhaseView(name="main", kind="train", status="failed", needs=[], findings=[found, less_sure])],
    )  # fmt: skip
    show(run_view(run))
    page = capsys.readouterr().out
    assert "main: the accelerator ran out of memory at step 40\n  Use a smaller batch.\n" in page
    assert "main: slow (70% sure)" in page
    assert _why(run) == "the accelerator ran out of memory; phase main: exit code 1"
    assert _why(run.model_copy(update={"reason": f"phase main: {run.cause}"})) == f"phase main: {run.cause}"
