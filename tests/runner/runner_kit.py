"""A server for runners that speaks the real frames over a real socket, and remembers every byte it was given."""

import asyncio
import contextlib
import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from websockets.asyncio.server import Request, Response, Server, ServerConnection, serve

from whistlestop.domain.ids import new_id
from whistlestop.engines.attempt_files import read_began
from whistlestop.engines.base import JobId, JobState
from whistlestop.engines.containment import Tree
from whistlestop.engines.local import LocalEngine
from whistlestop.wire.frames import (
    Ack,
    Bye,
    Data,
    Hello,
    LogLine,
    Order,
    Progress,
    RunnerEvent,
    Welcome,
    decode_event,
    decode_line,
    decode_up,
    encode,
    split_records,
)
from whistlestop.wire.launch import Launch


class Peer:
    """Runs in a thread of its own. `stop` and `start` again is a server restart on another port."""

    def __init__(self, server_file: Path) -> None:
        self.server_file = server_file
        self.streams: dict[str, bytearray] = {}
        self.pieces: dict[str, int] = {}
        self.repeated = 0  # bytes that came twice: allowed only across a reconnect
        self.gaps: list[str] = []
        self.indigestible: str | None = None  # data of this stream makes it drop the connection
        self.when_ended: dict[str, int] = {}  # how much of each stream was there when `ended` came
        self.hellos: list[Hello] = []
        self.progress: list[Progress] = []
        self.tokens: list[str | None] = []
        self.order = Order()
        self.refuse: int | None = None  # HTTP status for every new connection
        self.close_code: int | None = None
        self.bye: str | None = None
        self.cut_after: Callable[[], int] | None = None  # bytes after which a connection is cut
        self._connections: set[ServerConnection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: Server | None = None

    def start(self) -> None:
        self._call(self._start())

    def stop(self) -> None:
        self._call(self._stop())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def send(self, order: Order) -> None:
        self.order = order
        self._call(self._broadcast(order))

    def send_bye(self, text: str) -> None:
        self._call(self._broadcast(Bye(text)))

    @property
    def url(self) -> str:
        return str(json.loads(self.server_file.read_text())["url"])

    def events(self) -> list[RunnerEvent]:
        return [decode_event(body) for body in split_records(bytes(self.streams.get("runner", b"")))[0]]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events()]

    def lines(self) -> list[LogLine]:
        return [decode_line(body) for body in split_records(bytes(self.streams.get("logs", b"")))[0]]

    def texts(self, stream: str = "out") -> list[str]:
        return [line.text for line in self.lines() if line.stream == stream]

    def ended(self) -> dict[str, Any] | None:
        found = [event for event in self.events() if event.kind == "ended"]
        return found[-1].data if found else None

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    async def _start(self) -> None:
        self._server = await serve(
            self._handle, "127.0.0.1", 0, process_request=self._judge, max_size=None, compression=None
        )
        port = next(iter(self._server.sockets)).getsockname()[1]
        self.server_file.write_text(json.dumps({"url": f"http://127.0.0.1:{port}"}))

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close(close_connections=True)
            await self._server.wait_closed()
            self._server = None

    async def _broadcast(self, frame: Order | Bye) -> None:
        for connection in list(self._connections):
            await connection.send(encode(frame))

    def _judge(self, connection: ServerConnection, request: Request) -> Response | None:
        self.tokens.append(request.headers.get("Authorization"))
        return connection.respond(HTTPStatus(self.refuse), "no\n") if self.refuse is not None else None

    async def _handle(self, connection: ServerConnection) -> None:
        with contextlib.suppress(Exception):
            await self._converse(connection)
        self._connections.discard(connection)

    async def _converse(self, connection: ServerConnection) -> None:
        hello = decode_up(await connection.recv())
        assert isinstance(hello, Hello)
        self.hellos.append(hello)
        if self.close_code is not None:
            return await connection.close(self.close_code, "not wanted")
        if self.bye is not None:
            return await connection.send(encode(Bye(self.bye)))
        offsets = {name: len(data) for name, data in self.streams.items()}
        await connection.send(encode(Welcome(offsets, self.order)))
        self._connections.add(connection)
        left = self.cut_after() if self.cut_after is not None else None
        async for message in connection:
            assert isinstance(message, bytes)
            frame = decode_up(message)
            if isinstance(frame, Progress):
                self.progress.append(frame)
            if not isinstance(frame, Data):
                continue
            if frame.stream == self.indigestible:
                connection.transport.abort()
                return None
            self._store(frame)
            if left is not None:
                left -= len(frame.data)
                if left <= 0:
                    connection.transport.abort()  # stored, never acknowledged
                    return None
            await connection.send(encode(Ack(frame.stream, len(self.streams[frame.stream]))))
        return None

    def _store(self, frame: Data) -> None:
        self.pieces[frame.stream] = self.pieces.get(frame.stream, 0) + 1
        kept = self.streams.setdefault(frame.stream, bytearray())
        if frame.offset > len(kept):
            self.gaps.append(f"{frame.stream}: {len(kept)} to {frame.offset}")
            return
        new = frame.data[len(kept) - frame.offset :]
        self.repeated += len(frame.data) - len(new)
        if frame.stream == "runner" and b"ended" in new:
            self.when_ended = {name: len(data) for name, data in self.streams.items() if name != "runner"}
        kept += new


