"""Wiring: settings in, a running server out. The order of start and stop is written here and nowhere else."""

import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

import whistlestop
from whistlestop.domain import clock
from whistlestop.domain.errors import Refused
from whistlestop.domain.ids import new_id
from whistlestop.engines.base import Engine
from whistlestop.engines.local import LocalEngine
from whistlestop.engines.ray.engine import Drivers, RayEngine
from whistlestop.engines.slurm import SlurmEngine
from whistlestop.server.api import (
    admin,
    advice,
    alerts,
    charts,
    checkpoints,
    link,
    logs,
    nodes,
    pages,
    pools,
    problems,
    rehearsal,
    runs,
    stacks,
    streams,
    timeline,
    usage,
)
from whistlestop.server.api.access import Viewer
from whistlestop.server.api.guard import Guard
from whistlestop.server.api.timing import Timing
from whistlestop.server.scheduler.alerts import Alerts
from whistlestop.server.scheduler.engines import ByPool
from whistlestop.server.scheduler.loop import Scheduler
from whistlestop.server.scheduler.passes import Passes
from whistlestop.server.scheduler.patient import Patient
from whistlestop.server.scheduler.watching import Watching
from whistlestop.server.services import accounts, sessions, storages, tracing
from whistlestop.server.services.context import Context
from whistlestop.server.services.exposing import Exposing
from whistlestop.server.services.hub import Hub
from whistlestop.server.services.kits import Kits
from whistlestop.server.services.settings import Settings, default_slots
from whistlestop.server.services.starts import Starts
from whistlestop.server.services.vault import Vault, read_or_create
from whistlestop.server.services.verifying import Verifying
from whistlestop.server.store import admin as admin_store
from whistlestop.server.store import pools as pools_store
from whistlestop.server.store.database import Database
from whistlestop.server.web import pages as web_pages
from whistlestop.server.web import sessions as web_sessions
from whistlestop.server.web.headers import SecurityHeaders
from whistlestop.wire.api import Problem

log = logging.getLogger(__name__)
API = "/api/v1"


