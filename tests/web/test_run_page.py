"""The run page in a real browser, with real training behind it."""

import json
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

import whistlestop.testing.programs
from whistlestop.domain.states import PhaseState, RunState
from whistlestop.server import web
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.frames import RUNNER_KINDS

Pages = Callable[..., Page]
Check = Callable[[Page, str], None]
PIPELINE = Path(__file__).parents[2] / "examples" / "pipeline"
PROGRAMS = Path(whistlestop.testing.programs.__file__).parent
SOON = 60_000
MARKUP = "<img src=x onerror=window.hacked=1><b>bold</b>"
NASTY = f"""
import whistlestop
MARKUP = {MARKUP!r}
with whistlestop.run(stop_when=[whistlestop.when(lambda moment: moment.step >= 20, MARKUP)]) as run:
    for step in run.steps(total=200, per_epoch=10):
        run.param(MARKUP, MARKUP)
        run.log(loss=1.0)
        if int(step) % 5 == 4:
            with run.evaluating():
                pass
raise RuntimeError(MARKUP)
"""
DEAF = """
import time
import whistlestop
with whistlestop.run() as run:
    for step in run.steps(total=100):
        time.sleep(3600 if int(step) == 10 else 0)
"""

EARLY = """
import whistlestop
with whistlestop.run(stop_when=[whistlestop.when(lambda moment: moment.step >= 300, "enough")]) as run:
    for step in run.steps(total=400, per_epoch=30):
        with run.evaluating():
            pass
"""
TALKS = """
import time
print("the needle")
for number in range(25_000):
    print(f"line {number}")
number = 0
while True:
    number += 1
    print(f"tick {number}", flush=True)
    time.sleep(0.1)
"""


def loop(name: str, *, steps: int = 1_000_000, pace: float = 0.01, **more: Any) -> dict[str, Any]:
    env = {"STEPS": str(steps), "PACE": str(pace)}
    return {"name": name, "command": [sys.executable, "loop.py"], "env": env, **more}


def train(name: str) -> dict[str, Any]:
    return {"name": name, "command": f"python {name}.py", "env": {"STEPS": "100000000"}}


def moving(page: Page, phase: str) -> int:
    """Its step, once it has made some."""
    steps = station(page, phase).locator("[data-monitor=steps]")
    return until(lambda: steps.count() and step_of(page, phase) > 5 and step_of(page, phase), what="the first steps")


def shown(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.locator("main")).to_contain_text(text, timeout=SOON)


def station(page: Page, phase: str) -> Locator:
    return page.locator(f'.station[data-phase="{phase}"]')


def confirm(page: Page, word: str) -> None:
    page.locator("dialog .dialog-foot").get_by_role("button", name=word, exact=True).click(timeout=SOON)
    expect(page.locator("dialog")).to_have_count(0, timeout=SOON)


def step_of(page: Page, phase: str) -> int:
    return int(station(page, phase).locator("[data-monitor=steps] strong").inner_text().replace(",", ""))


