"""Events of one kind as marks on a line: never more than asked for, whatever their number, and spread as they are."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.server.store.schema import events

Row = sa.Row[Any]
AT_ONCE = 100  # attempts in one statement: SQLite takes 500 terms


def of_kind(connection: sa.Connection, run_id: str, attempt: int, kind: str, *, most: int) -> list[Row]:
    """All of an attempt's events of this kind, or about `most` of them at even distances. Long histories are jumped
    through by the index, at a cost that does not grow with them."""
    mine = sa.and_(events.c.run_id == run_id, events.c.kind == kind, events.c.attempt == attempt)
    rows = connection.execute(sa.select(events).where(mine).order_by(events.c.seq).limit(most + 1)).all()
    if len(rows) <= most:
        return list(rows)
    first = rows[0].seq
    last = connection.scalar(sa.select(sa.func.max(events.c.seq)).where(mine)) or first
    stride = max(1, -(-(last - first) // most))
    jumps = sa.select(sa.literal(first, events.c.seq.type).label("seq")).cte("jumps", recursive=True)
    after = sa.select(sa.func.min(events.c.seq)).where(mine, events.c.seq >= jumps.c.seq + stride)
    jumps = jumps.union_all(sa.select(after.scalar_subquery()).where(jumps.c.seq.is_not(None)))
    chosen = sa.select(events).join(jumps, jumps.c.seq == events.c.seq).order_by(events.c.seq)
    found = list(connection.execute(chosen).all())
    if found[-1].seq != last:
        found += connection.execute(sa.select(events).where(events.c.seq == last)).all()
    return found


def of_attempts(
    connection: sa.Connection, run_id: str, attempts: Sequence[int], kind: str, *, most: int
) -> dict[int, list[Row]]:
    """By attempt: its first events of this kind. One statement for a hundred attempts, each a jump by the index.

    It is written as text: to build it of parts would take longer than to answer it.
    """
    found: dict[int, list[Row]] = {}
    one = (
        "SELECT * FROM (SELECT seq, attempt, data FROM events"
        " WHERE run_id = :run AND kind = :kind AND attempt = {} ORDER BY seq LIMIT :most) AS one"
    )
    for start in range(0, len(attempts), AT_ONCE):
        terms = [one.format(int(number)) for number in attempts[start : start + AT_ONCE]]
        query = sa.text(" UNION ALL ".join(terms)).columns(events.c.seq, events.c.attempt, events.c.data)
        for row in connection.execute(query, {"run": run_id, "kind": kind, "most": most}):
            found.setdefault(row.attempt, []).append(row)
    return {attempt: sorted(rows, key=lambda row: row.seq) for attempt, rows in found.items()}


def first_of_kinds(
    connection: sa.Connection, run_id: str, kinds: Collection[str], attempts: Sequence[int]
) -> dict[tuple[int, str], float]:
    """(attempt, kind) -> when it first happened."""
    query = (
        sa.select(events.c.attempt, events.c.kind, sa.func.min(events.c.at).label("at"))
        .where(events.c.run_id == run_id, events.c.kind.in_(kinds), events.c.attempt.in_(attempts))
        .group_by(events.c.attempt, events.c.kind)
    )
    return {(row.attempt, row.kind): row.at for row in connection.execute(query)}


def times(connection: sa.Connection, run_id: str, kind: str, *, most: int = 100) -> list[float]:
    """When the newest events of this kind happened, of those that belong to the run as a whole."""
    query = sa.select(events.c.at).where(
        events.c.run_id == run_id,
        events.c.kind == kind,
        events.c.attempt.is_(None),  # the index is by attempt
    )
    return list(connection.scalars(query.order_by(events.c.seq.desc()).limit(most)))