class Server:
    """One server on one data directory: `with Server(settings) as server: server.serve()`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.url = ""
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> "Server":
        """Claim the directory, open the store, bind the port. Nothing runs yet."""
        with contextlib.ExitStack() as stack:
            data = self.settings.data
            _make_private(data)
            stack.enter_context(_claim(data))
            self._socket = stack.enter_context(_bind(self.settings.host, self.settings.port))
            self.url = f"http://{_authority(self.settings.host, self._socket.getsockname()[1])}"
            database = Database(self.settings.database_url)
            stack.callback(database.close)
            database.claim()
            database.migrate()
            _claim_database(database, data)
            self.context = Context(
                settings=self.settings,
                database=database,
                hub=Hub(),
                vault=Vault.open(data / "secret.key"),
                clock=clock.now,
            )
            storages.check(self.context)
            self.token = accounts.first_token(self.context)
            self.slots = _prepare(self.context)
            self._drivers = Drivers(data / "ray", data / "sdk")
            stack.callback(self._drivers.close)
            engines = ByPool(self.context, self._engine)
            self._scheduler = Scheduler(
                Passes(self.context, engines, lambda: self.url),
                tick=self.settings.tick,
                took=self.context.meters.passes.observe,
            )
            self.context.hub.connect_scheduler(self._scheduler.wake)
            self._watching = Watching(self.context)
            self.context.hub.connect_diagnosis(self._watching.suspect)
            exposing = Exposing(self.context)
            heard = [exposing.heard]
            if tracing.wanted():
                traced = tracing.Tracing(self.context)
                stack.callback(traced.close)
                heard.append(traced.heard)
            self._alerts = Alerts(self.context, lambda: self.url, heard=heard)
            self.context.hub.alerts_changed = self._alerts.wake
            self.app = make_app(self.context, self._scheduler, lambda: self.url, exposing)
            _write_private(self.settings.server_file, json.dumps({"url": self.url, "pid": os.getpid()}))
            stack.callback(self.settings.server_file.unlink, missing_ok=True)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._exit.close()

    def _engine(self, name: str, settings: Mapping[str, Any]) -> Engine:
        if name == "slurm":
            return Patient(SlurmEngine(settings), self._scheduler.hung_up)
        if name == "ray":
            ray = RayEngine(settings, self._drivers.of(settings))
            patient = Patient(ray, self._scheduler.hung_up)
            ray.hear(patient.look)
            return patient
        return LocalEngine(self.settings.attempts)

    def serve(self) -> None:
        """Until SIGTERM or SIGINT: answers stop, state is flushed, runs go on."""
        config = uvicorn.Config(
            self.app,
            log_level="warning",
            access_log=False,
            ws="websockets-sansio",
            ws_max_size=16 * 1024 * 1024,
            ws_ping_interval=20.0,
            ws_ping_timeout=20.0,
            timeout_graceful_shutdown=3,
            server_header=False,
        )
        # A stop crosses three threads on its way; by default each may keep the next one waiting for 5 ms.
        sys.setswitchinterval(0.0005)
        self._uvicorn = _Uvicorn(config, self.context.hub)
        self._scheduler.start()
        self._watching.start()
        self._alerts.start()
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._watching.stop()
            self._scheduler.stop()
            self._alerts.stop()

    def dashboard_link(self) -> str:
        """A page that signs its first visitor in, with the token of the data directory."""
        actor = accounts.Doorkeeper(self.context).admit(self.token)
        return self.url + sessions.new_link(self.context, actor)[0]

    def stop(self) -> None:
        """From another thread: the same as a signal."""
        self.context.hub.close()
        self._uvicorn.should_exit = True


def make_app(
    context: Context,
    scheduler: Scheduler,
    url: Callable[[], str] = lambda: "",
    exposing: Exposing | None = None,
) -> FastAPI:
    app = FastAPI(
        title="Whistlestop",
        version=whistlestop.__version__,
        description="Start, watch, stop, pause, resume, kill and finish training runs.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        responses={
            status: {"model": Problem, "content": {"application/problem+json": {}}, "description": text}
            for status, text in {
                400: "The request makes no sense",
                401: "No token, or an unknown one",
                403: "Not with this token",
                404: "No such thing",
                409: "The state does not allow it",
                413: "Too large",
                422: "Mistakes in the request",
            }.items()
        },
    )
    app.state.context = context
    app.state.doorkeeper = accounts.Doorkeeper(context)
    app.state.sessions = sessions.Sessions(context, app.state.doorkeeper)
    app.state.hung_up = scheduler.hung_up
    app.state.could_not_start = scheduler.could_not_start
    app.state.clusters = scheduler.clusters
    app.state.kits, app.state.starts, app.state.url = Kits(), Starts(), url
    app.state.verifying = Verifying(context)
    problems.install(app)
    for module in (
        runs, checkpoints, logs, streams, admin, timeline, pages, charts, pools, usage, rehearsal, advice, stacks,
        alerts,
    ):  # fmt: skip
        app.include_router(module.router, prefix=API)
    app.include_router(link.router, prefix=API)
    app.include_router(nodes.router, prefix=API)

    @app.get(f"{API}/openapi.json", include_in_schema=False)
    def openapi(_actor: Viewer) -> JSONResponse:
        return JSONResponse(_openapi(app))

    @app.get("/healthz", include_in_schema=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    exposed = exposing or Exposing(context)

    @app.get("/metrics", include_in_schema=False)
    def metrics(_actor: Viewer) -> Response:
        """For Prometheus, with a token as everything."""
        return Response(exposed.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    app.include_router(web_sessions.router)
    app.include_router(web_pages.router)  # last: it answers to every address that nobody else has

    hosts = frozenset({context.settings.host, *context.settings.allowed_hosts} - {"0.0.0.0", "::"})
    app.add_middleware(Guard, hosts=hosts, admit=app.state.sessions.admit, api=API)
    app.add_middleware(SecurityHeaders, api=API)  # around the guard: a refusal has them too
    app.add_middleware(Timing, meters=context.meters, api=API)
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    document = app.openapi()
    document.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    return document


class _Uvicorn(uvicorn.Server):
    """Lets streams and links end before uvicorn waits for them."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    def handle_exit(self, sig: int, frame: Any) -> None:
        # In a thread: the hub has a lock, and a signal handler may have interrupted whoever holds it.
        threading.Thread(target=self._hub.close, daemon=True).start()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's own, but a signal that was obeyed is not raised again: the end is a good one, exit code 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _prepare(context: Context) -> int:
    """Directories, the SDK's link, the pool. The answer: its slots."""
    settings = context.settings
    for directory in (settings.attempts, settings.bundles, settings.data / "runs", settings.data / "sdk"):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _link_sdk(settings.data / "sdk" / "whistlestop")
    with context.database.write() as connection:
        before = pools_store.get(connection, "local")
        # What was set by `whistle pools` stays set; --slots, if given, is newer.
        price = settings.price if before is None else before.price
        slots = settings.slots or (default_slots() if before is None else before.slots)
        pools_store.put(connection, "local", at=context.clock(), engine="local", slots=slots, price=price)
    return int(slots)


def _link_sdk(link: Path) -> None:
    """A directory with our package alone: on the program's PYTHONPATH it shadows nothing of the user's."""
    package = Path(whistlestop.__file__).parent
    if link.is_symlink() and link.readlink() == package:
        return
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.symlink_to(package)
    os.replace(temporary, link)


@contextlib.contextmanager
def _claim(data: Path) -> Iterator[None]:
    """One server per data directory: the lock dies with the process, however it dies."""
    handle = os.open(data / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"another server uses {data}",
                hint="use that one (whistle ls), or give this one a directory of its own: --data DIR",
            ) from None
        yield
    finally:
        os.close(handle)


def _claim_database(database: Database, data: Path) -> None:
    """A database belongs to one data directory: beside another, its runs would seem to have vanished, and be started
    a second time."""
    mark = read_or_create(data / "id", lambda: new_id("d").encode()).decode()
    with database.write() as connection:
        if not admin_store.claim_for(connection, mark):
            raise Refused(
                "this database belongs to another data directory",
                hint="start it with the --data that it was made with, or give this one a database of its own",
            )


@contextlib.contextmanager
def _bind(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
            bound.listen(1024)  # from here on nobody is refused: who comes early waits until we serve
        except OSError as error:
            raise Refused(
                f"can't listen on {host} port {port}: {error.strerror}", hint="choose another one: --port 0 takes any"
            ) from error
        yield bound


def _authority(host: str, port: int) -> str:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{reachable}]:{port}" if ":" in reachable else f"{reachable}:{port}"


def _make_private(data: Path) -> None:
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        data.chmod(0o700)  # logs, environments and token hashes are nobody else's business
        (data / ".writable").write_bytes(b"")
        (data / ".writable").unlink()
    except OSError as error:
        raise Refused(
            f"can't write to {data}: {error.strerror}", hint="choose another directory: --data DIR"
        ) from error


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(temporary, path)
