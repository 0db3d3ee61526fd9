"""`whistle drill`: every loss really happens to a real run, which survives it, and the report says what it cost."""

import sys

import pytest
from tests.cli.conftest import Whistle
from tests.cli.test_preempt import training

from whistlestop.cli.drill_report import report
from whistlestop.client import Client
from whistlestop.client.drilling import Outcome
from whistlestop.domain.errors import Forbidden, Refused
from whistlestop.testing.server import ServerProcess
from whistlestop.wire.api import RunView


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def test_what_can_not_be_rehearsed_is_wrong_usage(whistle: Whistle) -> None:
    result = whistle("drill", "1", "--only", "hots")
    assert result.code == 2
    assert "host" in result.err
    assert whistle("drill", "1", "--lasts", "x").code == 2


def test_the_report_names_what_was_wrong_and_what_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    run = RunView(id="r-1", number=7, name="x", project="p", status="running", created_at="2026-01-01T00:00:00Z")
    bad = Outcome("save", seconds=2.0, text="the save failed", wrong=["nobody was told that it failed"])
    poor = Outcome("program", seconds=3.0, redone=12, redone_s=0.5, text="it died", warnings=["retries is 0"])
    report(run, [bad, poor], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[1:3]] == ["WRONG", "fine"]
    assert "12 steps, 0.5 s" in lines[2]
    assert lines[4:] == [
        "a save fails: the save failed",
        "  ! nobody was told that it failed",
        "the program dies: it died",
        "  ! retries is 0",
        "In all 12 steps done again; the longest took 3.0 s.",
    ]


def test_the_report_is_whole_at_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = RunView(id="r-1", number=7, name="x", project="p", status="running", created_at="2026-01-01T00:00:00Z")
    report(run, [Outcome("preempt", seconds=123.4, redone=41, redone_s=1.9, text="x", wrong=["y"])], as_json=False)
    assert "…" not in capsys.readouterr().out


def test_a_run_survives_every_loss_and_the_report_tells_what_each_has_cost(
    served: Whistle, server: ServerProcess
) -> None:
    run = training(server, 5)
    assert "there is: train" in served("drill", run, "--phase", "trian", "--yes").err
    assert served("drill", run).code == 2, "without a terminal only --yes is a yes"
    result = served("drill", run, "--lasts", "1s", "--notice", "30s", "--yes", "--json")
    assert result.code == 0, result.out
    losses = {each["fault"]: each for each in result.json["losses"]}
    assert list(losses) == ["link", "storage", "save", "program", "host", "preempt"]
    assert not [each for each in losses.values() if each["wrong"]]
    for gentle in ("link", "storage", "save"):
        assert losses[gentle]["attempt"] == 1
        assert losses[gentle]["seconds"] >= 1.0
        assert losses[gentle]["steps_meanwhile"] > 0, "it trains on"
    attempts = [(losses[each]["attempt"], losses[each]["next_attempt"]) for each in ("program", "host", "preempt")]
    assert attempts == [(1, 2), (2, 3), (3, 4)]
    assert "retries is 0" in losses["program"]["warnings"][0]
    assert losses["preempt"]["redone"] <= 1
    with server.client() as client:
        phase = client.run(run).phases[0]
        assert [each.reason for each in phase.attempts] == ["signalled", "runner_lost", "preempted", None]
        kinds = [event.kind for event in client.events(run)]
        assert kinds.count("rehearsal_requested") == 5
        assert kinds.count("rehearsal") == 5
        assert "save_failed" in kinds


def test_only_who_submitted_it_or_an_administrator_rehearses_losses(server: ServerProcess) -> None:
    run = training(server, 1)
    with server.client() as admin:
        token = admin.create_token("bob", "member")
        assert token.token is not None
        with Client(server.url, token.token) as bob, pytest.raises(Forbidden, match="only they and administrators"):
            bob.rehearse(run, "program")
        admin.revoke_token(token.id)
        task = server.submit({"name": "t", "kind": "task", "command": [sys.executable, "-c", "input()"]}, name="t")
        with pytest.raises(Refused, match="no train phase"):
            admin.rehearse(str(task.number), "host")
