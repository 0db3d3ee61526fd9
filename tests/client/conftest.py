"""A tiny HTTP server that says what a test tells it to say: for what a real server does not do on demand."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

Answer = Callable[[BaseHTTPRequestHandler], None]


class Canned:
    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        canned = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                canned.seen.append((self.command, self.path, dict(self.headers), body))
                canned.answers.pop(0)(self)
                self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    def says(self, status: int, body: str, kind: str = "application/json") -> None:
        self.answers.append(lambda handler: send(handler, status, body, kind))


def send(handler: BaseHTTPRequestHandler, status: int, body: str, kind: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body.encode())


@pytest.fixture
def canned() -> Iterator[Canned]:
    canned = Canned()
    canned.thread.start()
    yield canned
    canned.server.shutdown()
    canned.server.server_close()
    canned.thread.join()
