"""Kill or wait, in a real browser on real training: the panel of the run page, and its short form in the dialog."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect
from tests.server.test_advice import TRAINS

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import RunView

Check = Callable[[Page, str], None]


def train(server: ServerProcess, directory: Path, name: str, **env: object) -> RunView:
    (directory / "program.py").write_text(TRAINS)
    given = {"STEPS": "100000"} | {key: str(value) for key, value in env.items()}
    phase = {"name": "train", "command": [sys.executable, "program.py"], "env": given}
    return server.submit(phase, name=name, project="wise", directory=directory)


def test_a_healthy_run_shows_what_waiting_costs_and_brings_and_the_dialog_says_it_in_short(
    web_server: ServerProcess, page_of: Any, check_page: Check, tmp_path: Path
) -> None:
    run = train(web_server, tmp_path, "steady", STEPS=8000)
    page = page_of(web_server)
    with web_server.client() as client:
        until(lambda: client.advice(run.id).gain is not None, within=60, what="something to be foretold")
    page.goto(f"/runs/{run.id}")
    panel = page.locator(".advice")
    expect(panel).to_have_attribute("data-verdict", "wait")
    expect(panel).to_contain_text("Advice: Wait")
    expect(panel.locator("[data-choice=kill]")).to_contain_text("checkpoint at step")
    curve = panel.get_by_role("img")
    expect(curve).to_be_visible()
    assert "at the end" in (curve.get_attribute("aria-label") or "")
    expect(panel.locator("tbody tr").first).to_have_attribute("data-choice", "wait")
    check_page(page, "advice-wait")
    page.goto("/projects/wise")
    page.get_by_role("button", name=f"Actions of run {run.number}, steady").click()
    page.get_by_role("menuitem", name="Kill run…").click()
    short = page.get_by_role("dialog").locator(".short-advice")
    expect(short).to_contain_text("Advice: Wait")
    expect(short).to_contain_text("Ending it now saves about")
    check_page(page, "advice-dialog")
    with web_server.client() as client:
        client.kill(run.id)
    web_server.wait(run.id)


def test_a_loss_that_turns_nan_changes_the_panel_by_itself(
    web_server: ServerProcess, page_of: Any, check_page: Check, tmp_path: Path
) -> None:
    run = train(web_server, tmp_path, "broken", STEPS=4000, NAN_AT=300)
    page = page_of(web_server)
    page.goto(f"/runs/{run.id}")
    panel = page.locator(".advice[data-verdict=fix_and_continue]")
    expect(panel).to_contain_text("since step 300")
    found = panel.locator("[data-cause=non_finite]")
    expect(found).to_contain_text("a metric is no longer a number")
    expect(panel.locator("tbody tr").first).to_have_attribute("data-choice", "continue")
    check_page(page, "advice-fix")
    with web_server.client() as client:
        client.kill(run.id)
        web_server.wait(run.id)
        until(lambda: client.run(run.id).status == "killed", within=60, what="its end")
    expect(page.locator(".advice")).to_contain_text("Fix, and continue")


def test_a_run_that_is_done_has_nothing_to_be_advised_on(
    web_server: ServerProcess, page_of: Any, tmp_path: Path
) -> None:
    run = train(web_server, tmp_path, "done", STEPS=30, RATE=0.02)
    web_server.wait(run.id, "completed")
    page = page_of(web_server)
    with page.expect_response(lambda answer: "/advice?" in answer.url) as told:
        page.goto(f"/runs/{run.id}")
    assert told.value.json()["verdict"] == "nothing"
    expect(page.get_by_role("heading", name="Completed")).to_be_visible()
    expect(page.locator(".advice")).to_have_count(0)
