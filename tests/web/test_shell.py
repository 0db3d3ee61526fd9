"""The frame around every page: who may load it, what it may load, and what it does when the server goes away."""

import http.client
import importlib.util
import re
import socket
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

import whistlestop
from whistlestop.cli import words
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import ProgressView

PAGES = (
    "/",
    "/projects/a%20b",
    "/projects/x/workflows",
    "/new?workflow=w",
    "/runs/12?tab=logs",
    "/queue",
    "/pools",
    "/hosts",
    "/usage",
    "/alerts",
    "/sign-in",
)


def raw(server: ServerProcess, path: str, method: str = "GET") -> tuple[int, bytes]:
    """As it is written: a client that means well tidies the dots up."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def static(server: ServerProcess, name: str) -> str:
    """The address of a file as the shell gives it."""
    found = re.search(r'/static/(\w+)/app\.js"></script>', httpx2.get(server.url).text)
    assert found
    return f"{server.url}/static/{found[1]}/{name}"


def in_page(page: Any, script: str, argument: Any = None) -> Any:
    """Runs in the page, with `load(name)` for the dashboard's own modules: the very ones the page uses."""
    return page.evaluate(
        f"""async (argument) => {{
            const base = document.querySelector("script[type=module]").src.replace("app.js", "");
            const load = (name) => import(base + name);
            {script}
        }}""",
        argument,
    )


def holds(page: Any, expression: str) -> None:
    """Waits for it. Playwright's own `wait_for_function` evaluates in the page, which our policy forbids."""
    until(lambda: page.evaluate(expression), what=expression)


def test_every_page_address_serves_the_shell_to_anybody(web_server: ServerProcess) -> None:
    for path in PAGES:
        answer = httpx2.get(web_server.url + path)
        assert answer.status_code == 200, path
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        assert "<script>" not in answer.text
        assert "style=" not in answer.text
    assert raw(web_server, "/", "HEAD")[0] == 200


def test_an_unknown_address_is_a_page_for_people_and_a_problem_for_scripts(web_server: ServerProcess) -> None:
    person = httpx2.get(f"{web_server.url}/no/such", headers={"Accept": "text/html,*/*"})
    assert (person.status_code, person.headers["content-type"]) == (404, "text/html; charset=utf-8")
    script = httpx2.get(f"{web_server.url}/no/such")
    assert (script.status_code, script.json()["code"]) == (404, "not_found")
    token = {"Authorization": f"Bearer {web_server.token}", "Accept": "text/html"}
    assert httpx2.get(f"{web_server.url}/api/v1/nothing", headers=token).json()["code"] == "not_found"
    assert httpx2.get(f"{web_server.url}/healthz").json() == {"status": "ok"}


