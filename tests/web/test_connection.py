"""What a page does about its connection: it leaves some to other tabs, and it asks again until it is answered."""

import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

Pages = Callable[..., Any]
Refused = Callable[..., Any]
PROGRAMS = Path(__file__).parent / "programs"
TABS = 8  # a browser has six connections to a server
HIDDEN = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => true});"
TASK = {"name": "t", "kind": "task", "command": "true"}
MODULE = """async () => {
    const base = document.querySelector("script[type=module]").src.replace("app.js", "");
    const {api, now} = await import(base + "api.js");
    await api.get("/whoami");
    return now();
}"""
GROWN = """async () => {
    const base = document.querySelector("script[type=module]").src.replace("app.js", "");
    const {LogStore} = await import(base + "run/logs-store.js");
    const store = new LogStore("1", () => {});
    const add = (line) => store.grow({attempt: 1, phase: "t", rank: 0, line, text: `line ${line}`});
    for (let line = 1; line <= 100_000; line++) add(line);
    return [store.line(1, 1)?.text ?? null, store.line(1, 100_000).text];
}"""


@pytest.fixture(scope="module")
def run(web_server: ServerProcess) -> str:
    env = {"LINES": "5000", "STEPS": "100000", "PACE": "0.02"}
    phase = {"name": "train", "command": [sys.executable, "charted.py"], "env": env}
    return web_server.submit(phase, name="talkative", project="p", directory=PROGRAMS).id


