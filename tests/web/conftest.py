"""A real browser against real servers: `page_of(server)` is a signed-in page, `check_page(page, name)` judges it."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Route, expect, sync_playwright

from whistlestop.testing.missing import missing, needed
from whistlestop.testing.server import ServerProcess

SCREENS = Path(__file__).parents[2] / "build" / "screens"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
# What is serious, in words. Only that is sent back: all that axe has to say is many times as much as the page.
AXE = """options => axe.run(document, options).then(({ violations }) => violations
  .filter(({ impact }) => ["serious", "critical"].includes(impact))
  .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 5).map(({ target }) => target)}`))"""
PATIENCE = 60_000  # milliseconds: a machine with much else to do takes its time
expect.set_options(timeout=PATIENCE)
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


class Chromium:
    """One browser for all tests of this directory that follow each other. Not for longer: until it is stopped,
    Playwright keeps an event loop running in this thread, and other tests could start none of their own."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._browser: Browser | None = None

    def browser(self) -> Browser:
        if self._browser is None or not self._browser.is_connected():
            self.stop()
            chromium = shutil.which("chromium") or shutil.which("google-chrome")
            if chromium is None:
                missing("no chromium: apt-get install chromium")
            playwright = self._stack.enter_context(sync_playwright())
            self._browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=list(FLAGS))
            self._stack.callback(self._browser.close)
        return self._browser

    def stop(self) -> None:
        self._browser = None
        self._stack.close()


CHROMIUM = Chromium()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        CHROMIUM.stop()


def pytest_unconfigure() -> None:
    CHROMIUM.stop()  # a session that was cut short


@pytest.fixture
def browser() -> Browser:
    return CHROMIUM.browser()


@pytest.fixture(scope="module")
def web_server() -> Iterator[ServerProcess]:
    """One server for a whole module."""
    directory = Path(tempfile.mkdtemp(prefix="whistle-"))
    with ServerProcess(directory / "server") as started:
        yield started
    shutil.rmtree(directory, ignore_errors=True)


class Pages:
    """Makes pages, and hears what they complain about."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._errors: dict[Page, list[str]] = {}

    def __call__(self, server: ServerProcess, token: str | None = None, **context: Any) -> Page:
        """Signed in with `token` (default: the server's own; "" for nobody), at no address yet: `page.goto("/")`."""
        made = self._browser.new_context(**{"base_url": server.url, "viewport": WIDE, **context})
        self._contexts.append(made)
        if token != "":
            name, value = session_of(server, token)
            made.add_cookies([{"name": name, "value": value, "url": server.url}])
        page = made.new_page()
        page.set_default_timeout(PATIENCE)
        errors = self._errors[page] = []
        page.on("console", lambda message: errors.append(message.text) if _is_error(message) else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        return page

    def errors(self, page: Page) -> list[str]:
        """What the page has complained about since the last look."""
        found = list(self._errors[page])
        self._errors[page].clear()
        return found

    def close(self) -> None:
        for context in self._contexts:
            context.close()


def _is_error(message: ConsoleMessage) -> bool:
    return message.type == "error" or "Content Security Policy" in message.text


def session_of(server: ServerProcess, token: str | None = None) -> tuple[str, str]:
    """The cookie of a new session: its name and its value."""
    answer = httpx2.post(f"{server.url}/session", json={"token": token or server.token})
    assert answer.status_code == 204, answer.text
    ((name, value),) = answer.cookies.items()
    return name, value


@pytest.fixture
def page_of(browser: Browser) -> Iterator[Pages]:
    pages = Pages(browser)
    yield pages
    pages.close()


@pytest.fixture
def refused() -> Callable[..., AbstractContextManager[None]]:
    """`with refused(page, address):` nothing gets through to it until the block ends. `answer`: done instead."""

    @contextmanager
    def cut(page: Page, address: Any, answer: Callable[[Route], Any] = Route.abort) -> Iterator[None]:
        closed = True
        # Never unrouted: a request that is on its way while Playwright takes a handler out may never be answered.
        page.route(address, lambda route: answer(route) if closed else route.continue_())
        yield
        closed = False

    return cut


@pytest.fixture
def check_page(page_of: Pages) -> Callable[[Page, str], None]:
    """axe finds nothing serious in light and dark, the page is never wider than the screen, nothing complained.

    With WHISTLE_SCREENS=1 screenshots go to build/screens/NAME-light.png, -dark.png and -narrow.png.
    """
    script = needed("axe_playwright_python.base").AXE_SCRIPT
    shots = bool(os.environ.get("WHISTLE_SCREENS"))

    def shoot(page: Page, name: str) -> None:
        if shots:
            page.screenshot(path=SCREENS / f"{name}.png", full_page=True)

    def check(page: Page, name: str) -> None:
        assert re.fullmatch(r"[a-z0-9-]+", name)
        SCREENS.mkdir(parents=True, exist_ok=True)
        size = page.viewport_size or WIDE
        page.evaluate(script)
        expect(page.locator(".is-loading")).to_have_count(0)  # a list that is asked for anew is dimmed
        # Of all that axe looks at, colours alone differ between the two.
        for look, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
            page.emulate_media(color_scheme=look, reduced_motion="reduce")  # type: ignore[arg-type]
            shoot(page, f"{name}-{look}")
            found = page.evaluate(AXE, {"resultTypes": ["violations"], **rules})
            assert found == [], f"{name}, {look}: {found}"
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(NARROW)
        shoot(page, f"{name}-narrow")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=None, reduced_motion=None)
        assert wide <= 0, f"{name} is {wide} pixels wider than a phone"
        assert page_of.errors(page) == [], name

    return check


def is_there(page: Page, selector: str) -> bool:
    """For `until`: a page that is on its way to another one answers with an error."""
    try:
        return page.locator(selector).first.is_visible()
    except Error:
        return False
