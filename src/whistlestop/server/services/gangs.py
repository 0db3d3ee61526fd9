"""Attempts on several nodes: each has a runner of its own, and the attempt has ended when each of them has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from whistlestop.domain import gang
from whistlestop.domain.gang import NodeEnd
from whistlestop.domain.reasons import OUTCOMES, EndReason
from whistlestop.server.store import events, nodes, phases

Row = sa.Row[Any]
LEAVE_SECONDS = 60.0  # for the other nodes to come to their own end, once the first has come to its own


@dataclass(frozen=True)
class Ended:
    """What the end of one node means for its attempt. A node's end costs the same, however many there are."""

    decisive: NodeEnd | None = None  # all have ended: of what the attempt has
    rows: Mapping[int, Row] = field(default_factory=dict)  # then, what is known of each
    leave: bool = False  # the others have to leave because of it


def ended(
    connection: sa.Connection, attempt: Row, node: int, reason: EndReason, text: str, *, at: float, data: Any
) -> Ended:
    attempt = phases.attempt(connection, attempt.id) or attempt  # a link's row is as old as the link
    nodes.end(connection, attempt.id, node, reason=reason, text=text, at=at, data=data)
    if nodes.count_ended(connection, attempt.id) == attempt.nodes:
        rows = {row.node: row for row in nodes.of(connection, attempt.id)}
        return Ended(gang.decisive(list(nodes.ends(list(rows.values())).values())), rows)
    if gang.breaks([NodeEnd(node, reason, at)], noticed=attempt.preempt_at is not None) is None:
        return Ended()
    nodes.tell_to_leave(connection, attempt.id, attempt.nodes)
    return Ended(leave=True)


def why_leave(connection: sa.Connection, attempt: sa.Row[*tuple[Any, ...]], now: float) -> str:
    """Why the nodes that are left have to leave; empty: they need not."""
    ends = nodes.ends(nodes.ended(connection, attempt.id))
    broken = gang.breaks(list(ends.values()), noticed=attempt.preempt_at is not None)
    if broken is not None:
        return f"node {broken.node} has ended: {OUTCOMES[broken.reason].says}"
    first = ends.get(0)
    if first is not None and now - first.at > LEAVE_SECONDS:
        return f"node 0 ended {now - first.at:.0f} s ago: {OUTCOMES[first.reason].says}"
    return ""


def tell(connection: sa.Connection, attempt: Row, text: str, at: float) -> None:
    phase = phases.get(connection, attempt.phase_id)
    events.add(
        connection, attempt.run_id, "notice", text, at=at, scope="instance", phase=phase.name, attempt=attempt.number
    )