class Streams:
    """Those that a page has open."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._open: set[Any] = set()
        page.on("request", lambda request: self._open.add(request) if "/stream" in request.url else None)
        page.on("requestfailed", lambda request: self._open.discard(request))
        page.on("requestfinished", lambda request: self._open.discard(request))

    def now(self) -> list[Any]:
        self._page.evaluate("1")  # what the browser has told meanwhile is only heard during a question
        return list(self._open)


@pytest.mark.long
def test_however_many_tabs_are_open_each_one_works_and_hears_what_is_new(
    web_server: ServerProcess, page_of: Pages, run: str
) -> None:
    first = page_of(web_server)
    tabs = [first, *(first.context.new_page() for _ in range(TABS - 1))]
    streams = [Streams(tab) for tab in tabs]
    for tab in tabs:
        tab.goto("/projects/p", timeout=60_000)
        tab.locator(f"[data-run='{run}']").wait_for(timeout=60_000)
    until(lambda: all(one.now() for one in streams[-4:]), what="the streams of those that were looked at last")
    started = web_server.submit(TASK, name="newer", project="p").id
    for tab in tabs:
        tab.locator(f"[data-run='{started}']").wait_for(timeout=60_000)
        assert tab.locator("[data-connection=live]").count() == 1
    first.evaluate("dispatchEvent(new Event('focus'))")
    until(lambda: streams[0].now() and not streams[-4].now(), what="the stream of the one that is looked at")


def test_a_tab_that_was_opened_in_the_background_gives_its_connection_back(
    web_server: ServerProcess, page_of: Pages, refused: Refused
) -> None:
    ended = web_server.submit(TASK, name="ended", project="background").id
    web_server.wait(ended)
    page = page_of(web_server)
    page.add_init_script(HIDDEN)
    page.clock.install()
    streams = Streams(page)
    with refused(page, "**/api/v1/sparklines*"):
        with page.expect_event("requestfailed", lambda request: "/sparklines" in request.url):
            page.goto("/projects/background")
        until(streams.now, what="the stream")
    page.evaluate(HIDDEN.replace("=> true", "=> false"))
    with page.expect_response(lambda answer: "/sparklines" in answer.url and ended in answer.url):  # once more
        page.clock.fast_forward(11_000)
    page.evaluate(HIDDEN)
    page.clock.fast_forward(31_000)
    until(lambda: not streams.now(), what="the end of the stream")


def test_the_log_comes_by_the_run_s_own_stream_which_begins_at_its_end(
    web_server: ServerProcess, page_of: Pages, run: str
) -> None:
    with web_server.client() as client:  # there is an end, far from the beginning
        until(lambda: any("INFO step" in line.text for line in client.logs(run, tail=5).lines), what="its lines")
    page = page_of(web_server)
    streams = Streams(page)
    page.goto(f"/runs/{run}?tab=logs")
    until(lambda: "INFO step" in page.locator(".log-row").last.inner_text(), what="the newest line")
    newest = page.locator(".log-row").last.inner_text()
    until(lambda: page.locator(".log-row").last.inner_text() != newest, what="a newer line")
    (stream,) = streams.now()
    assert "logs" in stream.url
    place = stream.all_headers()["last-event-id"]
    assert re.fullmatch(r"e\d+;l1:\d{4,};m", place), place
    page.get_by_role("link", name="Charts").click()
    page.locator(".chart-grid").first.wait_for()
    until(lambda: ["series" in stream.url for stream in streams.now()] == [True], what="another stream")


def test_a_log_that_grows_for_days_does_not_fill_the_memory(web_server: ServerProcess, page_of: Pages) -> None:
    page = page_of(web_server)
    page.goto("/no/such/page")
    assert page.evaluate(GROWN) == [None, "line 100000"]


def test_a_part_of_the_page_that_could_not_be_loaded_comes_when_the_server_is_back(
    web_server: ServerProcess, page_of: Pages, refused: Refused, run: str
) -> None:
    shown = []
    with ExitStack() as stack:
        for module, address, found in (
            ("run/charts.js", f"/runs/{run}?tab=charts", ".chart-grid"),
            ("run/logs.js", f"/runs/{run}?tab=logs", ".log-row"),
            ("pages/queue.js", "/queue", ".pool"),
            ("actions/index.js", f"/runs/{run}", ".run-verbs button:enabled >> text=Kill"),
        ):
            page = page_of(web_server)
            stack.enter_context(refused(page, f"**/{module}*"))
            with page.expect_event("requestfailed", partial(_is_of, module)):
                page.goto(address)
            shown.append(page.locator(found).first)
    for part in shown:
        part.wait_for()


def _is_of(module: str, request: Any) -> bool:
    return module in request.url


def test_what_was_not_answered_is_asked_again_until_it_is(
    web_server: ServerProcess, page_of: Pages, refused: Refused, run: str
) -> None:
    asked = []
    with ExitStack() as stack:
        for question, address, found in (
            ("/api/v1/runs?", "/projects/p", "[data-run]"),
            ("/api/v1/queue", "/queue", ".pool"),
            ("/api/v1/projects", "/", "[data-project]"),
            ("/api/v1/projects/p/workflows", "/projects/p/workflows", "text=No workflows yet"),
            ("/series", f"/runs/{run}?tab=charts", ".chart-grid"),
            ("/logs/size", f"/runs/{run}?tab=logs", ".log-row"),
        ):
            page = page_of(web_server)
            stack.enter_context(refused(page, re.compile(re.escape(question))))
            page.goto(address)
            page.locator("main .problem").first.wait_for()
            asked.append((page, found))
    for page, found in asked:
        page.locator(found).first.wait_for()
        page.locator("main .problem").wait_for(state="detached")


def test_a_page_that_is_left_open_goes_on_telling_how_long_ago_it_was(
    web_server: ServerProcess, page_of: Pages, run: str
) -> None:
    page = page_of(web_server)
    page.clock.install()
    page.goto("/")
    page.locator("[data-project=p]").wait_for()
    page.clock.fast_forward(2 * 3600 * 1000)
    page.locator("[data-project=p]").get_by_text("2 hours ago").wait_for()


def test_times_are_counted_by_the_server_s_clock(web_server: ServerProcess, page_of: Pages) -> None:
    page = page_of(web_server)
    page.clock.install(time="2001-01-01T00:00:00")
    page.goto("/no/such/page")
    before = page.evaluate(MODULE) / 1000
    with web_server.client() as client:
        created = client.run(web_server.submit(TASK, name="timed").id).created_at
    assert abs(before - datetime.fromisoformat(created).timestamp()) < 60
