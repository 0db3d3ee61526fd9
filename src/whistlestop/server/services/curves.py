"""The series that a diagnosis looks at, thinned through the pyramid, each with its first odd point exactly."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from whistlestop.diagnosis.evidence import CAME_BACK, POINTS, Odd, Series
from whistlestop.domain.clock import clipped
from whistlestop.server.store import series
from whistlestop.server.store.buckets import ODD, Buckets
from whistlestop.server.store.descent import Axis, Reader, Seek
from whistlestop.server.store.gathering import gather

Row = sa.Row[Any]
MOST = 40  # series
MOST_ODD = 24  # beside them: series with points that are not finite
_AXES: tuple[Axis, ...] = ("step", "time")
_ROWS = 512  # of the pyramid that are opened at each level

# What tells most, first; a name is taken by the first word that it contains.
_WORDS = ("loss", "val", "eval", "test", "grad", "norm", "lr", "learning_rate", "acc", "reward", "return", "score")


def read(
    connection: sa.Connection, run_id: str, phase: str, cuts: Mapping[str, float], aims: Collection[str]
) -> tuple[Series, ...]:
    """`cuts`: by attempt, the step from which on a later one has replaced it."""
    listed = [row for row in series.summaries_of_run(connection, run_id) if row.phase == phase]
    kinds = {row.name: row.kind for row in _chosen(listed, aims)}
    if not kinds:
        return ()
    owners: dict[str, list[Row]] = defaultdict(list)
    for row in series.of_runs(connection, [run_id], list(kinds)):
        if row.phase == phase:
            owners[row.name].append(row)
    reader = Reader(connection)
    found: dict[str, Series] = {}
    # What the runner samples goes on while the step stands still: those are read by time.
    for axis in _AXES:
        mine = {name: owners[name] for name, kind in kinds.items() if (kind == "system") == (axis == "time")}
        found |= _read(reader, mine, cuts, axis)
    return tuple(found[name] for name in kinds)


def _chosen(listed: Sequence[Row], aims: Collection[str]) -> list[Row]:
    """In the order in which they came."""
    ranked = sorted(range(len(listed)), key=lambda place: _rank(listed[place], aims))
    odd = [place for place in ranked[MOST:] if listed[place].nonfinite]
    return [listed[place] for place in sorted([*ranked[:MOST], *odd[:MOST_ODD]])]


def _rank(row: Row, aims: Collection[str]) -> tuple[int, int]:
    """What the spec names and what is usual first, then the host, then what is odd; other ranks than the first last."""
    name, rank = _named(row)
    if rank:
        return (3 if row.nonfinite else 5), rank
    if name in aims:
        return 0, 0
    if row.kind == "system":
        return 2, 0
    words = name.casefold()
    told = next((place for place, word in enumerate(_WORDS) if word in words), None)
    if told is not None:
        return 1, told
    return (3 if row.nonfinite else 4), 0


def _named(row: Row) -> tuple[str, int]:
    """Points of other ranks than the first are stored under NAME@RANK; the first may have an `acc@5` of its own."""
    if row.kind != "rank":
        return row.name, 0
    name, _, rank = row.name.rpartition("@")
    return name, int(rank) if rank.isdecimal() else 0


def _read(
    reader: Reader, owners: Mapping[str, Sequence[Row]], cuts: Mapping[str, float], axis: Axis
) -> dict[str, Series]:
    seeks: list[Seek] = []
    sizes: list[float] = []
    ends: list[int] = []  # of each name's seeks
    for rows in owners.values():
        mine = [
            Seek(row, axis, steps=(-math.inf, cuts.get(row.attempt_id, math.inf) - 1), most_rows=_ROWS)
            for row in rows
            if row.first_step < cuts.get(row.attempt_id, math.inf)
        ]
        seeks += mine
        sizes += [_size([seek.series for seek in mine], axis)] * len(mine)
        ends.append(len(seeks))
    if not seeks:
        return {name: _empty(rows[0]) for name, rows in owners.items()}
    found = gather(reader, seeks, np.array(sizes))
    order = np.argsort(found.seek, kind="stable")
    bounds = np.searchsorted(found.seek[order], [0, *ends])
    made = {}
    for place, (name, rows) in enumerate(owners.items()):
        mine_found = found.buckets[order[bounds[place] : bounds[place + 1]]]
        size = sizes[ends[place] - 1] if ends[place] else 0.0
        made[name] = _series(rows[0], mine_found, axis, size)
    return made


def _size(rows: Sequence[Row], axis: Axis) -> float:
    """0: every point by itself."""
    if sum(row.points for row in rows) <= POINTS:
        return 0.0
    if axis == "step":
        low, high = min(row.first_step for row in rows), max(row.last_step for row in rows)
        return max(1.0, float(high - low + 1) / (POINTS - 1))
    since, until = min(clipped(row.first_time) for row in rows), max(clipped(row.last_time) for row in rows)
    return max(1e-6, (until - since) / (POINTS - 1))


def _series(row: Row, found: Buckets, axis: Axis, size: float) -> Series:
    made = _empty(row)
    where = found.step_high if axis == "step" else found.time_high
    order = np.argsort(where, kind="stable")  # of two points at one step the later record is the newer
    found, where = found[order], where[order]
    odd, until = _newest_odd(found)
    finite = np.isfinite(found.last)
    found, where = found[finite], where[finite]
    places = np.floor((where - where[0]) / size) if size and len(where) else where
    kept = np.flatnonzero(np.append(places[1:] != places[:-1], True)) if len(where) else np.empty(0, np.int64)
    return Series(
        made.name,
        tuple(found.step_high[kept].tolist()),
        tuple(found.last[kept].tolist()),
        tuple(found.time_high[kept].tolist()),
        made.rank,
        made.kind,
        odd,
        until,
    )


def _newest_odd(found: Buckets) -> tuple[Odd | None, int | None]:
    """Where the newest spell of odd points began, and its last step."""
    places = np.flatnonzero(found.odd)
    if not len(places):
        return None, None
    apart = np.flatnonzero(np.diff(places) > CAME_BACK)
    first = places[apart[-1] + 1] if len(apart) else places[0]
    return _odd(found[first : first + 1]), int(found.step_high[places[-1]])


def _odd(first: Buckets) -> Odd:
    bits = int(first.odd[0])
    return Odd(int(first.step_low[0]), next(word for bit, word in ODD.items() if bits & bit), float(first.time_low[0]))


def _empty(row: Row) -> Series:
    name, rank = _named(row)
    return Series(name, (), (), (), rank, "system" if row.kind == "system" else "program")
