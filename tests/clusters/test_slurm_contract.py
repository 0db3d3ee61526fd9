"""What every engine promises, on a real Slurm: runners are started by it, and talk to the peer that all engines' do."""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engine_contract import *  # noqa: F403
from runner_kit import Kit, Peer, until
from websockets.asyncio.server import Request, Response, ServerConnection
from websockets.datastructures import Headers

from whistlestop.engines.base import JobId, JobState
from whistlestop.engines.slurm import SlurmEngine
from whistlestop.server.services.kits import Kits
from whistlestop.testing.slurm_cluster import SlurmCluster
from whistlestop.wire.launch import Launch, Ready


class FetchedFrom(Peer):
    """What a node asks for before its runner is there it is given, too."""

    def __init__(self, server_file: Path) -> None:
        super().__init__(server_file)
        self.wanted: dict[str, Launch] = {}  # by token
        self.kits = Kits()

    def _judge(self, connection: ServerConnection, request: Request) -> Response | None:
        token = (request.headers.get("Authorization") or "").removeprefix("Bearer ")
        what = request.path.rpartition("/")[2].partition("?")[0]
        if what == "launch":
            wanted = self.wanted[token]
            kit = self.kits.get().digest
            ready = Ready(launch=wanted, secrets={}, seat=wanted.attempt_id, bundle=None, kit=kit)
            return _answer(msgspec.json.encode(ready))
        if what == "kit":
            return _answer(self.kits.get().data)
        return super()._judge(connection, request)


def _answer(body: bytes) -> Response:
    return Response(200, "OK", Headers({"Content-Length": str(len(body)), "Connection": "close"}), body)


class SlurmKit(Kit):
    def __init__(self, root: Path, cluster: SlurmCluster) -> None:
        self.cluster, self.fetched_from = cluster, FetchedFrom(root / "server.json")
        self.fetched_from.start()
        super().__init__(root, walk=False, peer=self.fetched_from)

    def fresh(self) -> SlurmEngine:  # type: ignore[override]
        return SlurmEngine(
            {
                "python": sys.executable,
                "directory": str(self.root),
                "conf": self.cluster.env["SLURM_CONF"],
                "url": self.peer.url,
                "partition": "spot",
                "lease": 30.0,
            }
        )

    def describe(self, *command: str, **fields: Any) -> Launch:
        made = super().describe(*command, **fields)
        server = self.peer.url.replace("http", "ws") + "/api/v1/runner"
        made = msgspec.structs.replace(made, token=made.attempt_id, server=server, server_file=None)
        self.fetched_from.wanted.setdefault(made.token, made)
        return made

    def host(self, job: JobId) -> str:
        return self.cluster.run("squeue", "-h", "-n", f"whistle-{job}", "-o", "%N").strip()


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with SlurmCluster(Path(f"/tmp/wc-{os.getpid()}")) as started:
        yield started


@pytest.fixture
def kit(cluster: SlurmCluster) -> Iterator[SlurmKit]:
    root = Path(tempfile.mkdtemp(prefix="whistle-"))
    made = SlurmKit(root, cluster)
    try:
        yield made
    finally:
        made.close()
        until(lambda: not cluster.run("squeue", "-h"), "every job to be gone", timeout=60)
        shutil.rmtree(root, ignore_errors=True)


def test_a_lost_node_is_lost_and_the_end_of_its_runner_is_not_called_proven(kit: SlurmKit) -> None:
    job = kit.launch("sleep", "1000")
    until(lambda: "program_started" in kit.peer.kinds(), "the program")
    host = kit.host(job)
    kit.cluster.power_off(host)
    try:
        until(lambda: kit.state(job) is JobState.LOST, "the loss to be known", timeout=90)
        assert "a node of it has failed" in kit.engine.poll([job])[job].text
    finally:
        kit.cluster.power_on(host)


def test_a_node_fetches_our_code_once(kit: SlurmKit) -> None:
    for number in (1, 2):
        kit.wait_done(kit.launch("true", attempt_number=number))
        kit.peer.streams.clear()  # they are those of one attempt
    (unpacked,) = (kit.root / "kits").glob("[!.]*")
    assert unpacked.name == hashlib.sha256(kit.fetched_from.kits.get().data).hexdigest()


def test_no_secret_and_no_token_is_on_a_command_line(kit: SlurmKit) -> None:
    job = kit.launch("sleep", "1000")
    until(lambda: kit.alive(job), "the program")
    token = json.dumps(job).strip('"')
    shown = [
        Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        for pid in kit.cluster.processes(kit.host(job))
        if Path(f"/proc/{pid}").exists()
    ]
    assert not [words for words in shown if f'"token":"{token}"' in words]
