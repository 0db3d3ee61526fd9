"""A stream outlives the server: nothing is lost, nothing comes twice."""

import json
from collections.abc import Iterator

import pytest
from tests.client.conftest import Canned

from whistlestop.client.stream import Message, follow, lines_of, parse
from whistlestop.client.transport import Transport
from whistlestop.domain.errors import NotFound, ServerUnreachable


def sse(*numbers: int, end: bool = False, tail: str = "") -> str:
    text = "".join(f"event: log\nid: {n}\ndata: {json.dumps({'n': n})}\n\n" for n in numbers)
    return text + ("event: end\ndata: {}\n\n" if end else "") + tail


class Time:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def transport(canned: Canned) -> Iterator[Transport]:
    transport = Transport(canned.url, "t", environ={})
    yield transport
    transport.close()


def read(transport: Transport, time: Time, give_up_after: float = 30.0) -> list[int]:
    messages = follow(
        transport,
        "/runs/1/stream",
        query={"topics": "logs"},
        clock=time.clock,
        sleep=time.sleep,
        give_up_after=give_up_after,
    )
    return [message.data["n"] for message in messages]


def test_a_stream_ends_with_its_end(canned: Canned, transport: Transport) -> None:
    canned.says(200, sse(1, 2, 3, end=True), "text/event-stream")
    assert read(transport, Time()) == [1, 2, 3]
    assert canned.seen[0][1] == "/api/v1/runs/1/stream?topics=logs"


def test_a_restart_in_mid_stream_loses_and_doubles_nothing(canned: Canned, transport: Transport) -> None:
    canned.says(200, sse(1, 2, tail='event: log\nid: 3\ndata: {"n": 3'), "text/event-stream")
    canned.says(503, "starting", "text/plain")
    canned.says(200, ": hello\n\n" + sse(3, 4, end=True), "text/event-stream")
    assert read(transport, Time()) == [1, 2, 3, 4]
    assert [headers.get("Last-Event-ID") for _, _, headers, _ in canned.seen] == [None, "2", "2"]


def test_what_comes_again_for_want_of_an_id_is_handed_out_once(canned: Canned, transport: Transport) -> None:
    def said(kind: str, seen: int | None, **data: int) -> str:
        where = "" if seen is None else f"id: {seen}\n"
        return f"event: {kind}\n{where}data: {json.dumps(data)}\n\n"

    def line(seen: int | None, attempt: int, line: int) -> str:
        return said("log", seen, attempt=attempt, line=line, n=attempt * 10 + line)

    first = line(1, 1, 1) + line(None, 1, 2) + said("event", None, seq=5, n=5) + line(None, 2, 1)
    again = line(None, 1, 2) + said("event", None, seq=5, n=5) + said("event", None, seq=6, n=6) + line(None, 2, 1)
    canned.says(200, first, "text/event-stream")
    canned.says(200, again + line(2, 2, 2) + sse(end=True), "text/event-stream")
    assert read(transport, Time()) == [11, 12, 5, 21, 6, 22]
    assert [headers.get("Last-Event-ID") for _, _, headers, _ in canned.seen] == [None, "1"]


def test_an_id_alone_is_where_it_goes_on(canned: Canned, transport: Transport) -> None:
    canned.says(200, ": hello\n\nid: 7\n\nid: 8\n", "text/event-stream")
    canned.says(200, sse(8, end=True), "text/event-stream")
    assert read(transport, Time()) == [8]
    assert [headers.get("Last-Event-ID") for _, _, headers, _ in canned.seen] == [None, "7"]


def test_it_is_told_when_the_connection_stands_and_when_it_is_lost(canned: Canned, transport: Transport) -> None:
    canned.says(200, sse(1), "text/event-stream")
    canned.says(503, "starting", "text/plain")
    canned.says(503, "starting", "text/plain")
    canned.says(200, sse(2, end=True), "text/event-stream")
    told: list[bool] = []
    time = Time()
    messages = follow(transport, "/stream", clock=time.clock, sleep=time.sleep, on_state=told.append)
    assert [message.data["n"] for message in messages] == [1, 2]
    assert told == [True, False, True], "once for each change"


def test_it_gives_up_after_the_time_that_was_set(canned: Canned, transport: Transport) -> None:
    canned.says(200, sse(1), "text/event-stream")
    for _ in range(50):
        canned.says(503, "", "text/plain")
    time = Time()
    with pytest.raises(ServerUnreachable):
        read(transport, time, give_up_after=20.0)
    assert 20.0 <= time.now < 25.0
    assert time.slept == sorted(time.slept), "it waits longer and longer"


def test_an_error_of_the_server_is_not_tried_again(canned: Canned, transport: Transport) -> None:
    canned.says(404, json.dumps({"title": "x", "status": 404, "code": "not_found", "detail": "No run 1."}))
    with pytest.raises(NotFound, match="No run 1"):
        read(transport, Time())


def test_the_format_is_read_as_the_standard_says() -> None:
    lines = [": comment", "", "event: a", "data: 1", "", "id: 7", "data:[1,", "data: 2]", "retry: 5", "", "data: 3"]
    assert list(parse(lines)) == [None, Message("a", None, 1), Message("message", "7", [1, 2])]


def test_only_line_feeds_end_a_line() -> None:
    text = 'data: "a\u2028b\x85c"\r\n\ndata: é\n'.encode()
    for size in (1, 2, 5, 100):
        chunks = [text[at : at + size] for at in range(0, len(text), size)]
        assert list(lines_of(chunks)) == ['data: "a\u2028b\x85c"', "", "data: é"]
