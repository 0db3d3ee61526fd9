"""Reading back: logs and metrics by cursor. A cursor says how much of each attempt has been seen: `1:530.2:14`."""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from whistlestop.domain.clock import iso
from whistlestop.domain.errors import BadRequest
from whistlestop.server.store import logs, metrics, phases
from whistlestop.wire.api import LogLineView, LogPage, MetricsView, SeriesView
from whistlestop.wire.frames import LogLine
from whistlestop.wire.logs import LogSize

Row = sa.Row[Any]
Cursor = dict[int, int]  # attempt number -> lines or records seen

_LEVEL = re.compile(r"\b(TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b")
_FAULT = re.compile(r"^(Traceback |\w*(Error|Exception)\b)")
MOST_SCANNED = 50_000  # lines looked at for one answer: a search must not hold the others up
MOST_POINTS = 100_000  # in one answer, unless more are asked for
MOST_PRINTED = 20_000  # lines of a file at once
LEVELS = ("debug", "info", "warning", "error")


def parse_cursor(text: str | None) -> Cursor:
    if not text:
        return {}
    if not re.fullmatch(r"\d{1,9}:\d{1,18}(\.\d{1,9}:\d{1,18}){0,9999}", text, re.ASCII):
        raise BadRequest(f"{text[:40]!r} is not a cursor", hint="pass on the one from the last answer")
    return {int(number): int(seen) for number, seen in (part.split(":") for part in text.split("."))}


def format_cursor(cursor: Cursor) -> str:
    return ".".join(f"{number}:{seen}" for number, seen in sorted(cursor.items()))


def log_page(
    connection: sa.Connection,
    run_id: str,
    *,
    phase: str | None = None,
    attempt: int | None = None,
    grep: str | None = None,
    level: str | None = None,
    tail: int | None = None,
    after: str | None = None,
    limit: int = 1000,
) -> LogPage:
    cursor = parse_cursor(after)
    wanted = _attempts(connection, run_id, phase, attempt)
    match = _matcher(grep, level)
    dropped = sum(row.dropped for row, _ in wanted)
    if tail is not None:
        newest, looked = _tail(connection, wanted, match, tail)
        ends = format_cursor(_ends(connection, wanted))
        return LogPage(lines=newest, cursor=ends, dropped=dropped, looked=looked)
    lines: list[LogLineView] = []
    scanned = 0
    for row, name in _unread(connection, wanted, cursor):
        for number, line in logs.read(connection, row.id, after=cursor.get(row.number, 0)):
            if len(lines) >= limit or scanned >= MOST_SCANNED:  # a page that finds nothing still ends, and goes on
                return LogPage(lines=lines, cursor=format_cursor(cursor), dropped=dropped, more=True)
            scanned += 1
            cursor[row.number] = number
            if match(line):
                lines.append(_line_view(row, name, number, line))
    return LogPage(lines=lines, cursor=format_cursor(cursor), dropped=dropped)


def log_sizes(connection: sa.Connection, run_id: str) -> list[LogSize]:
    """How long each attempt's log is: a page that shows a part of it knows where that part stands."""
    wanted = _attempts(connection, run_id, None, None)
    sizes = logs.sizes(connection, [row.id for row, _ in wanted])
    return [
        LogSize(attempt=row.number, phase=name, lines=sizes.get(row.id, 0), dropped=row.dropped) for row, name in wanted
    ]


def log_text(
    connection: sa.Connection, run_id: str, *, attempt: int | None, after: str | None, until: Cursor
) -> tuple[str, str, bool]:
    """The next lines as they were printed, the cursor behind them, and whether there are more before `until`."""
    cursor = parse_cursor(after)
    lines: list[str] = []
    for row, _ in _unread(connection, _attempts(connection, run_id, None, attempt), cursor):
        seen, end = cursor.get(row.number, 0), until.get(row.number, 0)
        for number, line in logs.read(connection, row.id, after=seen) if seen < end else ():
            if number > end:
                break
            if len(lines) >= MOST_PRINTED:
                return "".join(lines), format_cursor(cursor), True
            cursor[row.number] = number
            lines.append(f"{line.text}\n")
    return "".join(lines), format_cursor(cursor), False


def log_ends(connection: sa.Connection, run_id: str) -> Cursor:
    return _ends(connection, _attempts(connection, run_id, None, None))


def metrics_view(
    connection: sa.Connection,
    run_id: str,
    *,
    wanted: Sequence[str] = (),
    phase: str | None = None,
    after: str | None = None,
    limit: int = MOST_POINTS,
) -> MetricsView:
    """One value per phase, name and step: an attempt that resumed at step s replaces what earlier ones logged from s
    on, be it in this answer or in a later page. With `after`, only what came since."""
    cursor = parse_cursor(after)
    series: dict[tuple[str, str], list[metrics.Points]] = {}
    more = False
    for row, name_of_phase in _attempts(connection, run_id, phase, None):
        seen = cursor.get(row.number, 0)
        if row.up and not seen:
            for (owner, _), parts in series.items():
                if owner == name_of_phase:
                    parts[:] = [part.before_step(row.resumed_from or 0) for part in parts]
        more = more or limit <= 0
        if more:
            continue
        found, last = metrics.page(connection, row.id, wanted=wanted, after=seen, limit=limit)
        for name, points in found.items():
            series.setdefault((name_of_phase, name), []).append(points)
            cursor[row.number] = max(cursor.get(row.number, 0), int(points.record[-1]) if len(points) else 0)
            limit -= len(points)
        more = last is not None
    views = [series_view(owner, name, metrics.join(parts)) for (owner, name), parts in sorted(series.items())]
    return MetricsView(series=[view for view in views if view.points], cursor=format_cursor(cursor), more=more)


