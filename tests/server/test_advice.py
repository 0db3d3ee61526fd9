"""Advice over HTTP, on real trainings: what is advised, why, and what each choice costs."""

import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from whistlestop.client import Client
from whistlestop.domain.errors import NotFound
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.advice import AdviceView
from whistlestop.wire.api import RunView

# Gradient descent on one weight, with the noise of small batches; it can go wrong at a step, or fail.
TRAINS = """
import os, random, time, whistlestop
dice, weight = random.Random(1), 5.0
rate = float(os.environ.get("RATE", "0.0001"))  # so slow that it still improves when a test is done with it
breaks, fails = int(os.environ.get("NAN_AT", "0")), int(os.environ.get("FAIL_AT", "0"))
with whistlestop.run() as run:
    for step in run.steps(total=int(os.environ["STEPS"])):
        if int(step) == fails > 0:
            open("/nowhere/data.csv")
        weight -= rate * 2 * (weight + dice.gauss(0, 0.3))
        run.log(loss=float("nan") if int(step) >= breaks > 0 else weight ** 2 + 0.2)
        if int(step) % 50 == 49 and not int(step) >= breaks > 0:
            run.save()
        time.sleep(0.004)
"""


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def train(server: ServerProcess, directory: Path, name: str = "wise", **env: object) -> RunView:
    (directory / "program.py").write_text(TRAINS)
    given = {"STEPS": "100000"} | {key: str(value) for key, value in env.items()}
    phase = {"name": "train", "command": [sys.executable, "program.py"], "env": given}
    return server.submit(phase, {"name": "report", "kind": "task", "command": "true"}, name=name, directory=directory)


def asked(client: Client, run: RunView, ready: Any) -> AdviceView:
    return until(lambda: found if ready(found := client.advice(run.id)) else None, within=60, what="the advice")  # type: ignore[return-value]


def test_a_healthy_run_is_let_go_on_with_its_price_and_what_it_will_bring(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    run = train(server, tmp_path, STEPS=4000)
    advice = asked(client, run, lambda each: each.gain is not None and (each.fraction or 0) > 0.06)
    assert (advice.verdict, advice.findings, advice.phase) == ("wait", [], "train")
    assert advice.seconds is not None
    assert 0 < advice.seconds.low < advice.seconds.likely < advice.seconds.high
    assert advice.credits is not None
    assert advice.saves == advice.credits.likely > 0
    assert advice.gain is not None
    assert (advice.gain.metric, advice.gain.aim) == ("loss", "min")
    assert advice.gain.ahead[-1].step == 4000
    assert advice.choices[0].verb == "wait"
    by_verb = {choice.verb: choice for choice in advice.choices}
    assert by_verb["stop"].gets.endswith(", and the later phases go on")
    assert by_verb["kill"].saves == advice.saves
    shown = client.run(run.id)
    assert shown.eta_s is not None
    assert shown.eta_s == pytest.approx(advice.seconds.likely, rel=0.5), "the list and the advice say the same"


def test_a_loss_that_is_no_number_is_to_be_fixed_and_continued_from_the_last_good_checkpoint(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    run = train(server, tmp_path, NAN_AT=260)
    advice = asked(client, run, lambda each: each.goes_back_to is not None and each.choices[0].lost_steps > 20)
    assert (advice.verdict, advice.findings[0].cause) == ("fix_and_continue", "non_finite")
    assert advice.findings[0].weight == "fatal"
    assert "since step 260" in advice.reason
    assert advice.goes_back_to is not None
    assert advice.goes_back_to <= 260
    assert advice.choices[0].verb == "continue"
    assert client.run(run.id).requested is None, "it never acts"


def test_it_says_when_it_is_too_early_and_when_nothing_is_paid(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    run = train(server, tmp_path)
    advice = asked(client, run, lambda each: each.status == "running" and each.seconds is not None)
    assert (advice.verdict, advice.sure) == ("wait", False)
    assert advice.reason.startswith("Too early to tell")
    server.client().pause(run.id)
    server.wait(run.id, "waiting")
    paused = client.advice(run.id)
    assert paused.reason == "It holds no slots and costs nothing as it is."
    assert paused.choices == []
    with pytest.raises(NotFound, match="has no phase tarin"):
        client.advice(run.id, phase="tarin")
    report = client.advice(run.id, phase="report")
    assert (report.phase, report.gain) == ("report", None)


def test_one_that_has_failed_is_continued_and_one_that_is_done_is_left_alone(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    failed = train(server, tmp_path, FAIL_AT=160)
    server.wait(failed.id, "failed")
    advice = asked(client, failed, lambda each: each.goes_back_to is not None)
    assert advice.verdict == "fix_and_continue"
    assert advice.goes_back_to in (50, 100, 150)
    done = train(server, tmp_path, name="short", STEPS=20)
    server.wait(done.id, "completed")
    advice = client.advice(done.id)
    assert (advice.verdict, advice.choices, advice.seconds) == ("nothing", [], None)


def test_a_viewer_may_ask_and_a_stranger_may_not(server: ServerProcess, client: Client, tmp_path: Path) -> None:
    run = train(server, tmp_path)
    address = f"{server.url}/api/v1/runs/{run.id}/advice"
    assert httpx2.get(address).status_code == 401
    answer = httpx2.get(address, headers={"Authorization": f"Bearer {server.token}"}, params={"max_age": 5})
    assert answer.json()["run"] == run.id
    assert httpx2.get(f"{server.url}/api/v1/runs/none/advice", headers=answer.request.headers).status_code == 404
