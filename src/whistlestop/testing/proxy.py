"""A proxy for HTTP/1.1 that does on command what networks and busy servers do: refuses, answers 503, is slow, sends
half of an answer, cuts. It counts what goes through. What is left to chance is the same for the same seed."""

import contextlib
import io
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self
from urllib.parse import urlsplit

_BLOCK: Final = 64 << 10
_IDLE: Final = 60.0  # seconds for anybody to say the next byte


class Fault(StrEnum):
    ANSWER = "answer"  # a status of our own; the server hears nothing of it
    CUT = "cut"  # before the server has heard of it
    CUT_UPLOAD = "cut upload"  # when half of what is sent has gone through
    LOSE_ANSWER = "lose answer"  # the server has done it, and nobody hears of it
    HALF_ANSWER = "half answer"  # and then the connection is cut
    SLOW = "slow"


@dataclass
class Rule:
    fault: Fault
    after: int = 0  # matching requests that go through first
    times: int | None = None  # then this many; None: all
    share: float = 1.0  # of these, by chance
    method: str = ""
    path: str = ""  # a piece of the path with its query
    status: int = 503
    delay: float = 0.0  # seconds before anything is sent on
    rate: float = 0.0  # bytes per second, both ways

    def takes(self, method: str, path: str, chance: random.Random) -> bool:
        if (self.method and method != self.method) or self.path not in path:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times == 0 or chance.random() >= self.share:
            return False
        self.times = None if self.times is None else self.times - 1
        return True


class FaultProxy:
    """`with FaultProxy(server.endpoint) as proxy`, and `proxy.endpoint` instead of the server's."""

    def __init__(self, target: str, *, seed: int = 0) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._lock = threading.Lock()
        self._chance = random.Random(seed)
        self._rules: list[Rule] = []
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._port = 0
        self.requests: list[tuple[str, str]] = []  # method and path of each, in order
        self.sent: Counter[str] = Counter()  # bytes of bodies to the server, by method
        self.received: Counter[str] = Counter()  # and back

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def add(self, rule: Rule) -> None:
        """The first one that takes a request decides."""
        with self._lock:
            self._rules.append(rule)

    def clear(self) -> None:
        """No more faults, and nothing counted."""
        with self._lock:
            self._rules.clear()
            self.requests.clear()
            self.sent.clear()
            self.received.clear()

    def refuse(self) -> None:
        """Nobody listens any more, and those who are connected are cut."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._lock:
            cut = list(self._open)
        for each in cut:
            _end(each)

    def listen(self) -> None:
        """On the port it had before, if any."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        listener.listen(64)
        self._listener, self._port = listener, listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(self, *exc: object) -> None:
        self.refuse()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket()
        with self._lock:
            self._open |= {client, server}
        try:
            with client, server:
                for each in (client, server):
                    each.settimeout(_IDLE)
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server.connect(self._target)
                with client.makefile("rb") as asking, server.makefile("rb") as answering:
                    while self._one(_Side(client, asking), _Side(server, answering)):
                        pass
        except (OSError, ValueError):
            pass  # it was cut, by us or by one of them
        finally:
            with self._lock:
                self._open -= {client, server}

    def _one(self, client: "_Side", server: "_Side") -> bool:
        """One request and its answer. False: the connection is over."""
        head = client.head()
        if not head:
            return False
        method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        with self._lock:
            self.requests.append((method, path))
            rule = next((each for each in self._rules if each.takes(method, path, self._chance)), None)
        fault = rule.fault if rule else None
        rate = rule.rate if rule else 0.0
        size = _length(head)
        if rule and rule.delay:
            time.sleep(rule.delay)
        if fault is Fault.CUT:
            return False
        if rule and fault is Fault.ANSWER:
            for _ in client.blocks(size):
                pass
            client.send(b"HTTP/1.1 %d Fault\r\nContent-Length: 0\r\n\r\n" % rule.status)
            return True
        server.send(head)
        for block in client.blocks(size // 2 if fault is Fault.CUT_UPLOAD else size, rate):
            with self._lock:
                self.sent[method] += len(block)
            server.send(block)
        if fault is Fault.CUT_UPLOAD:
            return False
        return self._answer(method, client, server, fault, rate)

    def _answer(self, method: str, client: "_Side", server: "_Side", fault: Fault | None, rate: float) -> bool:
        head = server.head()
        if not head:
            return False
        if fault is Fault.LOSE_ANSWER:
            return False
        status = int(head.split(b" ", 2)[1])
        bare = method == "HEAD" or status in (204, 304)
        client.send(head)
        if _header(head, b"transfer-encoding") == b"chunked" and not bare:
            body: Iterator[bytes] = server.chunks()
            size = 1
        else:
            size = 0 if bare else _length(head)
            body = server.blocks(size // 2 if fault is Fault.HALF_ANSWER else size, rate)
        for block in body:
            with self._lock:
                self.received[method] += len(block)
            client.send(block)
            if fault is Fault.HALF_ANSWER and size == 1:
                return False
        return fault is not Fault.HALF_ANSWER


class _Side:
    """One end of a connection."""

    def __init__(self, connection: socket.socket, reader: io.BufferedReader) -> None:
        self._connection = connection
        self._reader = reader

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def head(self) -> bytes:
        lines = []
        while line := self._reader.readline():
            lines.append(line)
            if line == b"\r\n":
                return b"".join(lines)
        return b""

    def blocks(self, size: int, rate: float = 0.0) -> Iterator[bytes]:
        began, done = time.monotonic(), 0
        while done < size:
            block = self._reader.read1(min(_BLOCK, size - done))
            if not block:
                raise ConnectionError("it ended in the middle")
            yield block
            done += len(block)
            if rate:
                time.sleep(max(0.0, began + done / rate - time.monotonic()))

    def chunks(self) -> Iterator[bytes]:
        while True:
            line = self._reader.readline()
            yield line
            size = int(line.split(b";")[0], 16)
            yield from self.blocks(size + 2)
            if not size:
                return


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip().lower()
    return b""


def _length(head: bytes) -> int:
    return int(_header(head, b"content-length") or 0)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
