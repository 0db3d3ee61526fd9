"""A real receiver of webhooks on a free port of this machine: it keeps what it gets, and fails as it is told to."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Post:
    headers: Mapping[str, str]  # names in small letters
    body: bytes
    answer: str  # what became of it: a status, "dropped" or "silent"

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def said(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Receiver:
    """`answers`: what each post gets in its turn, a status, "drop" (the connection ends) or seconds of silence; when
    they are used up, `then`."""

    def __init__(self, answers: Sequence[int | float | str] = (), then: int | str = 204) -> None:
        self.answers, self.then = list(answers), then
        self.posts: list[Post] = []
        self._lock, self._over = threading.Lock(), threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer._take(self)

            def do_GET(self) -> None:  # as a redirect that was followed would come
                outer._take(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?token=secret-part"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def taken(self) -> list[Post]:
        """Those that were answered with success."""
        with self._lock:
            return [post for post in self.posts if post.answer.startswith("2")]

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """From now on its address is nobody's. Closing it twice is no mistake."""
        if self._over.is_set():
            return
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in request.headers.items()}
        with self._lock:
            answer = self.answers.pop(0) if self.answers else self.then
        if isinstance(answer, float):
            self._keep(Post(headers, body, "silent"))
            self._over.wait(answer)
        elif answer == "drop":
            self._keep(Post(headers, body, "dropped"))
        else:
            self._keep(Post(headers, body, str(answer)))
            request.send_response(int(answer))
            if 300 <= int(answer) < 400:
                request.send_header("location", self.url)
            request.send_header("content-length", "0")
            request.end_headers()
        request.close_connection = True

    def _keep(self, post: Post) -> None:
        with self._lock:
            self.posts.append(post)
