"""Browser sessions and one-time links. Only hashes are kept; both go with the token they were made by."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.server.store.schema import links, sessions

Row = sa.Row[Any]


def add_session(connection: sa.Connection, **values: Any) -> None:
    connection.execute(sessions.insert().values(**values))


def all_sessions(connection: sa.Connection) -> Sequence[Row]:
    return connection.execute(sa.select(sessions)).all()


def remove_session(connection: sa.Connection, hash: str) -> bool:
    return connection.execute(sessions.delete().where(sessions.c.hash == hash)).rowcount == 1


def add_link(connection: sa.Connection, **values: Any) -> None:
    connection.execute(links.insert().values(**values))


def take_link(connection: sa.Connection, hash: str, now: float) -> str | None:
    """The token it was made by, if it is good; it is gone with this. Of two who come at once, one gets it."""
    good = sa.and_(links.c.hash == hash, links.c.expires_at > now)
    token_id = connection.scalar(sa.select(links.c.token_id).where(good))
    if token_id is None or connection.execute(links.delete().where(good)).rowcount != 1:
        return None
    return str(token_id)


def remove_expired(connection: sa.Connection, now: float) -> None:
    for table in (sessions, links):
        connection.execute(table.delete().where(table.c.expires_at <= now))
