"""The whole story of a run in a real browser: real training, two people and a viewer, a server that dies on the way."""

import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from whistlestop.testing.server import ServerProcess

PIPELINE = Path(__file__).parents[2] / "examples" / "pipeline"
SLOW = 60_000  # milliseconds: a busy machine starts programs in its own time
SPEC = """\
name: synthetic-data
project: story
phases:
  - name: tabular
    kind: train
    command: python tabular.py
    env: {STEPS: "5000000"}
    checkpoint: {every: [2000 steps], keep: 2}
  - name: text
    kind: train
    command: python text.py
    env: {STEPS: "5000000"}
  - name: report
    kind: task
    command: python -c "print('both models are there')"
    needs: [tabular, text]
"""


def test_the_whole_story_of_a_run(
    start_server: Callable[..., ServerProcess], data: Path, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    code = Path(shutil.copytree(PIPELINE, data / "code"))
    server = start_server(slots=1, extra=("--port", str(free_port())))
    with server.client() as client:
        client.save_workflow("synthetic", SPEC)
        mia = client.create_token("mia", "member").token
        tim = client.create_token("tim", "viewer").token
        link = client.sign_in_link()
    first = server.submit({"name": "a", "kind": "task", "command": "true"}, project="story", directory=code)
    server.wait(first.id)

    # Sign in by the link that `whistle up` prints, and start a run from a workflow.
    page = page_of(server, "")
    page.goto(link)
    page.get_by_role("link", name="story").click()
    page.get_by_role("link", name=re.compile("Workflows")).click()
    page.locator("[data-workflow=synthetic]").get_by_role("link", name="New run").click()
    expect(page.locator(".verdict")).to_have_text("valid")
    page.get_by_label("Name", exact=True).fill("the-story")
    expect(page.locator("section[aria-label=YAML] textarea").first).to_have_value(re.compile("name: the-story"))
    page.get_by_label(re.compile("[Cc]ode")).select_option(first.id)  # where the programs are
    page.get_by_role("button", name="Submit run").click()
    page.wait_for_url(re.compile("/runs/"))
    run = page.url.rpartition("/")[2]

    # Watch it train; a second person sees the same, a viewer sees it too and can do nothing.
    step = page.locator("[data-phase=tabular]").get_by_text(re.compile(r"/ 5,000,000"))
    expect(step).to_be_visible(timeout=SLOW)
    seen = step.inner_text()
    expect(step).not_to_have_text(seen, timeout=SLOW)
    other = page_of(server, mia)
    other.goto(f"/runs/{run}")
    viewer = page_of(server, tim)
    viewer.goto(f"/runs/{run}")
    expect(viewer.locator("[data-phase=tabular]").get_by_text("running")).to_be_visible(timeout=SLOW)
    verbs = re.compile("Stop phase|Kill|Pause")
    expect(other.get_by_role("button", name=verbs)).to_have_count(4, timeout=SLOW)  # each of the two phases has its own
    expect(viewer.get_by_role("button", name=verbs)).to_have_count(0)
    page.get_by_role("link", name="Charts").click()
    expect(page.locator(".uplot").first).to_be_visible(timeout=SLOW)
    page.get_by_role("link", name="Overview").click()

    # The second phase is told to stop before it has begun, by the other person; then the first one is stopped.
    fast_forward(other, "text")
    expect(page.locator("[data-phase=text]")).to_contain_text("will stop as soon as it begins", timeout=SLOW)
    fast_forward(page, "tabular")
    expect(other.locator("[data-phase=tabular]")).to_contain_text("manually stopped", timeout=SLOW)
    expect(page.locator(".run-title [data-status=completed]")).to_be_visible(timeout=SLOW)
    expect(page.locator("[data-phase=text]")).to_contain_text("manually stopped")
    page.get_by_role("link", name="Events").click()
    expect(page.get_by_text("mia").first).to_be_visible()
    viewer.get_by_role("link", name="Logs").click()
    expect(viewer.get_by_text("both models are there", exact=True)).to_be_visible(timeout=SLOW)

    # A run of the same code: paused, resumed, its server killed and back, then killed with a note.
    second = server.submit(train("long"), name="paused", project="story", directory=code)
    page.goto(f"/runs/{second.id}")
    reaches(page, "long", 200)
    page.get_by_role("button", name="Pause").click()
    confirm(page, "Pause")
    expect(page.locator(".run-title [data-status=waiting]")).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name="Resume").click()
    confirm(page, "Resume")
    expect(page.locator(".run-title [data-status=running]")).to_be_visible(timeout=SLOW)
    server.kill()
    expect(page.locator("[data-connection=lost]")).to_be_visible(timeout=SLOW)
    server.start()
    expect(page.locator("[data-connection=live]")).to_be_visible(timeout=SLOW)
    for each in (page, other, viewer):
        page_of.errors(each)  # the browser tells of refused connections itself
    reached = steps_of(page, "long")
    reaches(page, "long", reached + 500)
    page.get_by_role("button", name="Kill").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(
        "This action will permanently kill paused. Are you sure you want to kill this training?"
    )
    check_page(page, "story-kill")
    dialog.get_by_label("Note (optional)").fill("loss <b>stuck</b>")
    confirm(page, "Confirm kill")
    expect(page.locator(".run-title [data-status=killed]")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("loss <b>stuck</b>").first).to_be_visible()

    # It is continued from its checkpoint as a new run, which names its parent.
    page.get_by_role("button", name="Continue").click()
    confirm(page, re.compile("Continue from step"))
    expect(page.get_by_role("link", name=f"run #{second.number}")).to_be_visible(timeout=SLOW)
    expect(page).not_to_have_url(re.compile(second.id))
    child = page.url.rpartition("/")[2]
    server.wait(child, "running")

    # Many at once: what runs and what waits is killed from the list, found by its note, and deleted.
    server.submit(train("long"), name="waiting", project="story", directory=code)
    page.goto("/projects/story?status=running&status=queued")
    expect(page.locator("tr[data-run]")).to_have_count(2, timeout=SLOW)
    page.get_by_label("Select all runs of this page").check()
    page.get_by_role("button", name="Kill…").click()
    confirm(page, "Kill 2 runs")
    page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    page.goto("/projects/story?q=stuck")
    row = page.locator(f"tr[data-run='{second.id}']")
    expect(page.locator("tr[data-run]")).to_have_count(1)
    check_page(page, "story-runs")
    row.get_by_role("button", name=re.compile("Actions of run")).click()
    page.get_by_role("menuitem", name=re.compile("Delete")).click()
    confirm(page, "Delete")
    expect(row).to_have_count(0)
    server.wait(child)
    page.goto("/projects/story")
    expect(page.locator("tr[data-run] [data-status=killed]")).to_have_count(2, timeout=SLOW)
    for each in (page, other, viewer):
        assert page_of.errors(each) == []
    assert server.complaints() == []


def train(name: str) -> dict[str, Any]:
    return {"name": name, "command": "python tabular.py", "env": {"STEPS": "5000000"}}


def fast_forward(page: Page, phase: str) -> None:
    page.locator(f"[data-phase={phase}]").get_by_role("button", name=re.compile("^Stop")).click()
    confirm(page, f"Stop {phase}")


def confirm(page: Page, name: Any) -> None:
    button: Locator = page.get_by_role("dialog").get_by_role("button", name=name, exact=isinstance(name, str)).last
    expect(button).to_be_enabled(timeout=SLOW)
    button.click()


def steps_of(page: Page, phase: str) -> int:
    text = page.locator(f"[data-phase={phase}] .monitors").inner_text()
    found = re.search(r"([\d,]+)\s*/\s*5,000,000", text)
    return int(found[1].replace(",", "")) if found else 0


def reaches(page: Page, phase: str, step: int) -> None:
    expect(page.locator(f"[data-phase={phase}] .monitors")).to_be_visible(timeout=SLOW)
    for _ in range(int(SLOW / 250)):
        if steps_of(page, phase) >= step:
            return
        page.wait_for_timeout(250)
    raise AssertionError(f"{phase} has not come to step {step}: {steps_of(page, phase)}")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