def until(condition: Callable[[], Any], what: str = "", timeout: float = 30.0) -> Any:
    """The condition's value once it is true."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout} s for {what or condition}"
        time.sleep(0.005)
    return value


LADDER = {"flag": 60.0, "interrupt": 5.0, "terminate": 5.0, "attach": 0.5, "kill_save": 5.0}


class Kit:
    """A directory, a peer and an engine; whatever was launched is ended by `close`."""

    def __init__(self, root: Path, *, walk: bool, peer: Peer | None = None) -> None:
        self.root = root
        self.walk = walk
        self.peer = peer or Peer(root / "server.json")
        self.engine = self.fresh()
        self.work = root / "work"
        self.work.mkdir()
        self.jobs: list[JobId] = []

    def fresh(self) -> LocalEngine:
        """An engine that knows nothing but what is there: a server that has started anew has one."""
        return LocalEngine(self.root / "attempts", walk=self.walk)

    def launch(self, *command: str, secrets: dict[str, str] | None = None, **fields: Any) -> JobId:
        wanted = self.describe(*command, **fields)
        job = self.engine.launch(wanted, secrets or {})
        self.jobs.append(job)
        return job

    def describe(self, *command: str, **fields: Any) -> Launch:
        attempt = fields.pop("attempt_id", None) or new_id("a")
        given: dict[str, Any] = {
            "attempt_id": attempt,
            "attempt_number": 1,
            "run_id": "r-1",
            "run_name": "one",
            "phase": "train",
            "kind": "train",
            "command": list(command),
            "env": {},
            "directory": str(self.root / "attempts" / attempt),
            "workdir": str(self.work),
            "checkpoints": str(self.root / "checkpoints"),
            "slots": [0],
            "ladder": LADDER | fields.pop("ladder", {}),
            "server": "ws://127.0.0.1:1/api/v1/runner",
            "token": "token-of-this-attempt",
            "server_file": str(self.peer.server_file),
            "sample_every": 0.2,
        }
        return Launch(**(given | fields))

    def python(self, code: str, **fields: Any) -> JobId:
        return self.launch(sys.executable, "-c", textwrap.dedent(code), **fields)

    def patched(self, patch: str, *command: str, secrets: bytes = b"{}", **fields: Any) -> "subprocess.Popen[bytes]":
        """A runner of our own, with some code run in it first. It is the last of `jobs`."""
        wanted = self.describe(*command, **fields)
        directory = Path(wanted.directory)
        directory.mkdir(parents=True)
        (directory / "launch.json").write_bytes(msgspec.json.encode(wanted))
        arguments = [str(directory), *(["--walk"] if self.walk else [])]
        start = f"from whistlestop.runner.__main__ import main\nmain({arguments!r})"
        with (directory / "runner.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", f"{textwrap.dedent(patch)}\n{start}"],
                stdin=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert process.stdin is not None
        process.stdin.write(secrets)
        process.stdin.close()
        self.jobs.append(JobId(wanted.attempt_id))
        return process

    def state(self, job: JobId) -> JobState:
        return self.engine.poll([job])[job].state

    def directory(self, job: JobId) -> Path:
        return self.root / "attempts" / job

    def runner_pid(self, job: JobId) -> int:
        began = until(lambda: read_began(self.directory(job)), "the runner's mark")
        return int(began.pid)

    def group(self, job: JobId) -> Path | None:
        began = until(lambda: read_began(self.directory(job)), "the runner's mark")
        return Path(began.group) if began.group else None

    def alive(self, job: JobId) -> list[int]:
        """By the environment mark: a witness of its own."""
        return [process.pid for process in Tree(job).living()]

    def ended(self) -> dict[str, Any]:
        return until(self.peer.ended, "the end")  # type: ignore[no-any-return]

    def wait_done(self, job: JobId) -> None:
        try:
            until(lambda: self.state(job) is JobState.ENDED, f"{job} to be done")
        except AssertionError as error:
            said = (self.directory(job) / "runner.log").read_text()
            tails = {name: (self.directory(job) / name).read_bytes()[-500:] for name in ("runner", "logs")}
            raise AssertionError(f"{error}: {self.alive(job)} live, {tails}, runner.log: {said}") from None

    def close_jobs(self) -> None:
        for job in self.jobs:
            self.engine.cancel(job)
        self.jobs.clear()

    def close(self) -> None:
        self.close_jobs()
        self.peer.close()
