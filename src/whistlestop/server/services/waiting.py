"""The queue as the planner takes it: what each phase asks for, by its spec, and what has happened to it lately."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import sqlalchemy as sa

from whistlestop.capacity.choose import LOOK_BACK
from whistlestop.capacity.hosts import HOST_CAUSED, PERHAPS
from whistlestop.capacity.queue import Waiting
from whistlestop.capacity.room import Place
from whistlestop.domain.states import AttemptState
from whistlestop.server.services import demands
from whistlestop.server.services.demands import Asked
from whistlestop.server.store import events, placing

Row = sa.Row[Any]
REMEMBERED = 50_000  # phases whose demands are kept in memory
FAILED_SINCE = 24 * 3600.0  # seconds for which a retry keeps away from the host where it failed, or that it lost


@dataclass(frozen=True)
class Queued:
    """A row of the queue that is not in it yet."""

    run_id: str
    phase_id: str
    name: str
    slots: int
    priority: int
    attempts: int


class Directive(Protocol):
    """What a deadline says of a phase: these pools in this order; None: as it likes; none of them: wait."""

    @property
    def pools(self) -> tuple[str, ...] | None: ...

    @property
    def why(self) -> str: ...

    @property
    def escalates(self) -> bool: ...


class Queue:
    """Remembers what phases ask for: reading ten thousand specs takes seconds."""

    def __init__(self) -> None:
        self._asked: dict[str, Asked] = {}

    def read(
        self, connection: sa.Connection, now: float, directives: Mapping[str, Directive] | None = None
    ) -> Iterator[Waiting]:
        """From its head: whoever plans stops reading when nothing can be done any more. `directives`: by phase, what a
        deadline says of its capacity."""
        for page in placing.queue(connection, now):
            yield from self.waiting(connection, page, now, directives or {})

    def waiting(
        self, connection: sa.Connection, rows: Sequence[Row], now: float, directives: Mapping[str, Directive]
    ) -> list[Waiting]:
        """`rows` with run_id, phase_id, name, priority and attempts."""
        wanted = self.asked(connection, rows)
        tried = [row.phase_id for row in rows if row.attempts]
        reclaims, failed = _lately(connection, tried, now) if tried else ({}, {})
        found = []
        for row in rows:
            asks = wanted[row.phase_id]
            waiting = Waiting(
                row.run_id,
                row.phase_id,
                asks.wants,
                row.priority,
                asks.limit,
                reclaims.get(row.phase_id, ()),
                failed.get(row.phase_id),
                asks.held,
            )
            said = directives.get(row.phase_id)
            found.append(waiting if said is None or asks.held else _directed(waiting, said))
        return found

    def asked(self, connection: sa.Connection, rows: Sequence[Row]) -> dict[str, Asked]:
        """`rows` with run_id, phase_id and name."""
        unknown = [row for row in rows if row.phase_id not in self._asked]
        if unknown:
            if len(self._asked) > REMEMBERED:
                self._asked.clear()
            texts = placing.specs(connection, {row.run_id for row in unknown})
            for row in unknown:
                self._asked[row.phase_id] = demands.of(texts[row.run_id], row.name, row.slots)
        return {row.phase_id: self._asked[row.phase_id] for row in rows}


def reclaimed(row: Row) -> bool:
    """The pool took it back by itself: nobody had asked for it."""
    return row.state in (AttemptState.PREEMPTED, AttemptState.LOST) and row.preempt_asked_at is None


def taken_back(row: Row) -> bool:
    """The same, or a person rehearsed it: the phase itself looks elsewhere then. Not: we gave its slots to another."""
    return row.state in (AttemptState.PREEMPTED, AttemptState.LOST) and row.preempt_by != events.SYSTEM


def _lately(
    connection: sa.Connection, phase_ids: Sequence[str], now: float
) -> tuple[dict[str, tuple[tuple[str, float], ...]], dict[str, Place]]:
    """By phase: which pools took its slots back, and where it came to grief last."""
    reclaims: dict[str, tuple[tuple[str, float], ...]] = {}
    failed: dict[str, Place] = {}
    for row in placing.ends_of_phases(connection, phase_ids, since=now - FAILED_SINCE):
        if taken_back(row) and row.ended_at > now - LOOK_BACK:
            reclaims[row.phase_id] = (*reclaims.get(row.phase_id, ()), (row.pool, row.ended_at))
        failed.pop(row.phase_id, None)
        if row.host and (row.reason in HOST_CAUSED | PERHAPS or taken_back(row)):
            failed[row.phase_id] = (row.pool, row.host)
    return reclaims, failed


def _directed(waiting: Waiting, said: Directive) -> Waiting:
    if said.pools is None:
        return waiting
    if not said.pools:
        return replace(waiting, held=said.why)
    wants = replace(waiting.wants, pools=said.pools)
    return replace(waiting, wants=wants, directed=said.why, escalates=said.escalates)
