"""The runner's one connection to the server. When it is away, everything stays on disk and nothing waits for it."""

import asyncio
import json
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from whistlestop.runner import lease
from whistlestop.runner.notes import note
from whistlestop.runner.streams import BACKLOG, Streams
from whistlestop.wire.frames import (
    PROTOCOL,
    Ack,
    Bye,
    Data,
    Gang,
    Hello,
    Order,
    Peer,
    Progress,
    Rehearse,
    Stacks,
    Welcome,
    decode_down,
    encode,
)

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch

GONE_HTTP, GONE_CLOSE = 410, 4410  # the only answers that mean: this attempt is not wanted any more
FIRST_DELAY, LAST_DELAY = 0.1, 5.0
LOOK_EVERY = 0.1  # journals have no wake-up, and what is gathered meanwhile costs the server one transaction
DISCOVER_FIRST, DISCOVER_EVERY = 0.5, 2.0  # before and after the program's first journal
LONG_SESSION = 10.0  # a connection that lasted this long was a good one
FRUITLESS, PATIENCE = 3, 20.0  # connections, or seconds of one, in which the server took nothing of what we have
PROGRESS_EVERY, HEARTBEAT_EVERY = 0.2, 10.0
RENEW_EVERY = 0.2  # of the lease
_ANSWER_TIMEOUT = 20.0


class Unwanted(Exception):
    """The server has done with this attempt."""


