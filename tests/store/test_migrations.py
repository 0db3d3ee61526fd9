"""A database of an earlier version is brought up with everything that is in it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from whistlestop.server.store import checkpoints, phases
from whistlestop.server.store.database import Database

MIGRATIONS = Path(checkpoints.__file__).parent / "migrations"
RUN: dict[str, Any] = {
    "id": "r", "number": 1, "name": "old", "project": "p", "priority": 0, "state": "running", "recovering": False,
    "request": 0, "request_seq": 0, "request_latest": False, "request_by": "", "discard": False, "note": "", "spec": "",
    "env": {}, "created_by": "me", "created_at": 1.0, "attempts": 0, "changed": 0,
}  # fmt: skip
PHASE: dict[str, Any] = {
    "id": "r.0", "run_id": "r", "ordinal": 0, "name": "train", "kind": "train", "state": "running", "needs": [],
    "slots": 1, "retries": 0, "errors_used": 0, "faults": 0, "fault_step": 0, "not_before": 0, "stop_seq": 0,
    "stop_by": "", "stop_reasons": [], "from_start": False,
}  # fmt: skip
CHECKPOINT: dict[str, Any] = {
    "id": "c", "run_id": "r", "phase": "train", "step": 5, "attempt": 1, "path": "/c", "bytes": 1, "committed_at": 1.0,
    "verified": True, "pinned": False, "metrics": {},
}  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def first(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """As version 0001 left it, with a row of each table that has changed since."""
    url = f"sqlite:///{tmp_path / 'old.db'}"
    made = Database(request.getfixturevalue("empty_postgres_url") if request.param == "postgres" else url)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with made.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    with made.write() as connection:
        for table, row in (("runs", RUN), ("phases", PHASE), ("checkpoints", CHECKPOINT)):
            columns = sa.inspect(connection).get_columns(table)
            there = sa.table(table, *(sa.column(column["name"], column["type"]) for column in columns))
            connection.execute(there.insert().values(**row))
    yield made
    made.close()


def test_rows_of_before_get_what_the_new_columns_mean_by_default(first: Database) -> None:
    first.migrate()
    with first.read() as connection:
        phase = phases.get(connection, "r.0")
        assert (phase.save_seq, phase.saves_done, phase.save_at) == (0, 0, None)
        assert (phase.steering, phase.params, phase.needs) == ([], {}, [])
        newest = checkpoints.newest(connection, "r", "train")
        assert newest is not None
        assert newest.healthy is True
        assert (newest.why, newest.trashed_until, newest.verified_at, newest.written) == ("", None, None, None)
        assert (newest.block_seconds, newest.upload_seconds) == (None, None)
