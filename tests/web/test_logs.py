"""The log of a real run in a real browser: live at its end, searched as a whole, long without being large."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

PROGRAMS = Path(__file__).parent / "programs"
LINES = 200_000


@pytest.fixture(scope="module")
def run(web_server: ServerProcess) -> str:
    """Two hundred thousand lines, then a few a second."""
    env = {"LINES": str(LINES), "STEPS": "100000", "PACE": "0.02"}
    phase = {"name": "train", "command": [sys.executable, "charted.py"], "env": env}
    found = web_server.submit(phase, name="talkative", directory=PROGRAMS).id
    until(lambda: lines_of(web_server, found) > LINES, what="all lines", within=60)
    return found


def lines_of(server: ServerProcess, run: str) -> int:
    headers = {"Authorization": f"Bearer {server.token}"}
    sizes = httpx2.get(f"{server.url}/api/v1/runs/{run}/logs/size", headers=headers).json()
    return sum(size["lines"] for size in sizes)


def rows(page: Any) -> list[str]:
    found: list[str] = page.locator(".log-row .log-text").all_inner_texts()
    return found


def test_the_end_is_followed_until_somebody_scrolls_up(
    web_server: ServerProcess, run: str, page_of: Callable[..., Any], check_page: Callable[..., None]
) -> None:
    page = page_of(web_server)
    page.goto(f"/runs/{run}?tab=logs")
    until(lambda: any("INFO step" in text for text in rows(page)), what="the newest lines")
    newest = rows(page)[-1]
    until(lambda: rows(page) and rows(page)[-1] != newest, what="a newer line without a reload")
    box = page.locator(".log-box")
    box.focus()
    page.keyboard.press("Home")
    until(lambda: any("<img src=x" in text for text in rows(page)), what="the first lines")
    assert page.locator(".log-box img").count() == 0
    assert page.locator(".log-box b").count() == 0
    assert "owned" not in page.title()
    assert page.locator(".log-row .ansi-1").first.inner_text() == "red words"
    page.get_by_role("button", name="Show all of line").first.click()
    assert page.locator(".log-opened pre").inner_text().count("x") == 3000
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # as without HTTPS
    page.locator(".log-opened").get_by_role("button", name="Copy").click()
    page.get_by_text(re.compile(r"Line \d+ is copied")).wait_for()
    page.locator(".log-opened").get_by_role("button", name="Close").click()
    check_page(page, "run-logs")
    page.get_by_role("button", name="Jump to newest").click()
    until(lambda: any("INFO step" in text for text in rows(page)), what="the newest lines again")


def test_two_hundred_thousand_lines_are_scrolled_with_few_rows_in_the_page(
    web_server: ServerProcess, run: str, page_of: Callable[..., Any]
) -> None:
    page = page_of(web_server)
    page.goto(f"/runs/{run}?tab=logs")
    page.locator(".log-row").first.wait_for()
    box = page.locator(".log-box")
    until(lambda: box.evaluate("box => box.scrollTop") > 0, what="its end, where it begins")
    for part in (0.25, 0.5, 0.75, 0.1):
        box.evaluate("(box, part) => { box.scrollTop = box.scrollHeight * part; }", part)
        expected = int(part * LINES)

        def there(expected: int = expected) -> bool:
            numbers = [int(text.split()[1]) for text in rows(page) if text.startswith("line ")]
            return bool(numbers) and abs(numbers[0] - expected) < LINES * 0.02 and numbers == sorted(numbers)

        until(there, what=f"lines around {expected}")
        assert page.locator(".log-row").count() < 300
    assert page_of.errors(page) == []  # type: ignore[attr-defined]


def test_a_search_goes_through_the_whole_log_and_levels_leave_the_rest_out(
    web_server: ServerProcess, run: str, page_of: Callable[..., Any]
) -> None:
    page = page_of(web_server)
    page.goto(f"/runs/{run}?tab=logs")
    search = page.get_by_label("Search the log")
    search.fill("NEEDLE in")
    until(lambda: page.locator(".log-hits").inner_text() == "1 match", what="the match")
    page.get_by_role("button", name="Previous match").click()
    page.locator(".log-row.is-current mark").wait_for()
    assert page.locator(".log-row.is-current mark").inner_text() == "needle in"
    page.wait_for_url(lambda url: "find=NEEDLE" in url)
    page.get_by_label("Only matches").check()
    until(lambda: len(rows(page)) == 1, what="the match alone")
    page.get_by_role("link", name="Logs", exact=True).click()
    until(lambda: search.input_value() == "", what="a box that says what is searched for")
    page.get_by_label("Level").select_option("warning")
    until(lambda: len(rows(page)) == 2, what="the warning and the error")
    assert [text.split()[0] for text in rows(page)] == ["WARNING", "ERROR"]


def test_a_log_can_be_kept_as_a_file(web_server: ServerProcess, run: str, page_of: Callable[..., Any]) -> None:
    page = page_of(web_server)
    page.goto(f"/runs/{run}?tab=logs")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    text = Path(download.value.path()).read_text()
    assert download.value.suggested_filename.endswith(".log")
    assert text.count("of many\n") == LINES


MILLION = """async () => {
    const base = document.querySelector("script[type=module]").src.replace("app.js", "");
    const {html, render} = await import(base + "lib.js");
    const {VirtualList} = await import(base + "run/logs-list.js");
    const place = document.createElement("div");
    document.body.prepend(place);
    const row = (index) => html`<div class="log-row">row ${index}</div>`;
    const list = html`<${VirtualList} count=${1000000} row=${row} follow=${false} onFollow=${() => {}} label="rows" />`;
    render(list, place);
}"""
MEASURED = "box => box.querySelector('.log-window').offsetHeight === box.clientHeight"
SEEN = """box => {
    const edge = box.getBoundingClientRect();
    return [...box.querySelectorAll(".log-row")].filter((row) => {
        const place = row.getBoundingClientRect();
        return place.top >= edge.top - 1 && place.bottom <= edge.bottom + 1;
    }).map((row) => Number(row.textContent.slice(4)));
}"""


def test_the_last_of_a_million_rows_is_reached_and_a_wheel_moves_by_rows(
    web_server: ServerProcess, page_of: Callable[..., Any]
) -> None:
    page = page_of(web_server)
    page.goto("/queue")
    page.evaluate(MILLION)
    box = page.locator(".log-box")
    until(lambda: box.evaluate(MEASURED), what="the box to know its height")
    box.focus()
    page.keyboard.press("End")
    until(lambda: box.evaluate(SEEN)[-1] == 999_999, what="the last row")
    box.hover()
    page.mouse.wheel(0, -100)
    until(lambda: box.evaluate(SEEN)[-1] == 999_994, what="five rows up")
    box.evaluate("box => { box.scrollTop = (box.scrollHeight - box.clientHeight) / 2; }")
    until(lambda: abs(box.evaluate(SEEN)[0] - 500_000) < 100, what="the middle")
    page.keyboard.press("Home")
    until(lambda: box.evaluate(SEEN)[0] == 0, what="the first row")
    assert page.locator(".log-row").count() < 300
