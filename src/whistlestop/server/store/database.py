"""The door to the database: SQLite by default, PostgreSQL by URL. Reads see a snapshot, writes are one at a time."""

import contextlib
import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from whistlestop.domain.errors import DiskFull, Refused
from whistlestop.server.store import rebuild, sqlite

SERVER_LOCK = 0x57485354  # advisory lock "WHST" in PostgreSQL: one server per database
# SQLite says the first; on a full disk its write-ahead log says the second; PostgreSQL says the third.
FULL = ("database or disk is full", "disk I/O error", "No space left on device")


class Database:
    def __init__(self, url: str) -> None:
        """`url`: sqlite:///path or postgresql://…; nothing is opened yet."""
        self.url = _with_driver(url)
        _check_usable(self.url)
        self.is_sqlite = self.url.startswith("sqlite")
        if self.is_sqlite:
            self._engine = sa.create_engine(self.url, pool_size=16, max_overflow=32)
            sqlite.prepare(self._engine)
        else:
            self._engine = sa.create_engine(self.url, pool_size=16, max_overflow=32, pool_pre_ping=True)
        # SQLite has one writer: queueing for it here is fair and wakes at once, its own busy handler sleeps and
        # retries. PostgreSQL takes writers side by side; our guards are written for one at a time, and the server is
        # one process, so a lock here costs nothing and removes a class of races.
        self._writing = threading.Lock()
        # One snapshot for all queries of a read: SQLite gives it by itself.
        level = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        self._reading = self._engine.execution_options(**level)
        self._claim: sa.Connection | None = None
        self._closed = False
        sa.event.listen(self._engine, "checkin", self._returned)

    def claim(self) -> None:
        """Refuse to be the second server on one PostgreSQL database (SQLite: the data directory's lock does it)."""
        if self.is_sqlite:
            return
        try:
            self._claim = self._engine.connect()
        except sa.exc.DBAPIError as error:
            raise Refused(
                f"the database {self._engine.url.render_as_string(hide_password=True)} can't be reached: {error.orig}",
                hint="check the address given with --db, and that its server runs",
            ) from error
        if not self._claim.exec_driver_sql(f"SELECT pg_try_advisory_lock({SERVER_LOCK})").scalar():
            self._claim.close()
            self._claim = None
            raise Refused(
                "another Whistlestop server uses this database", hint="stop it, or give this one a database of its own"
            )
        self._claim.commit()

    def migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with self.write() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            rebuild.missing(connection)

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        with self._reading.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def write(self, *, durable: bool = True) -> Iterator[sa.Connection]:
        """Commits at the end of the block, and is on the disk when it returns; rolls back if the block raises.

        `durable=False` is for what its sender can send again: it survives our crash, and a power cut takes it back as
        a whole. It costs no wait for the disk.
        """
        try:
            with self._writing, self._engine.connect() as plain:
                connection = plain.execution_options(whistle_write=True, whistle_durable=durable)
                with connection.begin():
                    if not (durable or self.is_sqlite):
                        connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                    yield connection
        except sa.exc.DBAPIError as error:
            if any(words in str(error.orig) for words in FULL):
                raise DiskFull(hint="make room; runs go on meanwhile and lose nothing") from error
            raise

    def in_use(self) -> int:
        """Connections that somebody reads or writes by just now."""
        pool = self._engine.pool
        return (pool.checkedout() if isinstance(pool, sa.pool.QueuePool) else 0) - (self._claim is not None)

    def close(self) -> None:
        """Those that somebody still reads by are closed when they are given back."""
        self._closed = True
        if self._claim is not None:
            self._claim.close()
        self._engine.dispose()

    def _returned(self, _: object, record: sa.pool.ConnectionPoolEntry) -> None:
        if self._closed:  # nobody will take it out again, nor close it
            record.invalidate()


def _check_usable(url: str) -> None:
    try:
        dialect = sa.make_url(url).get_backend_name()
    except sa.exc.ArgumentError:
        dialect = ""
    if dialect not in ("sqlite", "postgresql"):
        raise Refused(
            "the address given with --db is not one of a SQLite or PostgreSQL database",
            hint="for example postgresql://user:password@host/database",
        )
    if dialect == "postgresql" and importlib.util.find_spec("psycopg") is None:
        raise Refused("PostgreSQL needs one more package", hint="pip install 'whistlestop[postgres]'")


def _with_driver(url: str) -> str:
    for plain in ("postgresql://", "postgres://"):
        if url.startswith(plain):
            return "postgresql+psycopg://" + url.removeprefix(plain)
    return url
