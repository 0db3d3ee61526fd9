"""Everything special to SQLite."""

import sqlite3
from typing import Any

import sqlalchemy as sa

PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA busy_timeout=30000",
    "PRAGMA journal_size_limit=67108864",
    "PRAGMA cache_size=-32000",
)


def prepare(engine: sa.Engine) -> None:
    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        connection.create_function("lower", 1, _lower, deterministic=True)
        for pragma in PRAGMAS:
            connection.execute(pragma)

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        # A transaction that reads and then writes must take the write lock first, or it can fail in between.
        options = connection.get_execution_options()
        if options.get("whistle_write", False):
            # NORMAL skips the sync of this one commit; the next FULL one makes it durable with itself.
            level = "FULL" if options["whistle_durable"] else "NORMAL"
            if connection.info.get("synchronous") != level:
                connection.exec_driver_sql(f"PRAGMA synchronous={level}")
                connection.info["synchronous"] = level
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("BEGIN")


def _lower(text: Any) -> Any:
    """SQLite's own knows ASCII alone: a search in any case must find Österreich, too, as it does on PostgreSQL."""
    return text.lower() if isinstance(text, str) else text
