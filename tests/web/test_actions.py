"""Every dialog in a real browser, against real training: its words, what it does, what it refuses, who may."""

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import RunView

PROGRAMS = Path(__file__).parents[2] / "src" / "whistlestop" / "testing" / "programs"
PARAM = """
import time, whistlestop
with whistlestop.run() as run:
    for step in run.steps(total=100000):
        run.param("clip", 1.0)
        lr = run.param("lr", 0.1, low=0.0, high=1.0)
        time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with (
        tempfile.TemporaryDirectory(prefix="whistle-") as directory,
        ServerProcess(Path(directory) / "server", slots=2) as started,
    ):
        yield started


@pytest.fixture(autouse=True)
def nothing_left(server: ServerProcess) -> Iterator[None]:
    """The next test needs the slots."""
    yield
    server.clear()


def train(server: ServerProcess, name: str, *, steps: int = 1, **env: str) -> RunView:
    """A run that is past `steps`."""
    phase = {
        "name": "train",
        "command": "python loop.py",
        "env": {"PACE": "0.01", "STEPS": "100000", **env},
        "checkpoint": {"every": "20 steps"},
    }
    report = {"name": "report", "kind": "task", "command": "true"}
    run = server.submit(phase, report, name=name, project="acts", directory=PROGRAMS)
    with server.client() as client:
        until(lambda: client.run(run.id).progress.step > steps, within=60, what="its first steps")
        until(lambda: client.checkpoints(run.id), within=60, what="its first checkpoint")
    return run


def choose(page: Page, run: RunView, item: str) -> Locator:
    """The path of K2: project, Runs, the menu, the item; the answer is the dialog."""
    if not page.url.endswith("/projects/acts"):
        page.goto("/projects/acts")
    page.get_by_role("button", name=f"Actions of run {run.number}, {run.name}").click()
    page.get_by_role("menuitem", name=item).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return dialog


def lose_the_answer(route: Route) -> None:
    route.fetch()
    route.abort()


def fact(dialog: Locator, name: str) -> Locator:
    return dialog.locator(f"[data-fact='{name}']")


def test_a_kill_asks_in_the_words_of_k2_and_shows_what_was_saved(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    run = train(server, "doomed")
    page = page_of(server)
    dialog = choose(page, run, "Kill run…")
    expect(dialog).to_contain_text(
        "This action will permanently kill doomed. Are you sure you want to kill this training?"
    )
    expect(fact(dialog, "Name")).to_contain_text("doomed")
    expect(fact(dialog, "Started")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
    expect(fact(dialog, "Progress")).to_contain_text("/100,000")
    expect(fact(dialog, "Credits used")).to_contain_text(re.compile(r"\d+\.\d\d"))
    expect(fact(dialog, "Credits saved")).to_contain_text(re.compile(r"≈ \d+\.\d\d"))
    expect(fact(dialog, "Frees")).to_contain_text("1 slot of pool local; nobody waits for it")
    expect(fact(dialog, "Newest checkpoint")).to_contain_text("of train")
    check_page(page, "dialog-kill")
    table = dialog.get_by_role("table")
    assert table.locator("thead th").all_inner_texts() == ["Stop", "Pause", "Kill", "Cancel"]
    assert table.locator("tbody th").all_inner_texts() == [
        "In a word", "Kept", "Lost", "Goes on", "Can be undone", "How long",
    ]  # fmt: skip
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert server.client().run(run.id).requested is None, "Escape did nothing"
    dialog = choose(page, run, "Kill run…")
    dialog.get_by_label("Note (optional)").fill("the loss went up")
    dialog.get_by_role("button", name="Confirm").click()
    row = page.locator(f"tr[data-run='{run.id}']")
    expect(row.locator("[data-status=killed]")).to_be_visible()
    expect(row).to_contain_text("the loss went up")
    ended = server.wait(run.id)
    assert ended.note == "the loss went up"
    assert ended.credits.saved is not None


INSIDE = """(inner, outer) => {
    const [one, other] = [inner, document.querySelector(outer)].map((element) => element.getBoundingClientRect());
    return one.top >= other.top - 1 && one.bottom <= other.bottom + 1
        && one.left >= other.left - 1 && one.right <= other.right + 1;
}"""


def test_on_a_phone_the_kill_dialog_begins_at_its_title_and_gives_the_focus_back_to_the_page(
    server: ServerProcess, page_of: Any
) -> None:
    run = train(server, "pocket")
    page = page_of(server, viewport={"width": 390, "height": 844})
    page.goto(f"/runs/{run.id}")
    page.get_by_role("button", name="Kill", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", level=2)).to_be_focused()
    expect(dialog.get_by_role("heading", level=2)).to_be_in_viewport(ratio=1)
    assert dialog.locator(".dialog-body").evaluate("body => body.scrollTop") == 0
    chosen = dialog.locator("th.is-chosen")
    until(lambda: chosen.evaluate(INSIDE, ".compare-box"), what="the chosen column in sight")
    assert dialog.locator(".dialog-body").evaluate("body => body.scrollTop") == 0
    note = dialog.get_by_label("Note (optional)")
    note.focus()
    until(lambda: note.evaluate(INSIDE, ".dialog-body"), what="the note not to be below the buttons")
    expect(dialog.get_by_role("heading", level=2)).to_be_in_viewport(ratio=1)
    dialog.get_by_role("button", name="Confirm kill").click()
    expect(dialog).to_have_count(0)
    expect(page.locator("h1")).to_be_focused()
    server.wait(run.id)


def test_the_four_are_told_apart_and_another_one_can_be_chosen(server: ServerProcess, page_of: Any) -> None:
    run = train(server, "either")
    page = page_of(server)
    dialog = choose(page, run, "Cancel run…")
    expect(dialog).to_contain_text("discard its checkpoints. To keep the result, stop it instead.")
    expect(fact(dialog, "Lost")).to_contain_text("nothing is left to continue from")
    dialog.get_by_role("button", name="Stop", exact=True).click()
    expect(dialog.get_by_role("heading", level=2)).to_contain_text("Stop train of")
    expect(fact(dialog, "Goes on")).to_contain_text("phase report")
    dialog.get_by_role("button", name="Stop train").click()
    expect(page.get_by_text(re.compile("stops at its next step and keeps its result"))).to_be_visible()
    assert server.wait(run.id).status == "completed"
    second = train(server, "either")
    dialog = choose(page, second, "Stop phase…")
    expect(dialog.locator("td.is-chosen").last).to_contain_text("one stop of this phase")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    dialog.get_by_role("button", name="Confirm").click()
    server.wait(second.id)
    assert server.client().checkpoints(second.id) == []


def test_a_pause_tells_what_it_would_lose_and_a_resume_brings_it_back(server: ServerProcess, page_of: Any) -> None:
    run = train(server, "breaks", steps=25)
    page = page_of(server)
    dialog = choose(page, run, "Pause…")
    expect(dialog.get_by_text(re.compile(r"goes on from step \d+"))).to_be_visible()
    dialog.get_by_role("button", name="Pause", exact=True).last.click()
    row = page.locator(f"tr[data-run='{run.id}']")
    expect(row.locator("[data-status=waiting]")).to_be_visible()
    dialog = choose(page, run, "Stop phase…")
    expect(dialog).to_contain_text("at once: it holds no slots")
    page.keyboard.press("Escape")
    choose(page, run, "Resume…").get_by_role("button", name="Resume").click()
    expect(row.locator("[data-status=running]")).to_be_visible(timeout=30_000)
    with server.client() as client:  # before that nobody knows how many steps there are in all
        until(lambda: client.run(run.id).progress.total, within=60, what="its loop to go on")
    dialog = choose(page, run, "Change the number of steps…")
    dialog.get_by_label("Steps in all").fill("3")
    dialog.get_by_role("button", name="Change").click()
    expect(dialog.get_by_role("alert")).to_contain_text("it can't end at step 3")
    dialog.get_by_label("Steps in all").fill("200000")
    expect(dialog).to_contain_text("+100,000")
    dialog.get_by_role("button", name="Change").click()
    expect(page.get_by_text(re.compile("goes on to step 200000"))).to_be_visible()
    choose(page, run, "Save now…").get_by_role("button", name="Save now").click()
    expect(page.get_by_text(re.compile("saves at its next step and goes on"))).to_be_visible()
    server.client().kill(run.id)
    server.wait(run.id)


def test_a_killed_run_is_continued_from_a_chosen_checkpoint_then_deleted(
    server: ServerProcess, page_of: Any, refused: Any, check_page: Callable[[Page, str], None]
) -> None:
    run = train(server, "parent", steps=45)
    with server.client() as client:
        client.kill(run.id)
        server.wait(run.id)
        oldest = client.checkpoints(run.id)[-1]
    page = page_of(server)
    dialog = choose(page, run, "Continue from a checkpoint…")
    dialog.get_by_label(f"step {oldest.step} of train").check()
    check_page(page, "dialog-continue")
    with refused(page, "**/continue", lose_the_answer):
        dialog.get_by_role("button", name=f"Continue from step {oldest.step}").click()
        expect(dialog.get_by_role("alert")).to_contain_text("The server can't be reached")
    dialog.get_by_role("button", name=f"Continue from step {oldest.step}").click()
    expect(page).to_have_url(re.compile("/runs/r-"))
    child = page.url.rpartition("/")[2]
    assert len([one for one in server.client().all_runs() if one.parent and one.parent.run == run.id]) == 1
    view = server.client().run(child)
    assert view.parent is not None
    assert (view.parent.run, view.parent.step) == (run.id, oldest.step)
    server.client().kill(child)
    server.wait(child)
    held: list[Route] = []
    page.goto("/projects/acts")
    about = f"**/api/v1/runs/{run.id}"
    page.get_by_role("button", name=f"Actions of run {run.number}, {run.name}").click()
    with refused(page, about, held.append):
        page.get_by_role("menuitem", name="Run again…").click()
        until(lambda: page.evaluate("1") and held, what="the question that is held")
    dialog = choose(page, view, "Run again…")
    with page.expect_response(about):
        held[0].continue_()
    expect(dialog.get_by_role("heading", level=2)).to_contain_text(f"Run #{view.number}")  # not the earlier wish
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    dialog = choose(page, run, "Add a note…")
    dialog.get_by_label("Note").fill("done with it")
    dialog.get_by_role("button", name="Save the note").click()
    expect(page.locator(f"tr[data-run='{run.id}']")).to_contain_text("done with it")
    dialog = choose(page, run, "Delete…")
    expect(dialog).to_contain_text("It can't be undone")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(f"tr[data-run='{run.id}']")).to_have_count(0)


def test_a_declared_parameter_is_set_and_a_wrong_value_refused_in_words(server: ServerProcess, page_of: Any) -> None:
    run = server.submit({"name": "train", "command": ["python", "-c", PARAM]}, name="tunable", project="acts")
    client = server.client()
    until(lambda: client.run(run.id).phases[0].params, within=60, what="its parameter")
    page = page_of(server)
    page.goto(f"/runs/{run.id}")
    page.get_by_role("button", name="Change lr").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("lr")).to_be_focused()  # not the first field
    dialog.get_by_label("lr").fill("7")
    dialog.get_by_role("button", name="Set").click()
    expect(dialog.get_by_role("alert")).to_contain_text("is too high")
    dialog.get_by_label("lr").fill("0.01")
    dialog.get_by_role("button", name="Set").click()
    until(lambda: client.run(run.id).phases[0].params["lr"].value == 0.01, what="the new value")
    client.kill(run.id)
    server.wait(run.id)


def test_an_active_run_is_not_deleted_and_a_viewer_can_do_nothing(server: ServerProcess, page_of: Any) -> None:
    run = server.submit({"name": "t", "kind": "task", "command": "sleep 600"}, name="guarded", project="acts")
    server.wait(run.id, "running")
    client = server.client()
    looks = client.create_token("looks", "viewer").token
    page = page_of(server, looks)
    page.goto("/projects/acts")
    page.get_by_role("button", name=f"Actions of run {run.number}, guarded").click()
    for item in page.get_by_role("menuitem").all():
        expect(item).to_have_attribute("aria-disabled", "true")
    expect(page.get_by_role("menuitem", name="Kill run…")).to_contain_text("your role only looks")
    page.get_by_role("menuitem", name="Kill run…").click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="New run")).to_have_count(0)
    page.goto("/new")
    expect(page.get_by_text("Your role only looks")).to_be_visible()
    member = page_of(server)
    member.goto("/projects/acts")
    member.get_by_role("button", name=f"Actions of run {run.number}, guarded").click()
    expect(member.get_by_role("menuitem", name="Delete…")).to_contain_text("kill it first")
    assert client.run(run.id).status == "running"
    client.kill(run.id)
