"""Projects, the runs of one, its workflows and the queue, in a real browser: live, filtered, selected, ten thousand."""

import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

PROGRAMS = Path(__file__).parents[2] / "src" / "whistlestop" / "testing" / "programs"
TASK = {"name": "only", "kind": "task", "command": "true"}
SLEEP = {"name": "only", "kind": "task", "command": "sleep 600"}
NARROW = {"width": 390, "height": 844}
EVIL = "<img src=x onerror=alert(1)>"


def loop(**env: str) -> dict[str, Any]:
    return {"name": "train", "command": "python loop.py", "env": {"PACE": "0.01", **env}}


@pytest.fixture(scope="module")
def one_slot() -> Iterator[ServerProcess]:
    with (
        tempfile.TemporaryDirectory(prefix="whistle-") as directory,
        ServerProcess(Path(directory) / "server", slots=1) as started,
    ):
        yield started


@pytest.fixture
def server(one_slot: ServerProcess) -> Iterator[ServerProcess]:
    """Its slot is free behind every test, however that ended."""
    yield one_slot
    one_slot.end_all()


def rows(page: Page) -> list[str]:
    return [str(name) for name in page.locator("tr[data-run] .run-name").all_inner_texts()]


def test_the_first_page_teaches_the_first_command_and_then_shows_the_project(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    page = page_of(server)
    page.goto("/")
    expect(page.get_by_text("whistle run -- python train.py")).to_be_visible()
    check_page(page, "projects-empty")
    done = server.submit(TASK, name="first", project="vision")
    expect(page.locator("[data-project=vision]")).to_be_visible()
    server.wait(done.id)
    expect(page.locator("[data-project=vision]")).to_contain_text("nothing under way")
    check_page(page, "projects")
    page.get_by_role("link", name="vision").click()
    expect(page).to_have_url(re.compile(r"/projects/vision$"))
    expect(page.locator("tr[data-run]")).to_have_count(1)


def test_rows_appear_move_and_go_by_themselves(
    server: ServerProcess, page_of: Any, refused: Any, check_page: Callable[[Page, str], None]
) -> None:
    page = page_of(server)
    page.goto("/projects/live")
    expect(page.get_by_text("No runs in this project yet")).to_be_visible()
    run = server.submit(loop(STEPS="20000"), name="moving", project="live", directory=PROGRAMS)
    waits = server.submit(SLEEP, name="waits", project="live")
    row = page.locator(f"tr[data-run='{run.id}']")
    expect(row.locator("[data-status=running]")).to_be_visible(timeout=30_000)
    expect(row.locator("[role=progressbar]")).to_have_attribute("aria-valuenow", re.compile("[1-9]"), timeout=30_000)
    expect(page.locator(f"tr[data-run='{waits.id}']")).to_contain_text("#1 in the queue")
    assert rows(page) == ["waits", "moving"]
    check_page(page, "runs")
    late: list[Any] = []  # what was read before the kill, and is answered after it
    with refused(page, re.compile("sort=name"), lambda route: late.append((route, route.fetch()))):
        page.get_by_role("button", name="Name").click()
        until(lambda: page.evaluate("1") and late, what="the answer that comes late")
    with server.client() as client:
        client.kill(run.id, note="enough seen")
    expect(row.locator("[data-status=killed]")).to_be_visible()
    late[0][0].fulfill(response=late[0][1])
    expect(page.locator(".is-loading")).to_have_count(0)
    assert row.locator("[data-status]").get_attribute("data-status") == "killed", "an older answer replaced the news"
    expect(row).to_contain_text("enough seen")
    server.wait(waits.id, "running")
    with server.client() as client:
        client.delete(run.id)
        expect(row).to_have_count(0)
        client.kill(waits.id)
    expect(page.locator("[data-status=killed]")).to_have_count(1)


def test_filter_search_and_order_are_in_the_address(server: ServerProcess, page_of: Any) -> None:
    made = [server.submit(TASK, name=name, project="sorted") for name in ("beta", "Alpha", "gamma")]
    for run in made:
        server.wait(run.id)
    with server.client() as client:
        client.note(made[2].id, "needle in the hay")
    page = page_of(server)
    page.goto("/projects/sorted")
    expect(page.locator("tr[data-run]")).to_have_count(3)
    assert rows(page) == ["gamma", "Alpha", "beta"]
    page.get_by_role("button", name="Name").click()
    expect(page).to_have_url(re.compile("sort=name"))
    expect(page.locator("tr[data-run] .run-name").first).to_have_text("Alpha")
    expect(page.locator("th", has_text="Name")).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("button", name="Name").click()
    expect(page.locator("tr[data-run] .run-name").first).to_have_text("gamma")
    page.keyboard.press("/")
    page.keyboard.type("NEEDLE")
    expect(page.locator("tr[data-run]")).to_have_count(1)
    assert rows(page) == ["gamma"]
    page.get_by_role("button", name="failed").click()
    expect(page.get_by_text("No run matches")).to_be_visible()
    page.wait_for_url(lambda url: "q=NEEDLE" in url and "status=failed" in url)
    page.reload()
    expect(page.get_by_text("No run matches")).to_be_visible()
    page.get_by_role("button", name="Show all runs").click()
    expect(page.locator("tr[data-run]")).to_have_count(3)


def test_names_and_notes_of_others_stay_text(server: ServerProcess, page_of: Any) -> None:
    run = server.submit(TASK, name="plain", project="evil")
    server.wait(run.id)
    with server.client() as client:
        client.note(run.id, EVIL)
    page = page_of(server)
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.goto("/projects/evil")
    expect(page.locator(".note-line")).to_contain_text(EVIL)
    page.goto(f"/projects/{EVIL.replace('/', '%2F')}")
    expect(page.get_by_role("heading", level=1)).to_have_text(EVIL)


def test_many_are_selected_judged_and_ended_at_once(
    server: ServerProcess, page_of: Any, refused: Any, check_page: Callable[[Page, str], None]
) -> None:
    for name in ("one", "two", "three"):
        server.submit(SLEEP, name=name, project="bulk")
    done = server.submit(TASK, name="four", project="bulk", priority=5)
    page = page_of(server)
    page.goto("/projects/bulk")
    expect(page.locator("tr[data-run]")).to_have_count(4)
    with server.client() as client:
        client.kill(done.id)
    server.wait(done.id)
    boxes = page.locator("tr[data-run] input[type=checkbox]")
    boxes.nth(0).click()
    boxes.nth(2).click(modifiers=["Shift"])
    expect(page.get_by_text("3 selected")).to_be_visible()
    page.get_by_label("Select all runs of this page").check()
    page.get_by_role("button", name="Kill…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 will be refused")
    expect(dialog.locator("tr[data-ok=false]")).to_contain_text("can't be killed any more")
    check_page(page, "bulk")
    dialog.get_by_label("Note (optional)").fill("not needed any more")
    with refused(page, "**/api/v1/bulk"):
        dialog.get_by_role("button", name="Kill 3 runs").click()
        expect(dialog.get_by_role("alert")).to_contain_text("It may not have got through")
    expect(dialog).not_to_contain_text("asked again")
    dialog.get_by_role("button", name="Kill 3 runs").click()
    expect(dialog).to_contain_text("3 asked")
    expect(dialog).to_contain_text("1 refused")
    dialog.get_by_role("button", name="Close").last.click()
    expect(page.locator("[data-status=killed]")).to_have_count(4)


def test_what_the_preview_refuses_is_left_alone_even_if_it_could_be_done_by_then(
    server: ServerProcess, page_of: Any
) -> None:
    over, going = (server.submit(SLEEP, name=name, project="shown") for name in ("over", "going"))
    with server.client() as client:
        client.kill(over.id)
        server.wait(over.id)
        page = page_of(server)
        page.goto("/projects/shown")
        page.get_by_label("Select all runs of this page").check()
        page.get_by_role("button", name="Delete…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("1 will be deleted")
        expect(dialog).to_contain_text("1 will be refused")
        client.kill(going.id)
        server.wait(going.id)
    dialog.get_by_role("button", name="Delete 1 run").click()
    expect(dialog).to_contain_text("1 deleted")
    expect(dialog).to_contain_text("1 refused")
    dialog.get_by_role("button", name="Close").last.click()
    expect(page.locator("tr[data-run] .run-name")).to_have_text(["going"])


def test_what_is_selected_but_not_shown_is_said_and_can_be_dropped(server: ServerProcess, page_of: Any) -> None:
    made = [server.submit(TASK, name=name, project="hidden") for name in ("one", "two", "three")]
    made.append(server.submit({**TASK, "command": "false"}, name="broken", project="hidden"))
    for run in made:
        server.wait(run.id)
    page = page_of(server)
    page.goto("/projects/hidden")
    expect(page.locator("tr[data-run]")).to_have_count(4)
    page.get_by_label("Select all runs of this page").check()
    page.get_by_role("button", name="failed").click()
    expect(page.locator("tr[data-run]")).to_have_count(1)
    expect(page.get_by_text("4 selected, 3 not shown")).to_be_visible()
    page.get_by_role("button", name="Kill…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("tr[data-ok=false]").first).to_contain_text(re.compile(r"at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d:"))
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Keep only what is shown").click()
    expect(page.get_by_text("1 selected", exact=True)).to_be_visible()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 1 run").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 deleted")
    with server.client() as client:
        assert {run.name for run in client.runs(project="hidden").runs} == {"one", "two", "three"}


def test_all_that_match_are_those_of_the_preview(server: ServerProcess, page_of: Any) -> None:
    for at in range(2):
        server.submit(SLEEP, name=f"seen {at}", project="agreed")
    page = page_of(server)
    page.goto("/projects/agreed")
    expect(page.locator("tr[data-run]")).to_have_count(2)
    dialog = page.get_by_role("dialog")
    _open(page, "kill", {"filter": {"project": "agreed", "status": []}, "total": 2})
    expect(dialog.get_by_role("button", name="Kill 2 runs")).to_be_enabled()
    late = server.submit(SLEEP, name="late", project="agreed")
    dialog.get_by_role("button", name="Kill 2 runs").click()
    expect(dialog).to_contain_text("2 asked")
    with server.client() as client:
        assert client.run(late.id).requested is None
        client.kill(late.id)


def test_every_run_is_judged_before_it_is_counted_and_a_stop_names_its_phase(
    server: ServerProcess, page_of: Any
) -> None:
    run = server.submit({"name": "only", "command": "sleep 600"}, name="trains", project="judged")
    page = page_of(server)
    page.goto("/projects/judged")
    expect(page.locator("tr[data-run]")).to_have_count(1)
    gone = [f"gone-{at}" for at in range(600)]  # the server judges five hundred at once
    _open(page, "stop", {"runs": [*gone, run.id], "total": 601})
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("600 will be refused")
    with page.expect_request("**/api/v1/bulk") as asked:
        dialog.get_by_role("button", name="Stop 1 run").click()
    sent = asked.value.post_data_json
    assert (sent["runs"], sent["phases"]) == ([run.id], {run.id: "only"})
    expect(dialog).to_contain_text("600 refused")
    with server.client() as client:
        client.kill(run.id)


def _open(page: Page, verb: str, bulk: dict[str, Any]) -> None:
    page.evaluate(
        """async ([verb, bulk]) => {
            const app = document.querySelector("script[type=module]").src;
            const {openAction} = await import(app.replace("app.js", "actions/index.js"));
            openAction(verb, {bulk: true, ...bulk});
        }""",
        [verb, bulk],
    )


def test_a_search_that_is_being_typed_stays_on_its_own_page(server: ServerProcess, page_of: Any) -> None:
    page = page_of(server)
    page.clock.install()
    page.goto("/projects/hidden?status=completed")
    page.get_by_role("searchbox").press_sequentially("two ")
    page.clock.run_for(1000)
    expect(page).to_have_url(re.compile(r"q=two$"))
    page.get_by_role("searchbox").press_sequentially("words")
    expect(page.get_by_role("searchbox")).to_have_value("two words")
    page.clock.run_for(1000)
    expect(page).to_have_url(re.compile(r"q=two\+words$"))
    page.get_by_role("searchbox").fill("on its way")
    page.get_by_role("button", name="Clear").click()
    page.clock.run_for(1000)
    expect(page).to_have_url(re.compile(r"/projects/hidden$"))
    expect(page.get_by_role("searchbox")).to_have_value("")
    page.get_by_role("searchbox").fill("on its way")
    page.get_by_role("link", name="Queue").click()
    page.clock.run_for(1000)
    expect(page).to_have_url(re.compile(r"/queue$"))


def test_workflows_show_their_versions_and_lead_to_a_new_run(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    page = page_of(server)
    page.goto("/projects/flows/workflows")
    expect(page.get_by_text("No workflows yet")).to_be_visible()
    text = "name: x\nproject: flows\ncommand: 'true'\nkind: task\n"
    with server.client() as client:
        client.save_workflow("tune", text)
        client.save_workflow("tune", text + "# later\n", note="the second")
        run = client.submit(workflow="tune")
    page.reload()
    row = page.locator("[data-workflow=tune]")
    expect(row).to_contain_text("the second")
    expect(row).to_contain_text(f"#{run.number}")
    check_page(page, "workflows")
    row.get_by_role("button", name="YAML").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_contain_text("# later")
    dialog.get_by_label("Version", exact=True).select_option("1")
    expect(dialog.locator("pre")).not_to_contain_text("# later")
    expect(dialog.get_by_role("link", name="New run")).to_have_attribute("href", re.compile("workflow=tune%401"))
    page.keyboard.press("Escape")
    row.get_by_role("link", name="1", exact=True).click()
    expect(page.locator("tr[data-run]")).to_have_count(1)
    expect(page).to_have_url(re.compile("workflow=tune"))


def test_on_a_phone_runs_can_be_sorted_and_chosen_and_a_workflow_s_be_all_that_match(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    with server.client() as client:
        client.save_workflow("many", "name: x\nproject: phone\ncommand: 'sleep 600'\nkind: task\n")
        for _ in range(2):
            client.submit(workflow="many")
        page = page_of(server, viewport=NARROW)
        page.goto("/projects/phone?workflow=many")
        page.get_by_role("button", name="Name").click()
        expect(page).to_have_url(re.compile("sort=name"))
        page.get_by_label("Select all runs of this page").check()
        expect(page.locator("tr.is-chosen")).to_have_count(2)
        check_page(page, "runs-phone")
        other = server.submit(SLEEP, name="of no workflow", project="phone")
        _open(page, "kill", {"filter": {"project": "phone", "status": [], "workflow": "many"}, "total": 2})
        page.get_by_role("dialog").get_by_role("button", name="Kill 2 runs").click()
        expect(page.locator("[data-status=killed]")).to_have_count(2)
        client.kill(other.id)


def test_the_queue_shows_who_holds_the_slots_and_who_waits_for_what(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    holds = server.submit(SLEEP, name="holds", project="queue")
    server.wait(holds.id, "running")
    page = page_of(server)
    held: list[Any] = []
    page.route(re.compile("/api/v1/runs.*status="), lambda route: route.continue_() if held else held.append(route))
    with page.expect_response("**/api/v1/queue"):
        page.goto("/queue")
    late = server.submit(SLEEP, name="late", project="queue")  # while the page is still asking
    until(lambda: page.evaluate("1") and held, what="the question for what runs")
    held[0].continue_()
    expect(page.locator("table.queue tbody tr")).to_have_count(1)
    urgent = server.submit(SLEEP, name="urgent", project="queue", priority=9)
    places = page.locator("table.queue tbody tr")
    expect(places).to_have_count(2)
    expect(places.nth(0)).to_contain_text("urgent")
    expect(places.nth(1)).to_contain_text("1 slot of pool local: 0 of 1 free, behind 1 other")
    expect(page.locator(".slot.is-used")).to_contain_text(f"#{holds.number}")
    check_page(page, "queue")
    with server.client() as client:
        client.kill(holds.id)
        expect(page.locator(".slot.is-used")).to_contain_text(f"#{urgent.number}")
        expect(places).to_have_count(1)
        client.bulk("kill", runs=[urgent.id, late.id])
    expect(page.get_by_text("Nobody waits")).to_be_visible()


@pytest.mark.long
def test_ten_thousand_runs_stay_quick(page_of: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="whistle-") as directory:
        server = ServerProcess(Path(directory) / "server", slots=1)
        with server:
            first = server.submit(TASK, name="seed", project="big")
            server.wait(first.id)
            server.stop()
            _copy(server.data, first.id, 9_999)
            server.start()
            page = page_of(server)
            page.goto("/projects/big")
            expect(page.get_by_text("1–100 of 10,000")).to_be_visible()
            expect(page.locator("tr[data-run]")).to_have_count(100)
            page.get_by_role("button", name="Next").click()
            expect(page.get_by_text("101–200 of 10,000")).to_be_visible()
            page.get_by_label("Select all runs of this page").check()
            page.get_by_role("button", name="Select all 10,000 that match").click()
            expect(page.get_by_text("All 10,000 that match")).to_be_visible()
            page.get_by_role("button", name="Kill…").click()
            expect(page.get_by_role("dialog")).to_contain_text("and 9,800 more", timeout=30_000)
            page.keyboard.press("Escape")
            page.get_by_role("searchbox").fill("copy 77")
            expect(page.locator("tr[data-run]")).to_have_count(100)
            expect(page.get_by_text("1–100 of 111")).to_be_visible()


def _copy(data: Path, run_id: str, count: int) -> None:
    """Runs as the database has them: submitting ten thousand would take longer than the test may."""
    with sqlite3.connect(next(data.glob("*.db"))) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(runs)")]
        row = dict(zip(columns, database.execute("SELECT * FROM runs WHERE id = ?", (run_id,)).fetchone(), strict=True))
        number = int(row["number"])
        copies = [
            {**row, "id": f"{run_id}{at}", "number": number + at, "name": f"copy {at}", "key": None}
            for at in range(1, count + 1)
        ]
        names = ", ".join(f'"{name}"' for name in columns)
        marks = ", ".join(f":{name}" for name in columns)
        database.executemany(f"INSERT INTO runs ({names}) VALUES ({marks})", copies)
    database.close()
