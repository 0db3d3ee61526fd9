"""The store's contract runs on SQLite and on a real PostgreSQL. A missing PostgreSQL skips at home, fails in CI."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.server.store.database import Database


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        made = Database(f"sqlite:///{tmp_path / 'test.db'}")
    else:
        made = Database(request.getfixturevalue("postgres_url"))
    made.migrate()
    yield made
    made.close()