class Fresh(NamedTuple):
    attempt: int
    phase: str
    series: list[SeriesView]
    cursor: Cursor  # behind these


def fresh_points(
    connection: sa.Connection, run_id: str, cursor: Cursor, limit: int = MOST_POINTS
) -> tuple[list[Fresh], bool]:
    """What came since the cursor, by attempt, about `limit` points at most; and whether there is more right now."""
    found: list[Fresh] = []
    newest = metrics.newest_records(connection, run_id)
    for row, name in _attempts(connection, run_id, None, None):
        seen = cursor.get(row.number, 0)
        if newest.get(row.id, 0) <= seen:
            continue
        if limit <= 0:
            return found, True
        page, _ = metrics.page(connection, row.id, after=seen, limit=limit)
        series = {each: points for each, points in page.items() if len(points)}
        limit -= sum(len(points) for points in series.values())
        cursor = {**cursor, row.number: max([seen, *(int(points.record[-1]) for points in series.values())])}
        views = [series_view(name, each, points) for each, points in series.items()]
        found.append(Fresh(row.number, name, views, cursor))
        if cursor[row.number] < newest[row.id]:
            return found, True
    return found, False


def series_view(phase: str, name: str, points: metrics.Points) -> SeriesView:
    _, last = np.unique(points.step[::-1], return_index=True)  # of equal steps the last one counts
    keep = len(points) - 1 - last
    rows, odd = [], {}
    for step, value, at in zip(
        points.step[keep].tolist(), points.value[keep].tolist(), points.time[keep].tolist(), strict=True
    ):
        if math.isfinite(value):
            rows.append((step, value, at))
        else:
            rows.append((step, None, at))
            odd[str(step)] = "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return SeriesView(name=name, phase=phase, points=rows, nonfinite=odd)


def level_of(line: LogLine) -> str:
    found = _LEVEL.search(line.text[:200])
    if found:
        word = found.group(1)
        return {"TRACE": "debug", "DEBUG": "debug", "INFO": "info"}.get(
            word, "warning" if word.startswith("WARN") else "error"
        )
    return "error" if line.stream == "err" and _FAULT.search(line.text) else "info"


def _attempts(connection: sa.Connection, run_id: str, phase: str | None, attempt: int | None) -> list[tuple[Row, str]]:
    names = {row.id: row.name for row in phases.of_runs(connection, [run_id]).get(run_id, [])}
    return [
        (row, names[row.phase_id])
        for row in phases.attempts_of_runs(connection, [run_id]).get(run_id, [])
        if (phase is None or names[row.phase_id] == phase) and (attempt is None or row.number == attempt)
    ]


def _unread(connection: sa.Connection, wanted: list[tuple[Row, str]], cursor: Cursor) -> list[tuple[Row, str]]:
    """Those whose log goes on behind the cursor: one query, however many there are that have nothing new."""
    sizes = logs.sizes(connection, [row.id for row, _ in wanted])
    return [(row, name) for row, name in wanted if sizes.get(row.id, 0) > cursor.get(row.number, 0)]


def _matcher(grep: str | None, level: str | None) -> Any:
    """`grep` is plain text, any case: a pattern from outside could hold the whole server up."""
    wanted = grep.casefold() if grep else None
    floor = LEVELS.index(level) if level else 0

    def match(line: LogLine) -> bool:
        if wanted is not None and wanted not in line.text.casefold():
            return False
        return not floor or LEVELS.index(level_of(line)) >= floor

    return match


def _tail(
    connection: sa.Connection, wanted: list[tuple[Row, str]], match: Any, tail: int
) -> tuple[list[LogLineView], int | None]:
    """The last lines that match; and, where it gave up before it had as many, how many it has looked at."""
    lines: list[LogLineView] = []
    scanned, most = 0, max(tail, MOST_SCANNED)
    for row, name in reversed(wanted):
        for number, line in logs.read_back(connection, row.id):
            if len(lines) >= tail:
                return lines[::-1], None
            if scanned >= most:
                return lines[::-1], scanned
            scanned += 1
            if match(line):
                lines.append(_line_view(row, name, number, line))
    return lines[::-1], None


def _ends(connection: sa.Connection, wanted: list[tuple[Row, str]]) -> Cursor:
    sizes = logs.sizes(connection, [row.id for row, _ in wanted])
    return {row.number: sizes[row.id] for row, _ in wanted if row.id in sizes}


def _line_view(row: Row, phase: str, number: int, line: LogLine) -> LogLineView:
    return LogLineView(
        at=iso(line.at),
        phase=phase,
        attempt=row.number,
        rank=line.rank,
        stream=line.stream,
        level=level_of(line),
        text=line.text,
        line=number,
    )
