"""Charts: lines of any length in at most `width` buckets, of which each shows its extremes; and what lists need."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from whistlestop.server.services import lines
from whistlestop.server.store import phases, series
from whistlestop.server.store.descent import ALL, Range, Reader, Seek
from whistlestop.wire.charts import Axis, Chart, ChartLine, SeriesList, SeriesSummary, Sparkline, Sparklines

Row = sa.Row[Any]
LOSSES = ("loss", "train_loss", "train/loss", "training_loss", "training/loss", "loss/train")
MOST_BUCKETS = 100_000  # of all charts that are asked for at once
SPARK_ROWS = 4  # opened at each level: a sparkline need not be exact where attempts meet


@dataclass(frozen=True)
class Newest:
    step: int
    value: float
    at: float
    records: int  # points so far, over all attempts: it only grows


@dataclass(frozen=True)
class View:
    """What part of a chart is looked at, and how wide it is drawn."""

    axis: Axis = "step"
    start: float = -math.inf
    end: float = math.inf
    width: int = 600


def series_list(connection: sa.Connection, run_id: str) -> SeriesList:
    """By phase and name. One query, no points are read."""
    rows = sorted(series.summaries_of_run(connection, run_id), key=lambda row: (row.ordinal, row.name))
    return SeriesList(series=[_summary(row) for row in rows])


def newest(connection: sa.Connection, run_id: str) -> dict[tuple[str, str], Newest]:
    """By phase and name: the last point that came, whatever its step. One query, no points are read."""
    return {
        (row.phase, row.name): Newest(row.step, series.newest_value(row), row.at, int(row.records))
        for row in series.newest_of_run(connection, run_id)
    }


def names(connection: sa.Connection, run_id: str, phase: str | None) -> list[str]:
    """In the order in which they came."""
    rows = series.names_of_runs(connection, [run_id])
    return list(dict.fromkeys(row.name for row in rows if phase is None or row.phase == phase))


def charts(
    connection: sa.Connection, run_id: str, names: Sequence[str], view: View, *, phase: str | None = None
) -> list[Chart]:
    """Of many names each line is drawn with fewer buckets: what a request costs has a limit."""
    width = min(view.width, MOST_BUCKETS // max(1, len(names)))
    return read_charts(Reader(connection), connection, run_id, names, replace(view, width=width), phase=phase)


def read_charts(
    reader: Reader,
    connection: sa.Connection,
    run_id: str,
    names: Sequence[str],
    view: View,
    *,
    phase: str | None = None,
) -> list[Chart]:
    """`reader` has counted what it cost."""
    rows = series.of_runs(connection, [run_id], names)
    cut_at = cuts(phases.attempts_of_runs(connection, [run_id]).get(run_id, []))
    owners: dict[tuple[str, str], list[_Part]] = defaultdict(list)
    for row in rows:
        if phase is None or row.phase == phase:
            owners[row.phase, row.name] += _parts(row, cut_at.get(row.attempt_id, math.inf), view)
    drawn = lines.draw(reader, [[part.seek for part in parts] for parts in owners.values()], view.width)
    return [
        Chart.model_construct(
            name=name,
            phase=owner,
            axis=view.axis,
            lines=[
                ChartLine.model_construct(attempt=part.attempt, superseded=part.superseded, **line.columns())
                for part, line in zip(parts, found, strict=True)
                if len(line)
            ],
        )
        for ((owner, name), parts), found in zip(owners.items(), drawn, strict=True)
    ]


def sparklines(connection: sa.Connection, run_ids: Sequence[str], width: int) -> Sparklines:
    """A handful of queries for any number of runs."""
    logged: dict[str, list[Row]] = defaultdict(list)
    for row in series.names_of_runs(connection, run_ids, kind="program"):
        logged[row.run_id].append(row)
    losses = {run_id: _loss(rows) for run_id, rows in logged.items()}
    attempts = phases.attempts_of_runs(connection, list(losses))
    chosen: dict[str, list[Row]] = defaultdict(list)
    for row in series.of_runs(connection, list(losses), {name for _, name in losses.values()}):
        if losses[row.run_id] == (row.phase, row.name):
            chosen[row.run_id].append(row)
    view = View(width=width)
    seeks = []
    for run_id, rows in chosen.items():
        cut_at = cuts(attempts.get(run_id, []))
        parts = [part for row in rows for part in _parts(row, cut_at[row.attempt_id], view, most_rows=SPARK_ROWS)]
        seeks.append([part.seek for part in parts if not part.superseded])
    drawn = lines.draw(Reader(connection), seeks, width)
    found = {}
    for (run_id, rows), several in zip(chosen.items(), drawn, strict=True):
        columns = [line.columns() for line in several]
        found[run_id] = Sparkline.model_construct(
            name=rows[0].name,
            x=[x for each in columns for x in each["x"]],
            y=[y for each in columns for y in each["last"]],
        )
    return Sparklines.model_construct(sparklines=found)


@dataclass(frozen=True)
class _Part:
    attempt: int
    superseded: bool
    seek: Seek


def cuts(attempts: Sequence[Row]) -> dict[str, float]:
    """By attempt: the step from which on a later attempt of its phase has replaced it."""
    found: dict[str, float] = {}
    lowest: dict[str, float] = {}
    for row in reversed(attempts):
        found[row.id] = lowest.get(row.phase_id, math.inf)
        if row.up:
            lowest[row.phase_id] = min(found[row.id], row.resumed_from or 0)
    return found


def _parts(row: Row, cut: float, view: View, most_rows: int | None = None) -> list[_Part]:
    window: Range = (view.start, view.end)
    rows = 32 + view.width // 8 if most_rows is None else most_rows
    found = []
    for superseded, low, high in ((False, -math.inf, cut - 1), (True, cut, math.inf)):
        if row.last_step < low or row.first_step > high:
            continue
        if view.axis == "step":
            steps, times = (max(low, window[0]), min(high, window[1])), ALL
        else:
            steps, times = (low, high), window
        found.append(_Part(row.attempt, superseded, Seek(row, view.axis, steps, times, most_rows=rows)))
    return found


def _loss(rows: Sequence[Row]) -> tuple[str, str]:
    """Of the phase that logged last: the loss, or what comes nearest to it."""
    phase = max(rows, key=lambda row: row.attempt).phase
    names = [row.name for row in rows if row.phase == phase]
    named = [name for name in LOSSES if name in names] or [name for name in names if "loss" in name.casefold()]
    return phase, (named or names)[0]


def _summary(row: Row) -> SeriesSummary:
    last = series.newest_value(row)
    return SeriesSummary(
        name=row.name,
        phase=row.phase,
        kind=row.kind,
        points=int(row.records),
        first_step=row.first_step,
        last_step=row.last_step,
        low=row.low,
        high=row.high,
        last=last if math.isfinite(last) else None,
        last_at=row.at,
        nonfinite=int(row.nonfinite),
    )