def test_the_line_moves_by_itself_and_each_phase_has_its_own_fast_forward(
    web_server: ServerProcess, page_of: Pages, refused: Any, check_page: Check, tmp_path: Path
) -> None:
    """The example's pipeline: two models are trained, and what both have learned is used by the tasks behind them."""
    shutil.copytree(PIPELINE, tmp_path / "pipeline")
    tasks = [{"name": name, "kind": "task", "command": f"python {name}.py"} for name in ("synthesis", "report")]
    trained = [train("tabular"), train("text")]
    run = web_server.submit(*trained, *tasks, directory=tmp_path / "pipeline", name="synthetic-data")
    page = page_of(web_server)
    page.goto(f"/runs/{run.id}")
    before = moving(page, "tabular")
    page.evaluate("window.loadedOnce = true")
    until(lambda: step_of(page, "tabular") > before + 20, what="steps to move")
    tabular, text, synthesis = (station(page, name) for name in ("tabular", "text", "synthesis"))
    expect(tabular.locator("[data-monitor=batches]")).to_contain_text(re.compile(r"E\d+\s*\d+/\d+"))
    assert "Step" in (tabular.locator("svg[role=img]").first.get_attribute("aria-label") or "")
    expect(synthesis.get_by_role("button")).to_have_count(0)  # a task has no step to stop at
    check_page(page, "run-running")

    page.get_by_role("button", name="Stop phase text as soon as it begins").click()
    dialog = page.locator("dialog")
    expect(dialog).to_contain_text("text ends as soon as it begins and its result counts", timeout=SOON)
    held: list[Route] = []
    about = "**/consequences?verb=stop&phase=tabular"
    with refused(page, about, held.append):
        dialog.get_by_label("Phase").select_option("tabular")
        until(lambda: page.evaluate("1") and held, what="the question that is held")
    expect(dialog).to_contain_text("tabular ends at its next step")
    expect(dialog.get_by_role("button", name="Stop tabular", exact=True)).to_be_disabled()  # what is shown is not of it
    held[0].abort()
    expect(dialog.get_by_role("alert")).to_contain_text("It is asked again until it answers.", timeout=SOON)
    expect(dialog.get_by_role("button", name="Stop tabular", exact=True)).to_be_enabled(timeout=SOON)
    dialog.get_by_label("Phase").select_option("text")
    confirm(page, "Stop text")
    expect(text).to_contain_text("will stop as soon as it begins", timeout=SOON)
    page.get_by_role("button", name="Stop phase tabular now and keep its result").click()
    confirm(page, "Stop tabular")
    expect(page.locator(".run-title .status")).to_have_text("completed", timeout=3 * SOON)
    for phase in (tabular, text):
        expect(phase).to_contain_text("manually stopped by local")
    assert page.evaluate("window.loadedOnce") is True  # all that without a reload


def test_pause_resume_and_a_note_from_the_page(web_server: ServerProcess, page_of: Pages) -> None:
    run = web_server.submit(loop("warm", steps=5), loop("train"), directory=PROGRAMS, name="pausing")
    page = page_of(web_server)
    page.goto(f"/runs/{run.id}")
    moving(page, "train")
    page.get_by_role("button", name="Pause", exact=True).click()
    at_once = page.get_by_role("radio", name="Leave at once")
    expect(at_once).to_be_disabled(timeout=SOON)  # the checkpoint that there is, is that of the phase before
    expect(page.locator("dialog .choices")).to_contain_text("there is no checkpoint of this phase yet")
    confirm(page, "Pause")
    status = page.locator(".run-title .status")
    expect(status).to_have_text("waiting", timeout=SOON)
    expect(page.locator(".ending")).to_contain_text("local, asked at")
    stood = step_of(page, "train")
    page.get_by_role("button", name="Resume", exact=True).click()
    confirm(page, "Resume")
    expect(status).to_have_text("running", timeout=SOON)
    until(lambda: step_of(page, "train") > stood, what="steps after the resume")

    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("textbox", name="Note", exact=True).fill("tried a warm start\nsecond line")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".note-text")).to_have_text("tried a warm start\nsecond line")
    with web_server.client() as client:
        assert client.run(run.id).note == "tried a warm start\nsecond line"
        client.kill(run.id)


