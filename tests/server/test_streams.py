"""Server-sent events: live, and resumed without a gap or a double."""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from whistlestop.client import Client
from whistlestop.domain.errors import BadRequest
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def read(server: ServerProcess, path: str, *, last: str | None = None, most: int = 10**9) -> list[tuple[str, str, str]]:
    """(event, id, data) until the stream ends or `most` have come."""
    headers = {"Authorization": f"Bearer {server.token}"}
    if last is not None:
        headers["Last-Event-ID"] = last
    found: list[tuple[str, str, str]] = []
    with httpx2.stream("GET", f"{server.url}/api/v1{path}", headers=headers, timeout=60) as answer:
        assert answer.status_code == 200
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                found.append((fields["event"], fields["id"], fields["data"]))
                fields = {}
                if len(found) >= most:
                    break
    return found


def train(server: ServerProcess, programs: Path, steps: int) -> str:
    phase = {"name": "train", "command": [sys.executable, "train.py"], "env": {"STEPS": str(steps)}}
    return server.submit(phase, directory=programs).id


def test_a_stream_tells_everything_and_ends_with_the_run(server: ServerProcess, client: Client, programs: Path) -> None:
    run = train(server, programs, 30)
    messages = read(server, f"/runs/{run}/stream")
    assert messages[-1][0] == "end"
    events = [json.loads(data)["seq"] for kind, _, data in messages if kind == "event"]
    assert events == [event.seq for event in client.events(run)]
    lines = [json.loads(data)["text"] for kind, _, data in messages if kind == "log"]
    assert lines == server.logs(run)
    points = [
        point[0]
        for kind, _, data in messages
        if kind == "points"
        for series in json.loads(data)["series"]
        if series["name"] == "loss"
        for point in series["points"]
    ]
    assert points == list(range(30))
    last = json.loads(next(data for kind, _, data in reversed(messages) if kind == "run"))
    assert (last["status"], last["progress"]["step"]) == ("completed", 30)


def test_a_stream_tells_how_far_the_run_is_while_it_goes_on(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    run = train(server, programs, 100_000)
    for message in client.stream(run, topics=["progress"]):
        if message.kind == "progress" and message.data["progress"]["step"] > 0:
            return
    pytest.fail("no word of progress")


@pytest.mark.parametrize("cut", [1, 5, 17, 40])
def test_a_client_that_comes_back_gets_what_it_missed_once(server: ServerProcess, programs: Path, cut: int) -> None:
    run = train(server, programs, 30)
    server.wait(run, "completed")
    topics = "?topics=events,logs"
    whole = read(server, f"/runs/{run}/stream{topics}")
    first = read(server, f"/runs/{run}/stream{topics}", most=cut)
    rest = read(server, f"/runs/{run}/stream{topics}", last=first[-1][1])
    assert [data for kind, _, data in first + rest if kind != "end"] == [
        data for kind, _, data in whole if kind != "end"
    ]


def test_the_clients_stream_survives_a_server_that_is_killed_and_comes_back(
    start_server: Callable[..., ServerProcess], programs: Path
) -> None:
    server = start_server()
    run = train(server, programs, 150)
    lines: list[str] = []

    def follow() -> None:
        with Client(server.url, server.token) as client:
            lines.extend(
                message.data["text"] for message in client.stream(run, topics=["logs"]) if message.kind == "log"
            )

    port = server.url.rpartition(":")[2]
    thread = threading.Thread(target=follow)
    thread.start()
    until(lambda: len(lines) > 5, what="the first lines")
    server.kill()
    server.extra = ("--port", port)
    server.start()
    server.wait(run, "completed")
    thread.join(60)
    assert lines == server.logs(run)


def test_the_list_of_runs_is_live_too(server: ServerProcess) -> None:
    first = server.submit({"name": "t", "kind": "task", "command": ["true"]})
    server.wait(first.id)
    (kind, seen, data), *_ = read(server, "/stream", most=1)
    assert kind == "run"
    assert json.loads(data)["status"] == "completed"
    second = server.submit({"name": "t", "kind": "task", "command": ["true"]})
    assert json.loads(read(server, "/stream", last=seen, most=1)[0][2])["id"] == second.id


def test_nonsense_in_a_cursor_is_an_error_in_words(server: ServerProcess, client: Client) -> None:
    run = server.submit({"name": "t", "kind": "task", "command": ["true"]})
    headers = {"Authorization": f"Bearer {server.token}", "Last-Event-ID": "nonsense"}
    answer = httpx2.get(f"{server.url}/api/v1/runs/{run.id}/stream", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    with pytest.raises(BadRequest, match="not a cursor"):
        client.logs(run.id, after="1:2.x")


def lines_of(stream: Any, into: list[str], begun: threading.Event) -> None:
    for line in stream.iter_lines():
        into.append(line)
        if line.startswith("id: "):
            begun.set()


@pytest.mark.parametrize("stream", ["/runs/{run}/stream", "/stream", "/rows/stream"])
@pytest.mark.parametrize("way", ["token", "session"])
def test_a_stream_tells_nothing_more_once_its_token_is_revoked_or_its_session_is_over(
    server: ServerProcess, client: Client, stream: str, way: str
) -> None:
    run = server.submit({"name": "t", "kind": "task", "command": ["sleep", "600"]})
    token = client.create_token(f"listener to {run.id}", "viewer")
    with httpx2.Client(base_url=server.url, timeout=60) as listener:
        if way == "session":
            assert listener.post("/session", json={"token": token.token}).status_code == 204
            csrf = listener.get("/api/v1/whoami").json()["csrf"]
        else:
            listener.headers["Authorization"] = f"Bearer {token.token}"
        heard: list[str] = []
        begun = threading.Event()
        with listener.stream("GET", "/api/v1" + stream.format(run=run.id)) as answer:
            assert answer.status_code == 200
            thread = threading.Thread(target=lines_of, args=(answer, heard, begun))
            thread.start()
            assert begun.wait(30)
            if way == "session":
                assert listener.delete("/session", headers={"x-whistle-csrf": csrf}).status_code == 204
            else:
                client.revoke_token(token.id)
            client.note(run.id, "not for everybody")
            thread.join(10)
            assert not thread.is_alive(), "the change was its turn to look whether it is still welcome"
        assert not any("not for everybody" in line for line in heard)
    client.kill(run.id)
