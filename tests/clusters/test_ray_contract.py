"""What every engine promises, promised by Ray's as well: the same tests as of the local engine, on a real cluster."""

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

sys.path[:0] = [str(Path(__file__).parent.parent / name) for name in ("engines", "runner")]

from engine_contract import *  # noqa: E402, F403
from runner_kit import Kit, Peer, until  # noqa: E402
from websockets.asyncio.server import Request, Response, ServerConnection  # noqa: E402
from websockets.datastructures import Headers  # noqa: E402

import whistlestop  # noqa: E402
from whistlestop.engines.base import JobId, JobState  # noqa: E402
from whistlestop.engines.ray.engine import Drivers, RayEngine  # noqa: E402
from whistlestop.server.services.kits import Kits  # noqa: E402
from whistlestop.testing.ray_cluster import RayCluster  # noqa: E402
from whistlestop.wire.launch import Launch, Ready  # noqa: E402


class NodesPeer(Peer):
    """Serves what a node fetches before its runner is there, too."""

    def __init__(self, server_file: Path) -> None:
        super().__init__(server_file)
        self.kits = Kits()
        self.launches: dict[str, Launch] = {}  # by token

    def _judge(self, connection: ServerConnection, request: Request) -> Response | None:
        what = urlsplit(request.path).path.rpartition("/")[2]
        if what == "runner":
            return super()._judge(connection, request)
        launch = self.launches.get(request.headers["Authorization"].removeprefix("Bearer "))
        if launch is None:
            return connection.respond(HTTPStatus.NOT_FOUND, "no\n")
        body = self.kits.get().data
        if what == "launch":
            kit = self.kits.get().digest
            body = msgspec.json.encode(Ready(launch=launch, secrets={}, seat=launch.attempt_id, bundle=None, kit=kit))
        return Response(HTTPStatus.OK, "OK", Headers({"Content-Length": str(len(body))}), body)


class RayKit(Kit):
    peer: NodesPeer

    def __init__(self, root: Path, engine: RayEngine, nodes: Path) -> None:
        self._nodes, self._settings = nodes, engine._settings
        self.drivers: list[Drivers] = []
        super().__init__(root, walk=False)
        self.peer.close()
        self.peer = NodesPeer(root / "server.json")
        self.engine = engine  # type: ignore[assignment]

    def launch(self, *command: str, secrets: dict[str, str] | None = None, **fields: Any) -> JobId:
        """Ray takes its time to find a node."""
        job = super().launch(*command, secrets=secrets, **fields)
        until(lambda: self.state(job) is not JobState.PENDING, f"{job} to be placed")
        return job

    def describe(self, *command: str, **fields: Any) -> Launch:
        """Runners on nodes read no file of the server's: they are told where it is."""
        made = super().describe(*command, **fields)
        token = hashlib.sha256(made.attempt_id.encode()).hexdigest()
        server = f"ws{self.peer.url.removeprefix('http')}/api/v1/runner"
        made = msgspec.structs.replace(made, server=server, token=token, server_file=None)
        self.peer.launches.setdefault(token, made)
        return made

    def fresh(self) -> RayEngine:  # type: ignore[override]
        """With a driver of its own, which knows what is written down."""
        settings, data = self._settings, self._nodes.parent
        self.drivers.append(Drivers(data / "ray", data / "sdk"))
        return RayEngine(settings, self.drivers[-1].of(settings))

    def directory(self, job: JobId) -> Path:
        return next(self._nodes.glob(f"*/attempts/{job}"), self._nodes / job)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RayEngine, Path]]:
    root = tmp_path_factory.mktemp("engine")
    (root / "sdk").mkdir()
    (root / "sdk" / "whistlestop").symlink_to(Path(whistlestop.__file__).parent)
    with RayCluster(tmp_path_factory.mktemp("ray"), nodes=2, slots=4) as cluster, cluster.entered():
        settings = {"address": cluster.address, "directory": str(root / "nodes"), "python": sys.executable}
        drivers = Drivers(root / "ray", root / "sdk")
        yield RayEngine(settings, drivers.of(settings)), root / "nodes"
        drivers.close()


@pytest.fixture
def kit(engine: tuple[RayEngine, Path]) -> Iterator[RayKit]:
    root = Path(tempfile.mkdtemp(prefix="whistle-"))
    made = RayKit(root, *engine)
    made.peer.start()
    jobs = made.jobs
    try:
        yield made
    finally:
        known = list(jobs)
        for drivers in made.drivers:
            drivers.close()
        made.close()
        for job in known:
            made.engine.forget(job)
        shutil.rmtree(root, ignore_errors=True)


def test_an_attempt_that_can_t_be_reserved_again_is_nobody_else_s_trouble(kit: RayKit) -> None:
    """Its driver begins anew when Ray is in trouble, not when one attempt is."""
    job = kit.launch("sleep", "1000")
    until(lambda: kit.alive(job), "the program")
    attempts = kit.directory(job).parent
    (attempts / "a-odd").mkdir()
    (attempts / "a-odd" / "began").write_text("{}")
    records = next((kit._nodes.parent / "ray").glob(f"*/{job}.json")).parent
    odd = {"id": "a-odd", "nodes": 1, "python": "python3", "bundle": {"CPU": "many"}, "hosts": [attempts.parent.name]}
    (records / "a-odd.json").write_text(json.dumps({**odd, "released": False}))
    fresh = kit.fresh()
    try:
        assert fresh.poll([job])[job].state is JobState.RUNNING
        process, log = fresh._driver._process, records / "driver.log"
        words = "a-odd can't be reserved again"
        until(lambda: log.read_text(errors="replace").count(words) > 2, "it to be tried and tried again")
        assert fresh.poll([job])[job].state is JobState.RUNNING
        assert fresh._driver._process is process
    finally:
        fresh.forget(JobId("a-odd"))
        shutil.rmtree(attempts / "a-odd", ignore_errors=True)
