"""What was found, as people see it."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.diagnosis.findings import KINDS, Cause, Weight
from whistlestop.domain.clock import iso
from whistlestop.server.store import findings
from whistlestop.wire.api import FindingView

Row = sa.Row[Any]
_ORDER = tuple(Weight)
# A failed run's reason says as much already.
_TOLD = frozenset({Cause.CODE_ERROR, Cause.ENDED_EARLY, Cause.KILLED_OUTSIDE, Cause.COMMAND_NOT_FOUND})


def of_runs(connection: sa.Connection, run_ids: Collection[str], *, whole: bool) -> dict[str, list[FindingView]]:
    """By phase: what holds, the heaviest and surest first. `whole`: with the evidence, which may be pages of stacks."""
    found = findings.open_of_runs(connection, run_ids)
    return {phase_id: [_view(row, whole) for row in sorted(rows, key=_order)] for phase_id, rows in found.items()}


def headline(found: Sequence[FindingView]) -> str | None:
    """What a failed run failed of, where that says more than its reason does."""
    first = next((each for each in found if each.weight == "fatal"), None)
    return KINDS[Cause(first.cause)].says if first is not None and first.cause not in _TOLD else None


def _order(row: Row) -> tuple[int, float, int]:
    return _ORDER.index(KINDS[Cause(row.cause)].weight), -row.confidence, row.id


def _view(row: Row, whole: bool) -> FindingView:
    return FindingView(
        cause=row.cause,
        weight=KINDS[Cause(row.cause)].weight.value,
        confidence=row.confidence,
        says=row.says,
        do=row.do,
        evidence=row.evidence if whole else [],
        metric=row.metric,
        step=row.step,
        rank=row.rank,
        host=row.host,
        attempt=row.attempt,
        since=iso(row.first_at),
    )
