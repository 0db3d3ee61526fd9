"""The nodes of attempts that have several: where each is, when it was heard of, and how it has ended."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.gang import NodeEnd
from whistlestop.domain.reasons import EndReason
from whistlestop.server.store.schema import attempt_nodes as nodes

Row = sa.Row[Any]


def of(connection: sa.Connection, attempt_id: str) -> Sequence[Row]:
    """Those that were heard of, in order."""
    return connection.execute(sa.select(nodes).where(nodes.c.attempt_id == attempt_id).order_by(nodes.c.node)).all()


def one(connection: sa.Connection, attempt_id: str, node: int) -> Row | None:
    same = sa.and_(nodes.c.attempt_id == attempt_id, nodes.c.node == node)
    return connection.execute(sa.select(nodes).where(same)).one_or_none()


def ended(connection: sa.Connection, attempt_id: str) -> Sequence[Row]:
    """Those that have, in order."""
    over = sa.and_(nodes.c.attempt_id == attempt_id, nodes.c.ended_at.is_not(None))
    return connection.execute(sa.select(nodes).where(over).order_by(nodes.c.node)).all()


def count_ended(connection: sa.Connection, attempt_id: str) -> int:
    over = sa.and_(nodes.c.attempt_id == attempt_id, nodes.c.ended_at.is_not(None))
    return connection.execute(sa.select(sa.func.count()).select_from(nodes).where(over)).scalar_one()


def of_all(connection: sa.Connection, attempt_ids: Collection[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    query = sa.select(nodes).where(nodes.c.attempt_id.in_(attempt_ids)).order_by(nodes.c.attempt_id, nodes.c.node)
    for row in connection.execute(query):
        found.setdefault(row.attempt_id, []).append(row)
    return found


def ends(rows: Sequence[Row]) -> dict[int, NodeEnd]:
    return {
        row.node: NodeEnd(row.node, EndReason(row.reason), row.ended_at, row.told)
        for row in rows
        if row.ended_at is not None
    }


def seen(connection: sa.Connection, attempt_id: str, node: int, *, host: str, at: float) -> None:
    _put(connection, attempt_id, node, host=host, seen_at=at)


def heard(connection: sa.Connection, attempt_id: str, node: int, at: float) -> None:
    _put(connection, attempt_id, node, seen_at=at)


def tell_to_leave(connection: sa.Connection, attempt_id: str, count: int) -> None:
    """Those of its `count` nodes that have not ended. What they end of from now on explains nothing."""
    untold = sa.and_(nodes.c.attempt_id == attempt_id, nodes.c.ended_at.is_(None), sa.not_(nodes.c.told))
    connection.execute(nodes.update().where(untold).values(told=True))
    known = set(connection.execute(sa.select(nodes.c.node).where(nodes.c.attempt_id == attempt_id)).scalars())
    if silent := [node for node in range(count) if node not in known]:
        connection.execute(nodes.insert(), [{"attempt_id": attempt_id, "node": node, "told": True} for node in silent])


def end(
    connection: sa.Connection, attempt_id: str, node: int, *, reason: EndReason, text: str, at: float, data: Any
) -> bool:
    """The first one counts."""
    known = one(connection, attempt_id, node)
    if known is not None and known.ended_at is not None:
        return False
    _put(connection, attempt_id, node, ended_at=at, reason=reason, text=text, data=data)
    return True


def _put(connection: sa.Connection, attempt_id: str, node: int, **values: Any) -> None:
    same = sa.and_(nodes.c.attempt_id == attempt_id, nodes.c.node == node)
    if connection.execute(nodes.update().where(same).values(**values)).rowcount == 0:
        connection.execute(nodes.insert().values(attempt_id=attempt_id, node=node, **values))
