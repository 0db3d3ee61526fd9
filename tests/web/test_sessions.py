"""Signing in to the dashboard: by token, by a link that works once; what a cookie may do, and what ends it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from whistlestop.testing.server import ServerProcess

SPEC = {"spec": "name: x\ncommand: 'true'\nkind: task\n"}


@pytest.fixture
def visitor(web_server: ServerProcess) -> Iterator[httpx2.Client]:
    """Keeps cookies as a browser does."""
    with httpx2.Client(base_url=web_server.url) as client:
        yield client


def sign_in(client: httpx2.Client, **proof: str) -> str:
    """The session's CSRF value."""
    answer = client.post("/session", json=proof)
    assert answer.status_code == 204, answer.text
    return str(client.get("/api/v1/whoami").json()["csrf"])


def cookie_of(client: httpx2.Client) -> tuple[str, str]:
    """Name and value, as the server has set it."""
    ((name, value),) = client.cookies.items()
    return name, value


def test_a_token_becomes_a_cookie_that_no_script_reads_and_no_foreign_page_sends(
    web_server: ServerProcess, visitor: httpx2.Client
) -> None:
    assert visitor.get("/api/v1/whoami").status_code == 401
    answer = visitor.post("/session", json={"token": web_server.token})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("whistle_session_")
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert parts == {"httponly", "samesite=strict", "path=/", "max-age=2592000"}
    assert web_server.token not in cookie
    who = visitor.get("/api/v1/whoami")
    assert (who.json()["name"], who.json()["role"]) == ("local", "admin")
    assert who.headers["cache-control"] == "no-store"


def test_behind_a_proxy_with_tls_the_cookie_is_secure(web_server: ServerProcess, visitor: httpx2.Client) -> None:
    answer = visitor.post("/session", json={"token": web_server.token}, headers={"X-Forwarded-Proto": "https"})
    assert "secure" in answer.headers["set-cookie"].lower()


def test_a_wrong_token_gets_no_session(visitor: httpx2.Client, web_server: ServerProcess) -> None:
    for proof in ({"token": "whs_wrong"}, {"code": "wrong"}, {"token": web_server.token[:-1]}):
        answer = visitor.post("/session", json=proof)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), proof
        assert "set-cookie" not in answer.headers
    both: dict[str, str] = {"token": web_server.token, "code": "x"}
    assert visitor.post("/session", json=both).status_code == 400
    assert visitor.post("/session", json={}).status_code == 400
    assert visitor.post("/session", content=b"x" * 100_000).status_code == 413


