"""Real servers for tests: one per test that asks for it, in a directory of its own, gone afterwards."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whistlestop.testing.server import ServerProcess


@pytest.fixture
def data() -> Iterator[Path]:
    """A short path: sockets and long attempt directories have limits."""
    directory = Path(tempfile.mkdtemp(prefix="whistle-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def start_server(data: Path) -> Iterator[Callable[..., ServerProcess]]:
    servers: list[ServerProcess] = []

    def start(**options: object) -> ServerProcess:
        server = ServerProcess(data / f"server-{len(servers)}", **options)  # type: ignore[arg-type]
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def server(start_server: Callable[..., ServerProcess]) -> ServerProcess:
    return start_server(slots=2)