def test_answers_carry_the_headers_that_keep_browsers_strict(web_server: ServerProcess) -> None:
    page = httpx2.get(web_server.url).headers
    policy = page["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    for path in ("/", "/healthz", "/api/v1/runs", "/static/x/app.js", "/static/x/none.js"):
        headers = httpx2.get(web_server.url + path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_files_are_kept_for_good_under_the_address_of_their_version(web_server: ServerProcess) -> None:
    address = static(web_server, "app.js")
    answer = httpx2.get(address)
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["content-encoding"] == "gzip"
    plain = httpx2.get(address, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == answer.text
    assert raw(web_server, urlsplit(address).path) == (200, plain.content)
    old = httpx2.get(f"{web_server.url}/static/0000/app.js")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    assert httpx2.get(static(web_server, "css/tokens.css")).headers["content-type"] == "text/css; charset=utf-8"


@pytest.mark.parametrize(
    "name",
    [
        "none.js",
        "index.html",
        "../pages.py",
        "../../app.py",
        "%2e%2e/pages.py",
        "..%2fpages.py",
        "%2e%2e%2f%2e%2e%2fapp.py",
        "..%5cpages.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "ui/../../pages.py",
        "ui/../app.js",
        "",
        "ui",
        "ui/",
    ],
)
def test_nothing_but_the_listed_files_can_be_had(web_server: ServerProcess, name: str) -> None:
    status, body = raw(web_server, f"/static/x/{name}")
    assert status in (307, 404), name
    assert b"import" not in body
    assert b"root:" not in body


def test_the_vendored_libraries_are_what_the_record_says() -> None:
    tool = _load(Path(__file__).parents[2] / "tools" / "vendor.py")
    assert tool.differences() == []
    for package in tool.PACKAGES:
        assert any(name.endswith("LICENSE") for name in package.files.values()), package.name


def test_no_module_of_ours_reaches_for_another_host_or_for_eval() -> None:
    root = Path(whistlestop.__file__).parent / "server" / "web" / "static"
    for path in root.rglob("*"):
        if path.suffix not in (".js", ".css") or path.parent.name == "vendor":
            continue
        text = path.read_text()
        for word in ("http://", "https://", "eval(", "new Function", "innerHTML", "dangerouslySetInnerHTML"):
            assert word not in text, f"{path.name}: {word}"
        for source in re.findall(r'from "([^"]+)"', text):
            assert source.startswith("."), f"{path.name} imports {source}"


def test_the_frame_names_the_person_the_page_and_the_connection(
    web_server: ServerProcess, page_of: Any, check_page: Any
) -> None:
    page = page_of(web_server)
    page.goto("/queue")
    page.get_by_role("navigation", name="Areas").get_by_role("link", name="Queue").wait_for()
    assert page.locator("[aria-current=true]").inner_text() == "Queue"
    assert page.locator(".who").inner_text().split() == ["local", "admin"]
    page.locator("[data-connection=live]").wait_for()
    assert page.title() == "Queue · Whistlestop"
    page.get_by_role("link", name="Training", exact=True).click()
    page.wait_for_url("**/")
    holds(page, "document.title === 'Training · Whistlestop'")
    page.goto("/no/such/page")
    page.get_by_text("There is no such page").wait_for()
    page_of.errors(page)  # the browser itself reports the 404
    check_page(page, "not-found")


def test_the_keyboard_skips_to_the_page_and_shows_the_shortcuts(
    web_server: ServerProcess, page_of: Any, check_page: Any
) -> None:
    page = page_of(web_server)
    page.goto("/no/such/page")
    page.get_by_text("There is no such page").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    dialog.wait_for()
    page_of.errors(page)
    check_page(page, "shortcuts")
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/queue")


def test_a_menu_is_worked_by_keys_and_says_why_something_is_not_possible(
    web_server: ServerProcess, page_of: Any
) -> None:
    page = page_of(web_server)
    page.goto("/no/such/page")
    page.locator("main").wait_for()
    in_page(
        page,
        """
        const {html, render} = await load("lib.js");
        const {Menu} = await load("ui/index.js");
        window.chosen = [];
        const items = [
            {label: "Stop", onSelect: () => chosen.push("stop")},
            {label: "Pause", disabled: true, why: "it has ended", onSelect: () => chosen.push("pause")},
            {label: "Kill", danger: true, onSelect: () => chosen.push("kill")},
        ];
        const place = document.createElement("div");
        document.body.append(place);  // not in what the page itself draws anew
        render(html`<${Menu} label="Actions of #1" items=${items} />`, place);
        """,
    )
    page.get_by_role("button", name="Actions of #1").focus()
    page.keyboard.press("ArrowDown")
    page.get_by_role("menu").wait_for()
    assert page.get_by_role("menuitem", name="Pause").inner_text().split("\n") == ["Pause", "it has ended"]
    for key in ("ArrowDown", "Enter", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp", "ArrowUp", "k", "Enter"):
        page.keyboard.press(key)
    assert page.evaluate("chosen") == ["kill"]
    assert page.get_by_role("menu").count() == 0
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Actions of #1"


def test_a_page_that_breaks_says_so_and_leaves_the_frame_alone(
    web_server: ServerProcess, page_of: Any, refused: Any
) -> None:
    page = page_of(web_server)
    with refused(page, "**/pages/queue.js", lambda route: route.fulfill(status=404)):
        page.goto("/queue")
        page.get_by_role("heading", name="This page could not be shown").wait_for()
        page.get_by_role("button", name="Sign out").wait_for()
    broken = "export default function Page() { throw new Error('a mistake of ours'); }"
    page.route(
        "**/pages/queue.js", lambda route: route.fulfill(status=200, content_type="text/javascript", body=broken)
    )
    page.reload()
    page.get_by_text("a mistake of ours").wait_for()
    page.get_by_role("link", name="Training", exact=True).wait_for()


def test_numbers_read_the_same_in_the_dashboard_and_on_the_command_line(
    web_server: ServerProcess, page_of: Any
) -> None:
    page = page_of(web_server, token="")
    page.goto("/sign-in")
    seconds = [0, 0.9, 42, 60, 192, 3600, 3900, 86399, 86400, 97200, None]
    values = [0, 1, -1.5, 0.001, 0.00099, 0.12345, 12.34567, 1234.5, 999999, 1e6, 1e-7, -3.2e12, 1e100]
    sizes = [0, 1, 1023, 1024, 1536, 5e6, 7e9, 3e12, 9e15]
    fractions = [0, 0.5, 0.999, 1]
    amounts = [0, 0.005, 1.5, 1234.567, None]
    places = [
        {"step": 0},
        {"step": 0, "total": 10},
        {"step": 120, "total": 1000, "epoch": 3},
        {"step": 1234567, "epoch": 0},
    ]
    told = in_page(
        page,
        """
        const format = await load("format.js");
        return Object.entries(argument).map(([name, given]) => given.map((value) => format[name](value)));
        """,
        {
            "length": seconds,
            "number": values,
            "bytes": sizes,
            "percent": fractions,
            "credits": amounts,
            "steps": places,
        },
    )
    assert told == [
        [words.length(value) for value in seconds],
        [words.number(value) for value in values],
        [words.size(value) for value in sizes],
        [words.percent(value).strip() for value in fractions],
        [words.amount(value) for value in amounts],
        [words.steps(ProgressView.model_validate(place)) for place in places],
    ]


def test_a_stream_cut_anywhere_gives_the_same_messages(web_server: ServerProcess, page_of: Any) -> None:
    page = page_of(web_server, token="")
    page.goto("/sign-in")
    text = (
        ': hello\nretry: 500\n\nevent: run\nid: e1;l;m\ndata: {"a":\ndata: 1}\n\nevent: end\r\nid: 2\r\ndata:{}\r\n\r\n'
    )
    told = in_page(
        page,
        """
        const {parser} = await load("live.js");
        return [1, 2, 3, 7, 1000].map((size) => {
            const got = [];
            const parse = parser((message) => got.push([message.kind, message.id, message.data]));
            for (let at = 0; at < argument.length; at += size) parse(argument.slice(at, at + size));
            return got;
        });
        """,
        text,
    )
    assert told == [[["run", "e1;l;m", '{"a":\n1}'], ["end", "2", "{}"]]] * 5


def test_a_lost_server_shows_as_such_and_the_page_goes_on_when_it_is_back(
    start_server: Callable[..., ServerProcess], page_of: Any, check_page: Any
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = start_server(extra=("--port", str(port)))
    page = page_of(server)
    page.goto("/no/such/page")
    page.locator("[data-connection=live]").wait_for()
    in_page(
        page,
        """
        const {follow} = await load("live.js");
        window.seen = [];
        const heard = (run) => { if (run.status === "completed") seen.push(run.name); };
        follow("/stream", {on: {run: heard}});
        """,
    )
    server.submit({"name": "t", "kind": "task", "command": "true"}, name="before")
    holds(page, "seen.includes('before')")
    server.wait("before")
    page_of.errors(page)
    server.kill()
    page.locator("[data-connection=lost]").wait_for()
    page.get_by_text("The server does not answer.").wait_for()
    page_of.errors(page)
    page.evaluate("window.seen = []")
    server.start()
    page.locator("[data-connection=live]").wait_for()
    page.get_by_text("The server does not answer.").wait_for(state="detached")
    server.submit({"name": "t", "kind": "task", "command": "true"}, name="after")
    holds(page, "seen.includes('after')")
    assert "before" not in page.evaluate("seen")  # it went on where it was
    page.locator("[data-connection=live]").wait_for()


def test_a_tab_that_nobody_sees_gives_its_connection_back_and_goes_on_where_it_was(
    web_server: ServerProcess, page_of: Any
) -> None:
    page = page_of(web_server)
    page.clock.install()
    page.goto("/no/such/page")
    page.locator("[data-connection=live]").wait_for()
    look = """(hidden) => {
        Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    in_page(
        page,
        """
        const {follow} = await load("live.js");
        window.seen = [];
        follow("/stream", {on: {run: (run) => seen.push(run.name)}});
        """,
    )
    web_server.submit({"name": "t", "kind": "task", "command": "true"}, name="seen")
    holds(page, "seen.includes('seen')")
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/api/v1/stream")):
        page.evaluate(look, True)
        page.clock.fast_forward(31_000)
    web_server.submit({"name": "t", "kind": "task", "command": "true"}, name="meanwhile")
    web_server.wait("meanwhile")
    assert page.evaluate("seen.includes('meanwhile')") is False
    page.evaluate(look, False)
    holds(page, "seen.includes('meanwhile')")
    assert page.locator("[data-connection=live]").count() == 1


def test_a_refusal_of_something_in_between_and_a_question_without_an_answer_show_as_lost(
    web_server: ServerProcess, page_of: Any, refused: Any
) -> None:
    page = page_of(web_server)
    page.clock.install()
    page.goto("/no/such/page")
    page.locator("[data-connection=live]").wait_for()
    with refused(page, "**/api/v1/stream", lambda route: route.fulfill(status=404, body="a proxy's own page")):
        in_page(
            page,
            """
            const {follow} = await load("live.js");
            window.ended = false;
            window.seen = false;
            const on = {end: () => { ended = true; }, run: () => { seen = true; }};
            window.close = follow("/stream", {on});
            window.wait = () => { close(); follow("/stream", {on, prepare: () => new Promise(() => {})}); };
            """,
        )
        page.locator("[data-connection=lost]").wait_for()
    page.locator("[data-connection=live]").wait_for()
    web_server.submit({"name": "t", "kind": "task", "command": "true"}, name="told")
    holds(page, "seen && !ended")
    page.evaluate("wait()")

    def lost() -> bool:
        page.clock.fast_forward(41_000)
        return bool(page.locator("[data-connection=lost]").count())

    until(lost, what="a stream that is not opened shows as lost")


def test_an_event_during_a_question_asks_once_more_after_its_answer(web_server: ServerProcess, page_of: Any) -> None:
    page = page_of(web_server, token="")
    page.goto("/sign-in")
    in_page(
        page,
        """
        const {html, render} = await load("lib.js");
        const {useAsking} = await load("asking.js");
        window.asked = [];
        window.shown = [];
        const Part = () => {
            [window.ask, window.askSoon] = useAsking(async (wanted) => {
                const number = asked.length + 1;
                await new Promise((answer) => asked.push(answer));
                if (wanted()) shown.push(number);
            });
            return null;
        };
        render(html`<${Part} />`, document.createElement("div"));
        ask();
        """,
    )
    page.evaluate("askSoon(); askSoon(); new Promise((pass) => setTimeout(pass, 100))")
    assert page.evaluate("asked.length") == 1
    page.evaluate("asked[0]()")
    holds(page, "asked.length === 2")
    page.evaluate("void ask()")  # another question: what the one before asked is of no interest
    page.evaluate("asked[2](), asked[1]()")
    holds(page, "shown.length === 2")
    assert page.evaluate("shown") == [1, 3]


def test_a_module_that_comes_between_the_drawing_and_its_effect_is_shown(
    web_server: ServerProcess, page_of: Any
) -> None:
    page = page_of(web_server, token="")
    page.goto("/sign-in")
    in_page(
        page,
        """
        const {html, render} = await load("lib.js");
        const {preload, useModule} = await load("modules.js");
        const place = document.createElement("div");
        document.body.append(place);
        const Part = () => html`<p>${useModule("./ui/bar.js")[0] ? "it is there" : "it is awaited"}</p>`;
        const [later, idle] = [globalThis.setTimeout, globalThis.requestIdleCallback];
        const effects = [];
        globalThis.setTimeout = (act) => effects.push(act);  // they wait for this
        globalThis.requestIdleCallback = (act) => act();
        render(html`<${Part} />`, place);
        preload(["./ui/bar.js"]);
        await new Promise((pass) => later(pass, 300));
        Object.assign(globalThis, {setTimeout: later, requestIdleCallback: idle});
        for (const act of effects) act();
        """,
    )
    page.get_by_text("it is there").wait_for()


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
