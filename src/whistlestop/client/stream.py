"""Server-sent events that outlive the server: a broken stream goes on behind the last event that was read."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from whistlestop.client.transport import PREFIX, Query, Transport, clean, error_of, reaching
from whistlestop.domain.errors import ServerUnreachable

QUIET = 60.0  # seconds without a byte, comments included, until the connection is taken for dead
FIRST_WAIT, LONGEST_WAIT = 0.1, 3.0
ID_ALONE = ""  # the kind of a message that only says where to go on from; nobody is handed one


@dataclass(frozen=True)
class Message:
    kind: str  # run | event | log | progress | points | end
    id: str | None  # where to go on from behind it; of the one before, if it has none of its own
    data: Any


def follow(
    transport: Transport,
    path: str,
    *,
    query: Query | None = None,
    last_id: str | None = None,
    give_up_after: float = 300.0,
    stopped: Callable[[], bool] = lambda: False,
    on_state: Callable[[bool], None] = lambda stands: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Message]:
    """Every message once and in order, until `end`. `give_up_after` seconds without a server: ServerUnreachable.

    `stopped` is asked between messages and before each new connection. `on_state` hears when the connection stands and
    when it is lost.
    """
    told = Told()
    lost_at: float | None = None
    stood: bool | None = None
    wait = FIRST_WAIT
    while True:
        try:
            for message in _once(transport, path, query, last_id):
                lost_at = None
                if stopped():
                    return
                if not stood:
                    stood = True
                    on_state(True)
                if message is None:
                    continue
                wait = FIRST_WAIT
                if message.kind == "end":
                    return
                last_id = message.id or last_id  # before it is handed out: it counts as read
                if message.kind != ID_ALONE and not told.again(message):
                    yield replace(message, id=last_id)
        except ServerUnreachable as unreachable:
            lost_at = clock() if lost_at is None else lost_at
            if clock() - lost_at >= give_up_after:
                raise unreachable
        else:
            # The server closed the stream in order, without an end: it is going down.
            lost_at = clock() if lost_at is None else lost_at
        if stopped():
            return
        if stood is not False:
            stood = False
            on_state(False)
        sleep(wait)
        wait = min(wait * 2, LONGEST_WAIT)
        transport.look_again()


class Told:
    """What was handed out. The long id of a run of many attempts does not come with every event and line: those behind
    the last one that came do so again after a cut, and are known by their numbers."""

    def __init__(self) -> None:
        self._newest: dict[object, int] = {}  # attempt, or None for events -> number

    def again(self, message: Message) -> bool:
        match message:
            case Message("event", _, {"seq": int(number)}):
                source = None
            case Message("log", _, {"attempt": int(source), "line": int(number)}):
                pass
            case _:
                return False
        if number <= self._newest.get(source, 0):
            return True
        self._newest[source] = number
        return False


def _once(transport: Transport, path: str, query: Query | None, last_id: str | None) -> Iterator[Message | None]:
    """One connection. None says: it stands, or is alive."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
    with (
        reaching(transport.place),
        transport.http.stream(
            "GET",
            PREFIX + path,
            params=clean(query),
            headers=headers,
            timeout=httpx2.Timeout(QUIET, connect=10.0),
        ) as response,
    ):
        if response.is_error:
            response.read()
            raise error_of(response, transport.place)
        yield None
        yield from parse(lines_of(response.iter_bytes()))


def parse(lines: Iterable[str]) -> Iterator[Message | None]:
    """The event-stream format. A message that was cut off before its blank line is not one."""
    kind, message_id, told = "message", None, None
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield Message(kind, message_id, json.loads("\n".join(data)))
            elif message_id != told:
                yield Message(ID_ALONE, message_id, None)
            kind, data, told = "message", [], message_id
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "":
                yield None  # a comment: the server says that it is there
            case "event":
                kind = value
            case "data":
                data.append(value)
            case "id":
                message_id = value or None
            case _:
                pass


def lines_of(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines end with LF or CRLF only: U+2028 and its like are letters of the JSON inside."""
    rest: list[bytes] = []
    for chunk in chunks:
        *whole, tail = chunk.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line)).removesuffix(b"\r").decode("utf-8", "replace")
            rest = []
        if tail:
            rest.append(tail)