class Link:
    def __init__(
        self,
        launch: "Launch",
        streams: Streams,
        *,
        on_order: Callable[[Order], None],
        on_unwanted: Callable[[str], None],
        progress: Callable[[], Progress],
        on_rehearse: Callable[[Rehearse], None] = lambda asked: None,
        on_stacks: Callable[[Stacks], None] = lambda asked: None,
        on_gang: Callable[[Gang], None] = lambda gang: None,
        here: Callable[[str], Peer | None] = lambda address: None,
    ) -> None:
        """`here`: what the other nodes of this attempt are told of this one, given the address that the server sees."""
        self._launch = launch
        self._streams = streams
        self._on_order = on_order
        self._on_unwanted = on_unwanted
        self._on_rehearse, self._on_stacks = on_rehearse, on_stacks
        self._on_gang, self._here = on_gang, here
        self.renewed_at = lease.now()  # when something was sent that the server is known to have got
        self._cut_until = 0.0
        self._progress = progress
        self._work = asyncio.Event()
        self._acked = asyncio.Event()
        self._advanced_at = 0.0  # when the server last took something, or was last connected
        self._welcomed = False
        self._shipped_at: float | None = None  # and nothing was acknowledged since
        self.answering = 0.0  # seconds from sending to the acknowledgement: the slowest of the newest ones
        self.unwanted = False

    def kick(self) -> None:
        """There is something to send: don't wait for the next look."""
        self._work.set()

    def cut(self, seconds: float) -> None:
        """Hang up, and stay away for so long."""
        self._cut_until = time.monotonic() + seconds
        self.kick()

    async def run(self) -> None:
        """Connect, ship, reconnect, until cancelled or unwanted."""
        delay, said, fruitless = FIRST_DELAY, "", 0
        while True:
            before, began, self._welcomed = self._streams.safe_bytes(), time.monotonic(), False
            try:
                await self._session()
            except Unwanted as goodbye:
                self.unwanted = True
                self._acked.set()
                self._on_unwanted(str(goodbye))
                return
            except Exception as error:  # a loop's top: without a link nobody could stop this run any more
                if (text := f"link: {type(error).__name__}: {error}") != said:  # for days, if it is away for days
                    note(said := text)
            # A welcome is no success: what the server can't digest would bring us back ten times a second.
            if self._streams.safe_bytes() > before or time.monotonic() - began > LONG_SESSION:
                delay, fruitless = FIRST_DELAY, 0
            else:
                delay, fruitless = min(LAST_DELAY, delay * 2), fruitless + self._welcomed
            if fruitless >= FRUITLESS:
                self._streams.let_go()
            away = max(0.0, self._cut_until - time.monotonic())
            await asyncio.sleep(away + delay * random.uniform(0.5, 1.0))

    async def everything_safe(self) -> None:
        """Returns when the server has acknowledged all there is, or wants nothing more: for days if it is away."""
        self.kick()
        while not self.unwanted and not self._streams.all_safe():
            self._acked.clear()
            await _wait(self._acked, 1.0)

    async def _session(self) -> None:
        headers = {"Authorization": f"Bearer {self._launch.token}"}
        try:
            async with connect(
                self._address(),
                additional_headers=headers,
                compression=None,
                max_size=None,
                proxy=None,
                open_timeout=_ANSWER_TIMEOUT,
                close_timeout=1.0,
            ) as socket_:
                await self._talk(socket_)
        except InvalidStatus as refusal:
            if refusal.response.status_code == GONE_HTTP:
                raise Unwanted("the server answered that this attempt is gone") from refusal
            raise
        except ConnectionClosed as closed:
            if closed.rcvd is not None and closed.rcvd.code == GONE_CLOSE:
                raise Unwanted(closed.rcvd.reason or "the server closed this attempt") from closed
            raise

    def _address(self) -> str:
        """The server may have come back on another port: its file says where it is now."""
        path = urlsplit(self._launch.server)
        try:
            url = urlsplit(str(json.loads(Path(self._launch.server_file or "").read_bytes())["url"]))
        except (OSError, ValueError, KeyError, TypeError):
            return self._launch.server
        scheme = "wss" if url.scheme == "https" else "ws"
        return urlunsplit((scheme, url.netloc, path.path, path.query, ""))

    async def _talk(self, connection: ClientConnection) -> None:
        hello = Hello(
            self._launch.attempt_id,
            PROTOCOL,
            self._launch.host or socket.gethostname(),
            os.getpid(),
            self._launch.node,
            self._here(str(connection.local_address[0])),
        )
        began = lease.now()
        await connection.send(encode(hello))
        async with asyncio.timeout(_ANSWER_TIMEOUT):
            welcome = decode_down(_bytes(await connection.recv()))
        if isinstance(welcome, Bye):
            raise Unwanted(welcome.text)
        if not isinstance(welcome, Welcome):
            raise ValueError(f"expected a welcome, got {type(welcome).__name__}")
        self._streams.resume(welcome.offsets)
        self._welcomed, self._advanced_at, self._shipped_at = True, time.monotonic(), None
        self.renewed_at = began
        self._on_order(welcome.order)
        sending = asyncio.create_task(self._send(connection))
        receiving = asyncio.create_task(self._receive(connection))
        renewing = asyncio.create_task(self._renew(connection))
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and isinstance(sending.exception(), ConnectionClosed):
                await asyncio.wait({receiving}, timeout=1.0)  # the last words may say why
            for task in (receiving, sending):
                if task.done():
                    task.result()
        finally:
            for task in (sending, receiving, renewing):
                task.cancel()
            await asyncio.gather(sending, receiving, renewing, return_exceptions=True)

    async def _renew(self, connection: ClientConnection) -> None:
        """The lease, if there is one. Progress is what the server counts from; that it came is said by the pong."""
        while self._launch.lease is not None:
            began = lease.now()
            await connection.send(encode(self._progress()))
            await (await connection.ping())
            self.renewed_at = began
            await asyncio.sleep(self._launch.lease * RENEW_EVERY)

    async def _receive(self, connection: ClientConnection) -> None:
        async for message in connection:
            self._take(_bytes(message))
        # Closed in good order, perhaps with the code that means goodbye.
        if connection.close_code == GONE_CLOSE:
            raise Unwanted(connection.close_reason or "the server closed this attempt")

    def _take(self, message: bytes) -> None:
        match decode_down(message):
            case Order() as order:
                self._on_order(order)
            case Rehearse() as asked:
                self._on_rehearse(asked)
            case Stacks() as asked:
                self._on_stacks(asked)
            case Gang() as gang:
                self._on_gang(gang)
            case Ack(stream=name, offset=offset):
                if self._streams.acknowledge(name, offset):
                    self._work.set()
                self._advanced_at = time.monotonic()
                if self._shipped_at is not None:
                    self.answering = max(0.8 * self.answering, self._advanced_at - self._shipped_at)
                    self._shipped_at = None
                self._acked.set()
            case Bye(text=text):
                raise Unwanted(text)
            case Welcome():
                raise ValueError("a second welcome")

    async def _send(self, connection: ClientConnection) -> None:
        shown: Progress | None = None
        shown_at = looked_at = 0.0
        while True:
            now = time.monotonic()
            if now < self._cut_until:
                return
            if now - looked_at >= (DISCOVER_EVERY if self._streams.has_program() else DISCOVER_FIRST):
                self._streams.discover()
                self._streams.trim()
                looked_at = now
            if now - max(self._advanced_at, self._streams.held_since) > PATIENCE:
                self._streams.let_go()
            progress = self._progress()
            news = shown is None or msgspec.structs.replace(progress, at=shown.at) != shown
            if now - shown_at >= (PROGRESS_EVERY if news else HEARTBEAT_EVERY):
                await connection.send(encode(progress))
                shown, shown_at = progress, now
            self._work.clear()
            if not await self._ship(connection):
                await _wait(self._work, LOOK_EVERY)

    async def _ship(self, connection: ClientConnection) -> bool:
        """One chunk of each stream. Whether there is a backlog: more to ship at once."""
        backlog = False
        for stream in self._streams.all():
            if (piece := self._streams.take(stream)) is not None:
                offset, data = piece
                self._shipped_at = self._shipped_at or time.monotonic()
                await connection.send(encode(Data(stream.wire, offset, data)))
                backlog = backlog or len(data) >= BACKLOG
        return backlog


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until it is set, or for so long. Not by wait_for: before Python 3.12 it loses a cancellation that comes
    together with the event, and whoever cancelled us would wait for ever."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def _bytes(message: str | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.encode()
