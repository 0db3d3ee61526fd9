"""The client turns answers into shapes and problems back into our own errors."""

import json
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Canned

from whistlestop.client import Client
from whistlestop.domain import errors
from whistlestop.domain.errors import Problem
from whistlestop.wire.api import Done

RUN = {
    "id": "r-1", "number": 12, "name": "demo", "project": "default", "status": "running",
    "created_at": "2026-01-01T00:00:00Z",
}  # fmt: skip


@pytest.fixture
def client(canned: Canned) -> Iterator[Client]:
    with Client(canned.url, "secret-token", environ={}) as client:
        yield client


def problem(code: str, status: int, **more: Any) -> str:
    return json.dumps({"title": "x", "status": status, "code": code, "detail": "It did not work.", **more})


def test_an_answer_becomes_a_shape_and_keys_of_a_newer_server_are_ignored(canned: Canned, client: Client) -> None:
    canned.says(200, json.dumps({**RUN, "brand_new": 1, "progress": {"step": 3, "newer": 2}}))
    run = client.run("#12")
    assert (run.name, run.progress.step) == ("demo", 3)
    method, path, headers, _ = canned.seen[0]
    assert (method, path) == ("GET", "/api/v1/runs/%2312")
    assert headers["Authorization"] == "Bearer secret-token"


def test_lists_are_asked_with_their_filters(canned: Canned, client: Client) -> None:
    canned.says(200, json.dumps({"runs": [RUN], "next": "c1"}))
    canned.says(200, json.dumps({"runs": [RUN]}))
    assert len(list(client.all_runs(status=["queued", "running"], search="a b"))) == 2
    assert canned.seen[0][1] == "/api/v1/runs?status=queued&status=running&search=a+b&limit=500"
    assert canned.seen[1][1].endswith("&after=c1")


@pytest.mark.parametrize(
    ("ask", "path", "body"),
    [
        (lambda client: client.save("a", phase="p"), "save", {"phase": "p", "note": ""}),
        (
            lambda client: client.extend("a", more=5, note="why", key="k"),
            "extend",
            {"phase": None, "note": "why", "steps": None, "more": 5, "key": "k"},
        ),
        (
            lambda client: client.set_params("a", {"lr": 1.0, "size": 2, "on": True, "mode": "x"}, key="k"),
            "params",
            {"phase": None, "note": "", "params": {"lr": 1.0, "size": 2, "on": True, "mode": "x"}, "key": "k"},
        ),
    ],
)
def test_steering_sends_values_as_they_are(
    canned: Canned, client: Client, ask: Callable[[Client], Done], path: str, body: dict[str, Any]
) -> None:
    canned.says(200, json.dumps({"run": RUN, "changed": True, "text": "fine"}))
    assert ask(client).changed
    method, address, _, sent = canned.seen[0]
    assert (method, address) == ("POST", f"/api/v1/runs/a/{path}")
    assert json.loads(sent) == body
    assert [type(value) for value in json.loads(sent).get("params", {}).values()] in ([], [float, int, bool, str])


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_every_code_comes_back_as_its_class(canned: Canned, client: Client, code: str) -> None:
    items = [{"path": "phases.0", "text": "wrong", "line": 3, "hint": "right"}]
    canned.says(409, problem(code, 409, hint="do this", problems=items), "application/problem+json")
    with pytest.raises(errors.WhistleError, match="did not work") as caught:
        client.kill("demo")
    assert type(caught.value) is errors.BY_CODE[code]
    assert caught.value.hint == "do this"
    assert caught.value.problems == (Problem("phases.0", "wrong", 3, "right"),)


def test_a_code_of_a_newer_server_is_understood_by_its_status(canned: Canned, client: Client) -> None:
    canned.says(409, problem("brand_new", 409), "application/problem+json")
    with pytest.raises(errors.Refused) as caught:
        client.kill("demo")
    assert caught.value.code == "brand_new"


@pytest.mark.parametrize(("status", "kind"), [(404, errors.NotFound), (500, errors.WhistleError)])
def test_another_program_at_that_address_is_named_as_such(
    canned: Canned, client: Client, status: int, kind: type[Exception]
) -> None:
    canned.says(status, "<html>nginx</html>", "text/html")
    with pytest.raises(kind, match=f"HTTP {status}") as caught:
        client.whoami()
    assert isinstance(caught.value, errors.WhistleError)
    assert caught.value.hint == "is this a Whistlestop server?"


def test_an_answer_that_is_no_answer_is_refused(canned: Canned, client: Client) -> None:
    canned.says(200, "[]")
    with pytest.raises(errors.WhistleError, match="not understood"):
        client.whoami()


def test_without_a_server_the_error_says_what_to_do() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with Client(url, "t", environ={}) as client, pytest.raises(errors.ServerUnreachable) as caught:
            client.whoami()
    assert url in caught.value.text
    assert caught.value.hint == "start it with: whistle up"


def test_a_submit_whose_answer_was_lost_is_sent_again_under_the_same_key(canned: Canned, client: Client) -> None:
    def hang_up(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)

    canned.answers.append(hang_up)
    canned.says(201, json.dumps(RUN))
    assert client.submit("name: x\ncommand: y").number == 12
    first, second = (json.loads(body) for _, _, _, body in canned.seen)
    assert first == second
    assert first["key"]


@pytest.mark.parametrize("verb", ["extend", "params"])
def test_a_change_whose_answer_was_lost_is_sent_again_under_the_same_key(
    canned: Canned, client: Client, verb: str
) -> None:
    def ask() -> Done:
        return client.extend("12", more=5) if verb == "extend" else client.set_params("12", {"lr": 0.5})

    canned.answers.append(lambda handler: handler.connection.shutdown(socket.SHUT_RDWR))
    for _ in range(2):
        canned.says(200, json.dumps({"run": RUN, "changed": True, "text": "done"}))
    assert ask().text == "done"
    assert ask().text == "done"
    keys = [json.loads(body)["key"] for _, _, _, body in canned.seen]
    assert keys[0] == keys[1]
    assert keys[1] != keys[2], "another call is another request"
    assert all(keys)


def test_nobody_is_told_to_ask_for_more_steps_again_where_the_first_request_may_have_arrived(
    canned: Canned, client: Client
) -> None:
    for _ in range(2):
        canned.answers.append(lambda handler: handler.connection.shutdown(socket.SHUT_RDWR))
    with pytest.raises(errors.ServerUnreachable) as lost:
        client.extend("12", more=5)
    assert lost.value.hint == "it may have been taken; look before you ask again: whistle show 12"


def test_a_bundle_is_looked_for_and_sent_as_it_is(canned: Canned, client: Client, tmp_path: Path) -> None:
    tar = tmp_path / "b.tar"
    tar.write_bytes(b"x" * 300_000)
    canned.says(404, problem("not_found", 404))
    canned.says(200, json.dumps({"hash": "ab", "bytes": 3, "known": False}))
    assert client.has_bundle("ab") is False
    assert client.upload_bundle("ab", tar).bytes == 3
    assert canned.seen[1][:2] == ("PUT", "/api/v1/bundles/ab")
    assert canned.seen[1][3] == tar.read_bytes()
