"""One question to a cloud's metadata server: bounded in time and size, through no proxy, following no redirect."""

import io
import socket
import time
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import NamedTuple, cast
from urllib.parse import urlsplit

LIMIT = 1 << 20  # bytes of an answer, headers and all: Azure tells every machine of a set the events of all of them
TIMEOUT = 2.0


class Unanswered(Exception):
    """Nobody is there, or what came is no answer. The text says what was wrong."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace").strip()

    def header(self, name: str) -> str:
        """However its name is written: who stands in for a cloud's own server may write it otherwise. Empty: none."""
        return next((value for each, value in self.headers.items() if each.lower() == name.lower()), "")


def ask(
    base: str,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    timeout: float = TIMEOUT,
) -> Answer:
    """`timeout` is for all of it: a server that sends a byte now and then does not get more. Raises Unanswered."""
    try:
        return _ask(base, path, method, headers or {}, body, timeout)
    except TimeoutError as error:
        raise Unanswered(f"no answer within {timeout:g} s") from error
    except OSError as error:
        raise Unanswered(error.strerror or str(error)) from error
    except (HTTPException, ValueError) as error:
        raise Unanswered(f"what came is not an answer: {error!r:.200}") from error


def _ask(base: str, path: str, method: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Answer:
    url = urlsplit(base)
    if url.scheme != "http" or not url.hostname:
        raise ValueError(f"{base!r} is not an http:// address")
    until = time.monotonic() + timeout
    with socket.create_connection((url.hostname, url.port or 80), min(timeout, TIMEOUT)) as connection:
        lines = {"Host": url.netloc.rpartition("@")[2], "Connection": "close", **headers}
        if body:
            lines |= {"Content-Length": str(len(body)), "Content-Type": "application/json"}
        head = [
            f"{method} {url.path.rstrip('/')}{path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in lines.items()),
        ]
        connection.sendall("\r\n".join([*head, "", ""]).encode("latin-1") + body)
        # HTTPResponse wants a socket, and takes of it only what it reads from.
        reading = cast("socket.socket", _Source(connection, until))
        with HTTPResponse(reading, method=method) as response:
            response.begin()
            return Answer(response.status, dict(response.getheaders()), response.read(LIMIT))


class _Source:
    def __init__(self, connection: socket.socket, until: float) -> None:
        self._reader = io.BufferedReader(_Bounded(connection, until))

    def makefile(self, _mode: str) -> "io.BufferedReader[_Bounded]":
        return self._reader


class _Bounded(io.RawIOBase):
    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self._until, self._left = connection, until, LIMIT

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        count = self._connection.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise ValueError(f"longer than {LIMIT} bytes")
        return count
