"""One row per attempt and name: what is known of a series without reading its points."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from whistlestop.server.store.schema import attempts, metric_series, phases

Row = sa.Row[Any]
Column = npt.NDArray[Any]
AT_ONCE = 5_000  # names in one statement


class Columns(Protocol):
    """Points, as metrics.py has them."""

    @property
    def step(self) -> Column: ...
    @property
    def time(self) -> Column: ...
    @property
    def value(self) -> Column: ...
    def __len__(self) -> int: ...


class Added(NamedTuple):
    name: str
    kind: str  # program, system or rank
    points: Columns  # at least one
    chunks: int  # that became full
    open_record: int | None  # where the one that grows now begins


class Place(NamedTuple):
    id: int
    chunks: int


def add(connection: sa.Connection, attempt_id: str, added: Sequence[Added]) -> dict[str, Place]:
    """By name: the series, and how many full chunks it had before."""
    known = {row.name: row for row in _of_attempt(connection, attempt_id, [each.name for each in added])}
    fresh = [each for each in added if each.name not in known]
    if fresh:
        connection.execute(
            metric_series.insert(), [{"attempt_id": attempt_id, "name": each.name, **_values(each)} for each in fresh]
        )
    if known:
        changes = [_joined(known[each.name], each) for each in added if each.name in known]
        connection.execute(_CHANGE, changes)
    before = {name: Place(row.id, row.chunks) for name, row in known.items()}
    if any(each.chunks for each in fresh):
        rows = _of_attempt(connection, attempt_id, [each.name for each in fresh])
        before |= {row.name: Place(row.id, 0) for row in rows}
    return before


def portions(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """No database takes any number of values in one statement."""
    for start in range(0, len(names), AT_ONCE):
        yield names[start : start + AT_ONCE]


def count(connection: sa.Connection, attempt_id: str) -> int:
    query = sa.select(sa.func.count()).where(metric_series.c.attempt_id == attempt_id)
    return connection.scalar(query) or 0


def names(connection: sa.Connection, attempt_id: str) -> set[str]:
    return set(connection.scalars(sa.select(metric_series.c.name).where(metric_series.c.attempt_id == attempt_id)))


def of_runs(connection: sa.Connection, run_ids: Collection[str], names: Collection[str]) -> Sequence[Row]:
    """Every series of these names with its attempt and its phase, the older attempts first."""
    return connection.execute(_NAMED, {"run_ids": list(run_ids), "names": list(names)}).all()


# In what follows the database adds up: a run of three hundred attempts has ten thousand series and forty names.


def names_of_runs(connection: sa.Connection, run_ids: Collection[str], *, kind: str | None = None) -> Sequence[Row]:
    """One row for each run, phase and name, as they first came, and the last attempt that has it."""
    query = _NAMES if kind is None else _NAMES.where(metric_series.c.kind == kind)
    return connection.execute(query, {"run_ids": list(run_ids)}).all()


def newest_of_run(connection: sa.Connection, run_id: str) -> Sequence[Row]:
    """One row for each phase and name, as they first came: the last attempt's last point, and the points in all."""
    return connection.execute(_NEWEST, {"of_run": run_id}).all()


def summaries_of_run(connection: sa.Connection, run_id: str) -> Sequence[Row]:
    """As `newest_of_run`, with the extremes of all attempts."""
    return connection.execute(_SUMMARIES, {"of_run": run_id}).all()


def newest_value(row: Row) -> float:
    return float(row.value) if row.odd is None else float(row.odd)


_WITH_ATTEMPT = attempts.join(metric_series, metric_series.c.attempt_id == attempts.c.id)
_WITH_PHASE = _WITH_ATTEMPT.join(phases, phases.c.id == attempts.c.phase_id)
_NAMED = (
    sa.select(
        metric_series,
        attempts.c.run_id,
        attempts.c.number.label("attempt"),
        phases.c.name.label("phase"),
        phases.c.ordinal,
    )
    .select_from(_WITH_PHASE)
    .where(
        attempts.c.run_id.in_(sa.bindparam("run_ids", expanding=True)),
        metric_series.c.name.in_(sa.bindparam("names", expanding=True)),
    )
    .order_by(attempts.c.run_id, attempts.c.number, metric_series.c.id)
)
_NAMES: sa.Select[Any] = (
    sa.select(
        attempts.c.run_id,
        phases.c.name.label("phase"),
        metric_series.c.name,
        sa.func.max(attempts.c.number).label("attempt"),
    )
    .select_from(_WITH_PHASE)
    .where(attempts.c.run_id.in_(sa.bindparam("run_ids", expanding=True)))
    .group_by(attempts.c.run_id, phases.c.name, metric_series.c.name)
    .order_by(attempts.c.run_id, sa.func.min(metric_series.c.id))
)


