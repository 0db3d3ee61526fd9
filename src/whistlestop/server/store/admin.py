"""Tokens, secrets, workflows and the trash: small tables that people set."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.server.store.schema import owner, secrets, tokens, trash, workflows

Row = sa.Row[Any]


def claim_for(connection: sa.Connection, data_id: str) -> bool:
    """The first data directory that comes owns the database. False: it is another one's."""
    known = connection.scalar(sa.select(owner.c.data_id))
    if known is None:
        connection.execute(owner.insert().values(data_id=data_id))
    return known in (None, data_id)


def add_token(connection: sa.Connection, **values: Any) -> None:
    connection.execute(tokens.insert().values(**values))


def all_tokens(connection: sa.Connection) -> Sequence[Row]:
    return connection.execute(sa.select(tokens).order_by(tokens.c.created_at)).all()


def remove_token(connection: sa.Connection, token_id: str) -> bool:
    return connection.execute(tokens.delete().where(tokens.c.id == token_id)).rowcount == 1


def put_secret(connection: sa.Connection, name: str, sealed: bytes, at: float) -> None:
    done = connection.execute(secrets.update().where(secrets.c.name == name).values(sealed=sealed, updated_at=at))
    if done.rowcount == 0:
        connection.execute(secrets.insert().values(name=name, sealed=sealed, updated_at=at))


def all_secrets(connection: sa.Connection) -> Sequence[Row]:
    return connection.execute(sa.select(secrets).order_by(secrets.c.name)).all()


def find_secrets(connection: sa.Connection, names: Collection[str]) -> dict[str, bytes]:
    query = sa.select(secrets.c.name, secrets.c.sealed).where(secrets.c.name.in_(names))
    return {row.name: row.sealed for row in connection.execute(query)}


def remove_secret(connection: sa.Connection, name: str) -> bool:
    return connection.execute(secrets.delete().where(secrets.c.name == name)).rowcount == 1


def save_workflow(connection: sa.Connection, name: str, spec: str, *, note: str, by: str, at: float) -> Row:
    """The same text as the newest version is that version."""
    newest = workflow(connection, name)
    if newest is None or newest.spec != spec:
        version = 1 if newest is None else newest.version + 1
        connection.execute(
            workflows.insert().values(name=name, version=version, spec=spec, note=note, created_at=at, created_by=by)
        )
        newest = workflow(connection, name)
    assert newest is not None
    return newest


def workflow(connection: sa.Connection, name: str, version: int | None = None) -> Row | None:
    query = sa.select(workflows).where(workflows.c.name == name)
    if version is not None:
        query = query.where(workflows.c.version == version)
    return connection.execute(query.order_by(workflows.c.version.desc()).limit(1)).one_or_none()


def workflow_versions(connection: sa.Connection, name: str) -> Sequence[Row]:
    query = sa.select(workflows).where(workflows.c.name == name).order_by(workflows.c.version.desc())
    return connection.execute(query).all()


def all_workflows(connection: sa.Connection) -> Sequence[Row]:
    newest = (
        sa.select(workflows.c.name, sa.func.max(workflows.c.version).label("version"))
        .group_by(workflows.c.name)
        .subquery()
    )
    query = sa.select(workflows).join(
        newest, sa.and_(workflows.c.name == newest.c.name, workflows.c.version == newest.c.version)
    )
    return connection.execute(query.order_by(workflows.c.name)).all()


def discard(
    connection: sa.Connection, paths: Collection[str], at: float, options: Mapping[str, str] | None = None
) -> None:
    """`options`: how they are reached, where they are addresses in an object storage."""
    known = set(connection.scalars(sa.select(trash.c.path).where(trash.c.path.in_(paths))))
    fresh = [{"path": path, "at": at, "options": options} for path in dict.fromkeys(paths) if path not in known]
    if fresh:
        connection.execute(trash.insert(), fresh)


def discarded(connection: sa.Connection) -> Sequence[Row]:
    return connection.execute(sa.select(trash).order_by(trash.c.at)).all()


def swept(connection: sa.Connection, path: str) -> None:
    connection.execute(trash.delete().where(trash.c.path == path))