def test_a_killed_run_says_who_what_and_the_last_lines(
    web_server: ServerProcess, page_of: Pages, refused: Any, check_page: Check
) -> None:
    run = web_server.submit(loop("train", env={"PACE": "0.01", "HOSTILE": ""}), directory=PROGRAMS, name="doomed")
    page = page_of(web_server)
    page.goto(f"/runs/{run.id}")
    moving(page, "train")
    page.get_by_role("button", name="Kill", exact=True).click()
    page.get_by_label("Note (optional)").fill("diverged")
    confirm(page, "Confirm kill")
    expect(page.locator(".run-title .status")).to_have_text("killed", timeout=SOON)
    ending = page.locator(".ending")
    for words in ("Killed at step", "local, asked at", "diverged", "killed on request", "saved"):
        expect(ending).to_contain_text(words)
    expect(ending.locator(".tail")).to_contain_text("proven gone")
    expect(page.get_by_role("button", name="Kill", exact=True)).to_have_count(0)
    check_page(page, "run-killed")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/checkpoints") else None)
    with refused(page, re.compile(r"/logs\?tail|/checkpoints$")):
        page.reload()
        expect(ending).to_contain_text("They can't be read: The server can't be reached. It is asked again")
        expect(ending).not_to_contain_text("It has printed nothing")
    expect(ending.locator(".tail")).to_contain_text("proven gone")
    expect(page.get_by_role("button", name=re.compile("^(Run again|Continue)$"))).to_be_visible()
    assert len(asked) == 2, "once by the whole page, and once more for the answer that was lost"
    page.get_by_role("link", name="All logs of attempt 1").click()
    expect(page).to_have_url(re.compile(r"tab=logs&attempt=1"))

    about = f"**/api/v1/runs/{run.id}"
    with refused(page, about, lambda route: route.fulfill(status=404, body="not ours")), page.expect_response(about):
        page.evaluate("dispatchEvent(new Event('focus'))")
    with page.expect_response(about):  # a proxy's 404 is no word of the server
        page.evaluate("dispatchEvent(new Event('focus'))")
    expect(page.locator(".run-title .status")).to_have_text("killed")
    with web_server.client() as client:
        client.delete(run.id)
    page.evaluate("dispatchEvent(new Event('focus'))")
    shown(page, "This run was deleted")


def test_what_comes_from_outside_stays_text(
    web_server: ServerProcess, page_of: Pages, check_page: Check, tmp_path: Path
) -> None:
    (tmp_path / "nasty.py").write_text(NASTY)
    phase = {"name": "train", "command": [sys.executable, "nasty.py"]}
    run = web_server.submit(phase, directory=tmp_path, name="nasty")
    web_server.wait(run.id, "failed", "completed")
    with web_server.client() as client:
        client.note(run.id, MARKUP)
    # No request gets such a name past the server; what an older one may have stored has to stay text, too.
    with sqlite3.connect(web_server.data / "whistlestop.db", timeout=20) as database:
        database.execute("UPDATE runs SET name = ? WHERE id = ?", (MARKUP, run.id))
        database.execute("UPDATE events SET text = ? WHERE run_id = ? AND kind = 'submitted'", (MARKUP, run.id))
        database.execute(
            "UPDATE phases SET stop_reasons = ? WHERE run_id = ?",
            (json.dumps([{"reason": "custom", "decisive": True, "text": MARKUP}]), run.id),
        )
    page = page_of(web_server)
    for tab in ("overview", "events", "attempts", "configuration"):
        page.goto(f"/runs/{run.id}?tab={tab}")
        expect(page.locator("h1")).to_contain_text(MARKUP, timeout=SOON)
        if tab == "overview":
            for place in (".note-text", ".ending", ".reasons", ".params"):
                expect(page.locator(place)).to_contain_text(MARKUP)
            line = page.get_by_role("img", name=re.compile("^Step 20 of 200; 4 evaluations, the last at step 19"))
            expect(line.locator(".mark-short")).to_have_attribute("d", re.compile("(M[^M]+){4}"))
        if tab == "events":
            expect(page.locator(".event-table")).to_contain_text(MARKUP)
        assert page.locator("main img").count() == 0
        assert page.evaluate("window.hacked") is None
        check_page(page, f"run-{tab}")