def test_a_request_that_changes_something_needs_the_sessions_own_word(
    web_server: ServerProcess, visitor: httpx2.Client
) -> None:
    csrf = sign_in(visitor, token=web_server.token)
    for headers in ({}, {"X-Whistle-CSRF": ""}, {"X-Whistle-CSRF": "0" * 64}, {"X-Whistle-CSRF": csrf[:-1]}):
        for method, path in (("POST", "/api/v1/runs"), ("PUT", "/api/v1/workflows/x"), ("DELETE", "/session")):
            answer = visitor.request(method, path, json=SPEC, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (method, path, headers)
    answer = visitor.put("/api/v1/workflows/x", json=SPEC, headers={"X-Whistle-CSRF": csrf})
    assert answer.status_code == 200
    with httpx2.Client(base_url=web_server.url) as other:
        foreign = sign_in(other, token=web_server.token)
    assert visitor.put("/api/v1/workflows/x", json=SPEC, headers={"X-Whistle-CSRF": foreign}).status_code == 403


def test_a_page_from_elsewhere_is_refused_even_with_the_cookie(
    web_server: ServerProcess, visitor: httpx2.Client
) -> None:
    csrf = sign_in(visitor, token=web_server.token)
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}):
        answer = visitor.put("/api/v1/workflows/x", json=SPEC, headers={"X-Whistle-CSRF": csrf, **headers})
        assert answer.status_code == 403, headers
        assert visitor.get("/api/v1/runs", headers=headers).status_code == 403, headers
    foreign = visitor.post("/session", json={"token": web_server.token}, headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 403


def test_a_stream_opens_by_cookie_alone(web_server: ServerProcess, visitor: httpx2.Client) -> None:
    sign_in(visitor, token=web_server.token)
    with visitor.stream("GET", "/api/v1/stream") as answer:
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        assert next(answer.iter_lines()).startswith(":")


def test_a_link_signs_in_once(web_server: ServerProcess, visitor: httpx2.Client) -> None:
    link = web_server.client().sign_in_link()
    code = link.partition("#code=")[2]
    assert link == f"{web_server.url}/sign-in#code={code}"
    sign_in(visitor, code=code)
    assert visitor.get("/api/v1/runs").status_code == 200
    with httpx2.Client(base_url=web_server.url) as late:
        answer = late.post("/session", json={"code": code})
        assert (answer.status_code, answer.json()["hint"]) == (401, "whistle open prints a new one")


def test_a_link_makes_nobody_somebody_else_unasked(web_server: ServerProcess, visitor: httpx2.Client) -> None:
    """Another user's page may send a browser to a link of that user's own."""
    made = web_server.client().create_token("mallory", "member")
    sign_in(visitor, token=web_server.token)
    before = visitor.get("/api/v1/whoami").json()["name"]
    made_by = {"Authorization": f"Bearer {made.token}"}
    code = httpx2.post(f"{web_server.url}/api/v1/links", headers=made_by).json()["link"].partition("#code=")[2]
    answer = visitor.post("/session", json={"code": code})
    assert (answer.status_code, answer.json()["code"]) == (409, "signed_in")
    assert answer.json()["detail"] == f"you are signed in as {before}, and this link signs in as mallory"
    assert visitor.get("/api/v1/whoami").json()["name"] == before
    assert visitor.post("/session", json={"code": code, "replace": True}).status_code == 204
    assert visitor.get("/api/v1/whoami").json()["name"] == "mallory"
    web_server.client().revoke_token("mallory")


def test_a_session_makes_no_successor_neither_a_link_nor_a_token(
    web_server: ServerProcess, visitor: httpx2.Client
) -> None:
    csrf = sign_in(visitor, token=web_server.token)
    for path, body in (("links", None), ("tokens", {"name": "successor", "role": "admin"})):
        answer = visitor.post(f"/api/v1/{path}", json=body, headers={"X-Whistle-CSRF": csrf})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path
    assert "successor" not in {token.name for token in web_server.client().tokens()}
    assert visitor.post("/api/v1/links").status_code == 403


def test_the_links_of_up_and_open_are_good(web_server: ServerProcess, visitor: httpx2.Client) -> None:
    printed = next(line for line in web_server.output().splitlines() if line.startswith("Dashboard: "))
    assert sign_in(visitor, code=printed.partition("#code=")[2])
    command = [sys.executable, "-m", "whistlestop", "open", "--json"]
    told = json.loads(subprocess.check_output(command, env=dict(web_server.env)))
    assert sign_in(visitor, code=told["dashboard"].partition("#code=")[2])


def test_signing_out_ends_the_session_for_copies_of_the_cookie_too(
    web_server: ServerProcess, visitor: httpx2.Client
) -> None:
    csrf = sign_in(visitor, token=web_server.token)
    copy = {"Cookie": "=".join(cookie_of(visitor))}
    assert httpx2.get(f"{web_server.url}/api/v1/runs", headers=copy).status_code == 200
    assert visitor.delete("/session", headers={"X-Whistle-CSRF": csrf}).status_code == 204
    assert httpx2.get(f"{web_server.url}/api/v1/runs", headers=copy).status_code == 401
    assert not visitor.cookies


def test_signing_out_of_a_session_that_has_ended_clears_the_cookie_all_the_same(
    web_server: ServerProcess, visitor: httpx2.Client
) -> None:
    csrf = sign_in(visitor, token=web_server.token)
    cookie = "=".join(cookie_of(visitor))
    assert visitor.delete("/session", headers={"X-Whistle-CSRF": csrf}).status_code == 204
    for headers in ({"Cookie": cookie}, {"Cookie": cookie, "X-Whistle-CSRF": csrf}, {}):
        answer = httpx2.delete(f"{web_server.url}/session", headers=headers)
        assert answer.status_code == 204, headers
        assert answer.headers["set-cookie"].startswith(cookie.partition("=")[0] + '=""; ')
        assert "Max-Age=0" in answer.headers["set-cookie"]
    for token, status in ((web_server.token, 400), ("whs_wrong", 401)):
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx2.delete(f"{web_server.url}/session", headers=headers).status_code == status


def test_signing_in_again_ends_the_session_that_this_browser_had(
    web_server: ServerProcess, visitor: httpx2.Client
) -> None:
    sign_in(visitor, token=web_server.token)
    before = {"Cookie": "=".join(cookie_of(visitor))}
    assert visitor.post("/session", json={"token": "whs_wrong"}).status_code == 401
    assert httpx2.get(f"{web_server.url}/api/v1/runs", headers=before).status_code == 200
    sign_in(visitor, token=web_server.token)
    assert visitor.get("/api/v1/runs").status_code == 200
    assert httpx2.get(f"{web_server.url}/api/v1/runs", headers=before).status_code == 401


def test_two_servers_on_one_host_keep_a_browser_signed_in_side_by_side(
    web_server: ServerProcess, start_server: Callable[..., ServerProcess]
) -> None:
    other = start_server()
    with httpx2.Client() as browser:  # to it, as to a browser, all ports of a host are one
        for server in (web_server, other):
            assert browser.post(f"{server.url}/session", json={"token": server.token}).status_code == 204
        for server in (web_server, other):
            assert browser.get(f"{server.url}/api/v1/whoami").status_code == 200


@pytest.mark.parametrize(
    "foreign", ['prefs={"a":1}', "a b=c", "name=José", "flag", "path=/x", 'open="', "=", ";;", "expires=Mon, 1 Jan"]
)
def test_cookies_of_other_programs_on_the_host_lock_nobody_out(
    web_server: ServerProcess, visitor: httpx2.Client, foreign: str
) -> None:
    sign_in(visitor, token=web_server.token)
    for cookies in ((foreign, "=".join(cookie_of(visitor))), ("=".join(cookie_of(visitor)), foreign)):
        headers = {"Cookie": "; ".join(cookies).encode()}
        assert httpx2.get(f"{web_server.url}/api/v1/whoami", headers=headers).status_code == 200, cookies


def test_a_password_for_the_proxy_does_not_hide_the_session(web_server: ServerProcess, visitor: httpx2.Client) -> None:
    sign_in(visitor, token=web_server.token)
    for authorization, status in (("Basic eDp5", 200), ("", 200), ("Bearer whs_wrong", 401), ("Bearer", 401)):
        answer = visitor.get("/api/v1/whoami", headers={"Authorization": authorization})
        assert answer.status_code == status, authorization


def test_a_strangers_cookies_take_nobodys_time(web_server: ServerProcess, visitor: httpx2.Client) -> None:
    """Every request is judged on the one event loop: what takes long here stops the server for all."""
    sign_in(visitor, token=web_server.token)
    name, value = cookie_of(visitor)
    for hostile in (
        f'{name}="' + "\\1" * 15_000 + '"',
        f'{name}="' + '\\"' * 15_000,
        f"{name}=" + "a" * 30_000,
        ";" * 30_000,
        f"{name};" * 1_000,
        "a=b;" * 12_000 + f" {name}={value}",
    ):
        started = time.monotonic()
        answer = httpx2.get(f"{web_server.url}/api/v1/whoami", headers={"Cookie": hostile}, timeout=30)
        assert answer.status_code == 401, hostile[:50]
        assert time.monotonic() - started < 5


def test_a_revoked_token_ends_its_sessions_and_its_links(web_server: ServerProcess, visitor: httpx2.Client) -> None:
    admin = web_server.client()
    made = admin.create_token("guest", "member")
    assert made.token is not None
    sign_in(visitor, token=made.token)
    link = httpx2.post(f"{web_server.url}/api/v1/links", headers={"Authorization": f"Bearer {made.token}"}).json()
    admin.revoke_token("guest")
    answer = visitor.get("/api/v1/runs")
    assert (answer.status_code, answer.json()["detail"]) == (401, "this session has ended")
    code = link["link"].partition("#code=")[2]
    assert httpx2.post(f"{web_server.url}/session", json={"code": code}).status_code == 401


def test_a_session_survives_a_crash_of_the_server_and_its_secret_is_not_on_the_disk(
    start_server: Callable[..., ServerProcess],
) -> None:
    server = start_server()
    with httpx2.Client(base_url=server.url) as visitor:
        csrf = sign_in(visitor, token=server.token)
        name, cookie = cookie_of(visitor)
    server.kill()
    stored = b"".join(path.read_bytes() for path in server.data.glob("whistlestop.db*"))
    assert cookie.encode() not in stored
    assert csrf.encode() not in stored
    server.start()
    answer = httpx2.get(f"{server.url}/api/v1/whoami", headers={"Cookie": f"{name}={cookie}"})
    assert answer.json()["csrf"] == csrf


def test_a_person_signs_in_with_a_token_and_lands_where_they_wanted_to_be(
    web_server: ServerProcess, page_of: Any, check_page: Any
) -> None:
    page = page_of(web_server, token="")
    page.goto("/queue?x=1")
    page.wait_for_url("**/sign-in?next=*")
    page.get_by_role("heading", name="Sign in").wait_for()
    page_of.errors(page)  # the browser itself reports the 401
    check_page(page, "sign-in")
    page.get_by_label("Token").fill("whs_wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").filter(has_text="this server does not know the token").wait_for()
    page.get_by_label("Token").fill(web_server.token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/queue?x=1")
    page.get_by_text("admin", exact=True).wait_for()


def test_a_one_time_link_signs_a_browser_in_and_leaves_no_trace_of_its_code(
    web_server: ServerProcess, page_of: Any
) -> None:
    link = web_server.client().sign_in_link()
    page = page_of(web_server, token="")
    page.goto(link)
    page.wait_for_url(f"{web_server.url}/")
    assert page.locator(".who-name").inner_text() == "local"
    assert page.evaluate("document.cookie") == ""
    late = page_of(web_server, token="")
    late.goto(link)
    late.get_by_text("this link has been used already").wait_for()
    late.wait_for_url(lambda url: "#" not in url)
    late.get_by_label("Token").wait_for()
    late.goto(web_server.client().sign_in_link())  # nothing is loaded: only the fragment is another one
    late.wait_for_url(f"{web_server.url}/")


def test_a_link_of_another_user_is_used_only_after_asking(
    web_server: ServerProcess, page_of: Any, check_page: Any
) -> None:
    made = web_server.client().create_token("mallory", "member")
    page = page_of(web_server)
    made_by = {"Authorization": f"Bearer {made.token}"}
    link = httpx2.post(f"{web_server.url}/api/v1/links", headers=made_by).json()["link"]
    page.goto(f"{web_server.url}{link}")
    page.get_by_text("you are signed in as local, and this link signs in as mallory").wait_for()
    page_of.errors(page)  # the browser itself reports the 409
    check_page(page, "sign-in-other")
    page.get_by_role("button", name="Stay as I am").click()
    page.wait_for_url(f"{web_server.url}/")
    page.get_by_text("local", exact=True).wait_for()
    page.goto(f"{web_server.url}{link}")
    page.get_by_role("button", name="Use the link").click()
    page.wait_for_url(f"{web_server.url}/")
    page.get_by_text("mallory", exact=True).wait_for()
    web_server.client().revoke_token("mallory")


def test_signing_out_leads_to_the_sign_in_page_and_back_takes_nobody_in(
    web_server: ServerProcess, page_of: Any
) -> None:
    page = page_of(web_server)
    page.goto("/")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    page.goto("/queue")
    page.wait_for_url("**/sign-in?next=%2Fqueue")


def test_an_address_after_sign_in_is_never_another_server(web_server: ServerProcess, page_of: Any) -> None:
    page = page_of(web_server, token="")
    page.goto("/sign-in?next=//evil.example/x")
    targets = [
        "/\\evil.example",
        "//evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "",
        "/sign-in",
        ["/a"],
    ]
    leads = page.evaluate(
        """async (targets) => {
            const base = document.querySelector("script[type=module]").src.replace("app.js", "");
            const {safe} = await import(base + "pages/sign_in.js");
            return [...targets, "/runs/1?tab=logs"].map(safe);
        }""",
        targets,
    )
    assert leads == ["/"] * len(targets) + ["/runs/1?tab=logs"]
    page.get_by_label("Token").fill(web_server.token)
    page.keyboard.press("Enter")
    page.locator(".who-name").wait_for()
    assert page.url == f"{web_server.url}/"


def test_a_viewer_is_shown_as_one_and_can_change_nothing(web_server: ServerProcess, page_of: Any) -> None:
    made = web_server.client().create_token("looks-on", "viewer")
    page = page_of(web_server, token=made.token)
    page.goto("/")
    page.locator(".who-role", has_text="viewer").wait_for()
    answer = page.evaluate(
        """async () => {
            const {csrf} = await (await fetch("/api/v1/whoami")).json();
            const headers = {"X-Whistle-CSRF": csrf, "Content-Type": "application/json"};
            const body = '{"verb":"kill","everything":true}';
            return (await fetch("/api/v1/bulk", {method: "POST", headers, body})).status;
        }"""
    )
    assert answer == 403
