"""Browser sessions and one-time links. Only hashes are kept; both go with the token they were made by."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.server.store.schema import links, owner, sessions

Row = sa.Row[Any]


def add_session(connection: sa.Connection, **values: Any) -> None:
    connection.execute(sessions.insert().values(**values))


def all_sessions(connection: sa.Connection) -> Sequence[Row]:
    return connection.execute(sa.select(sessions)).all()


def remove_session(connection: sa.Connection, hash: str) -> bool:
    return connection.execute(sessions.delete().where(sessions.c.hash == hash)).rowcount == 1


def keep_newest(connection: sa.Connection, token_id: str, count: int) -> None:
    """Of one token's sessions; the others are gone."""
    own = sessions.c.token_id == token_id
    newest = sa.select(sessions.c.hash).where(own).order_by(sessions.c.created_at.desc(), sessions.c.hash).limit(count)
    kept = connection.scalars(newest).all()
    connection.execute(sessions.delete().where(own, sessions.c.hash.not_in(kept)))


def owner_id(connection: sa.Connection) -> str:
    """Of the data directory that this database belongs to; empty: of none yet."""
    return str(connection.scalar(sa.select(owner.c.data_id)) or "")


def add_link(connection: sa.Connection, **values: Any) -> None:
    connection.execute(links.insert().values(**values))


def good_link(connection: sa.Connection, hash: str, now: float) -> str | None:
    """The token it was made by."""
    token_id = connection.scalar(sa.select(links.c.token_id).where(links.c.hash == hash, links.c.expires_at > now))
    return None if token_id is None else str(token_id)


def take_link(connection: sa.Connection, hash: str, now: float) -> str | None:
    """The token it was made by, if it is good; it is gone with this. Of two who come at once, one gets it."""
    token_id = good_link(connection, hash, now)
    taken = connection.execute(links.delete().where(links.c.hash == hash)).rowcount == 1
    return token_id if taken else None


def remove_expired(connection: sa.Connection, now: float) -> None:
    for table in (sessions, links):
        connection.execute(table.delete().where(table.c.expires_at <= now))