def test_a_viewer_has_no_buttons_and_sees_a_stop_climb_its_ladder(
    web_server: ServerProcess, page_of: Pages, tmp_path: Path
) -> None:
    (tmp_path / "deaf.py").write_text(DEAF)
    phase = {"name": "train", "command": [sys.executable, "deaf.py"], "grace": {"flag": "90s"}}
    run = web_server.submit(phase, directory=tmp_path, name="deaf")
    with web_server.client() as client:
        page = page_of(web_server, client.create_token("guest", "viewer").token)
        page.goto(f"/runs/{run.id}")
        moving(page, "train")
        for name in ("Pause", "Kill", "Stop phase train now and keep its result", "Add"):
            assert page.get_by_role("button", name=name, exact=True).count() == 0
        expect(page.locator("summary", has_text="Startup")).to_be_visible(timeout=SOON)
        client.stop(run.id)
        ladder = page.locator(".ladder")
        expect(ladder).to_contain_text(re.compile(r"then SIGINT in 1m\d\ds"), timeout=SOON)
        expect(ladder.locator("[aria-current=step]")).to_have_text("flag")
        first = ladder.inner_text()
        until(lambda: ladder.inner_text() != first, what="the countdown")
        client.pause(run.id)
        alert = page.locator(".alert", has=page.locator(".ladder"))
        expect(alert.get_by_role("status")).to_contain_text("Pausing, asked by local", timeout=SOON)
        assert alert.get_by_role("status").locator(".ladder").count() == 0, "a countdown would be read out every second"
        client.kill(run.id)
        expect(page.locator(".run-title .status")).to_have_text("killed", timeout=SOON)


def test_a_run_that_stopped_early_says_so_and_its_filters_look_at_every_event(
    web_server: ServerProcess, page_of: Pages, tmp_path: Path
) -> None:
    (tmp_path / "early.py").write_text(EARLY)
    phase = {"name": "train", "command": [sys.executable, "early.py"]}
    run = web_server.submit(phase, directory=tmp_path, name="early", project="early")
    web_server.wait(run.id, "completed")
    page = page_of(web_server)
    page.goto(f"/runs/{run.id}")
    expect(page.locator(".figures")).to_contain_text("300 of 400 steps, stopped early")
    expect(page.get_by_role("button", name="Continue")).to_be_visible()  # the stop has saved
    expect(station(page, "train").locator(".station-facts")).to_contain_text(re.compile("of 13 epochs"))
    expect(station(page, "train").locator(".legend")).to_contain_text("/13")
    page.goto(f"/runs/{run.id}?tab=events")
    expect(page.locator(".event-table .event").first).to_be_visible(timeout=SOON)
    expect(page.locator(".event-table .kind", has_text="submitted")).to_have_count(0)
    page.get_by_label("Kind").select_option("submitted")
    expect(page.locator(".event-table .kind")).to_have_text(["submitted"])
    page.get_by_label("Kind").select_option("evaluation")
    expect(page.locator(".event-count")).to_have_text("300 events")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/projects/early")
    row = page.locator(f"tr[data-run='{run.id}']")
    expect(row).to_contain_text("at 75%")
    expect(row).to_contain_text("enough")
    expect(row.get_by_text(f"#{run.number}")).to_be_visible()


def test_the_event_filter_offers_every_kind_that_is_written() -> None:
    script = (Path(web.__file__).parent / "static" / "run" / "events.js").read_text()
    offered = set(re.findall(r'"(\w+)"', script.partition("const KINDS = [")[2].partition("]")[0]))
    services = Path(web.__file__).parents[1] / "services"
    asked = {kind for file in services.glob("*.py") for kind in re.findall(r'"(\w+_requested)"', file.read_text())}
    assert len(asked) >= 8
    states = {f"run_{state}" for state in RunState} | {f"phase_{state}" for state in PhaseState}
    assert (asked | states | set(RUNNER_KINDS)) - offered == set()