def _newest(*more: sa.ColumnElement[Any]) -> sa.Select[Any]:
    totals = (
        sa.select(
            attempts.c.phase_id,
            metric_series.c.name,
            sa.func.max(attempts.c.number).label("attempt"),
            sa.func.sum(metric_series.c.points).label("records"),
            sa.func.min(metric_series.c.id).label("first"),
            *more,
        )
        .select_from(_WITH_ATTEMPT)
        .where(attempts.c.run_id == sa.bindparam("of_run"))
        .group_by(attempts.c.phase_id, metric_series.c.name)
        .subquery()
    )
    mine = sa.and_(attempts.c.run_id == sa.bindparam("of_run"), attempts.c.number == totals.c.attempt)
    last = sa.and_(metric_series.c.attempt_id == attempts.c.id, metric_series.c.name == totals.c.name)
    return (
        sa.select(
            totals,
            phases.c.name.label("phase"),
            phases.c.ordinal,
            metric_series.c.kind,
            metric_series.c.step,
            metric_series.c.value,
            metric_series.c.odd,
            metric_series.c.at,
        )
        .select_from(
            totals.join(phases, phases.c.id == totals.c.phase_id).join(attempts, mine).join(metric_series, last)
        )
        .order_by(totals.c.first)
    )


_NEWEST = _newest()
_SUMMARIES = _newest(
    sa.func.min(metric_series.c.first_step).label("first_step"),
    sa.func.max(metric_series.c.last_step).label("last_step"),
    sa.func.min(metric_series.c.low).label("low"),
    sa.func.max(metric_series.c.high).label("high"),
    sa.func.sum(metric_series.c.nonfinite).label("nonfinite"),
)

_CHANGE = metric_series.update().where(metric_series.c.id == sa.bindparam("series_id"))


def _of_attempt(connection: sa.Connection, attempt_id: str, names: Sequence[str]) -> Iterator[Row]:
    for some in portions(names):
        yield from connection.execute(
            sa.select(metric_series).where(metric_series.c.attempt_id == attempt_id, metric_series.c.name.in_(some))
        )


def _values(added: Added) -> dict[str, Any]:
    points = added.points
    finite = points.value[np.isfinite(points.value)]
    times = points.time[np.isfinite(points.time)]
    value = float(points.value[-1])
    return {
        "kind": added.kind,
        "points": len(points),
        "chunks": added.chunks,
        "open_record": added.open_record,
        "first_step": int(points.step.min()),
        "last_step": int(points.step.max()),
        "first_time": float(times.min()) if len(times) else 0.0,
        "last_time": float(times.max()) if len(times) else 0.0,
        "low": float(finite.min()) if len(finite) else None,
        "high": float(finite.max()) if len(finite) else None,
        "nonfinite": len(points) - len(finite),
        "step": int(points.step[-1]),
        "at": float(points.time[-1]) if math.isfinite(points.time[-1]) else 0.0,
        "value": value if math.isfinite(value) else None,
        "odd": None if math.isfinite(value) else str(value),
    }


def _joined(row: Row, added: Added) -> dict[str, Any]:
    new = _values(added)
    lows = [each for each in (row.low, new["low"]) if each is not None]
    highs = [each for each in (row.high, new["high"]) if each is not None]
    return new | {
        "series_id": row.id,
        "kind": row.kind,
        "points": row.points + new["points"],
        "chunks": row.chunks + new["chunks"],
        "first_step": min(row.first_step, new["first_step"]),
        "last_step": max(row.last_step, new["last_step"]),
        "first_time": min(row.first_time, new["first_time"]),
        "last_time": max(row.last_time, new["last_time"]),
        "low": min(lows, default=None),
        "high": max(highs, default=None),
        "nonfinite": row.nonfinite + new["nonfinite"],
    }