MONITORS = """async () => {
    const base = document.querySelector("script[type=module]").src.replace("app.js", "");
    const {html, render} = await import(base + "lib.js");
    const {BatchMonitor, StepMonitor} = await import(base + "run/monitor.js");
    const {ordinal} = await import(base + "run/words.js");
    const place = document.createElement("div");
    document.body.prepend(place);
    const text = (selector) => place.querySelector(selector).textContent.replace(/\\s+/g, " ");
    const batches = (said) => {
        const progress = {total: 3000, batches: 1000, batch: 0, ...said};
        render(html`<${BatchMonitor} progress=${progress} status="running" />`, place);
        return text("figcaption");
    };
    const marks = {epochs: [500, 1000, 1500], evaluations: [], per_epoch: 500};
    const ends = (said, told = marks) => {
        render(html`<${StepMonitor} progress=${said} marks=${told} status="running" />`, place);
        return text(".legend").match(/[0-9,]+\\/[0-9,]+/)?.[0];
    };
    return {
        between: batches({step: 2000, epoch: 2}), end: batches({step: 3000, epoch: 3}),
        uneven: batches({step: 2500, total: 2500, epoch: 2, batch: 500}),
        unknown: ends({step: 2600, total: null}), known: ends({step: 2600, total: 4000}),
        many: ends({step: 2000, total: null}, {...marks, epochs: [], per_epoch: 2}),
        places: [1, 3, 4, 11, 21, 22, 33, 111, 112].map(ordinal),
    };
}"""


def test_the_monitors_show_no_epoch_that_never_begins_and_every_end_that_was_passed(
    web_server: ServerProcess, page_of: Pages
) -> None:
    page = page_of(web_server)
    page.goto("/no/such/page")
    page.locator("main").wait_for()
    assert page.evaluate(MONITORS) == {
        "between": "BatchesE20/1,000",
        "end": "BatchesE21,000/1,000",
        "uneven": "BatchesE2500/1,000",
        "unknown": "5/5",
        "known": "3/3",
        "many": "1,000/1,000",
        "places": ["first", "third", "4th", "11th", "21st", "22nd", "33rd", "111th", "112th"],
    }


def test_a_level_shows_the_newest_lines_and_enter_waits_for_its_match(
    web_server: ServerProcess, page_of: Pages, tmp_path: Path
) -> None:
    (tmp_path / "talks.py").write_text(TALKS)
    phase = {"name": "train", "kind": "task", "command": [sys.executable, "talks.py"]}
    run = web_server.submit(phase, directory=tmp_path, name="talks")
    page = page_of(web_server)
    with web_server.client() as client:
        until(
            lambda: any("tick" in line.text for line in client.logs(run.id, tail=5).lines), what="its lines", within=60
        )
        page.goto(f"/runs/{run.id}?tab=logs&level=info")
        texts = page.locator(".log-row .log-text")
        until(lambda: any("tick" in text for text in texts.all_inner_texts()), what="the newest lines")
        newest = texts.last.inner_text()
        until(lambda: texts.last.inner_text() != newest, what="a newer line")
        older = page.get_by_role("button", name="Look for older ones")
        older.click(timeout=SOON)
        expect(older).to_have_count(0, timeout=SOON)

        def first() -> bool:
            page.locator(".log-box").focus()
            page.keyboard.press("Home")
            return any("needle" in text for text in texts.all_inner_texts())

        until(first, what="the oldest line")
        page.goto(f"/runs/{run.id}?tab=logs")
        search = page.get_by_label("Search the log")
        search.fill("NEEDLE")
        search.press("Enter")  # long before it is found
        expect(page.locator(".log-row.is-current")).to_contain_text("needle", timeout=SOON)
        client.kill(run.id)
    page.goto(f"/runs/{run.id}")
    expect(page.locator(".ending")).to_contain_text("it had no checkpoint", timeout=SOON)
    expect(page.get_by_role("button", name="Run again")).to_be_visible()
    expect(page.get_by_role("button", name="Continue")).to_have_count(0)


@pytest.mark.parametrize("path", ["/runs/nonsense", "/runs/999999"])
def test_a_run_that_is_not_there_says_so(web_server: ServerProcess, page_of: Pages, path: str) -> None:
    page = page_of(web_server)
    page.goto(path)
    expect(page.locator("h1")).to_have_text("No such run")
