"""Where the credits went: what has ended by the ledger, what runs up to now."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from whistlestop.capacity.pools import Market
from whistlestop.domain.clock import clipped, iso, utc
from whistlestop.domain.errors import BadRequest
from whistlestop.domain.ledger import DAY, Kind, by_day
from whistlestop.server.services import accounting, budgets
from whistlestop.server.services.context import Context
from whistlestop.server.store import ledger, pools, usage
from whistlestop.server.store.schema import ledger as lines
from whistlestop.wire.durations import parse_duration
from whistlestop.wire.usage import By, ComparisonView, DayView, SpentView, UsageView

Key = TypeVar("Key", bound=Hashable)
MOST_DAYS = 366
HOUR = 3600.0
# Where one has to look at every line; days, pools, markets and kinds follow from the few sums by day.
COLUMNS: Mapping[By, sa.ColumnElement[Any]] = {
    "project": lines.c.project,
    "workflow": sa.func.coalesce(lines.c.workflow, sa.literal_column("''")),  # no parameter: it is grouped by
    "run": lines.c.run_id,
}


@dataclass
class Sum:
    """What one group has used."""

    name: str = ""
    number: int = 0
    market: str = ""
    attempts: int | None = None
    credits: dict[Kind, float] = field(default_factory=lambda: dict.fromkeys(Kind, 0.0))
    seconds: dict[Kind, float] = field(default_factory=lambda: dict.fromkeys(Kind, 0.0))  # of slots

    def add(self, kind: Kind, credits: float, seconds: float) -> None:
        self.credits[kind] += credits
        self.seconds[kind] += seconds

    @property
    def whole(self) -> float:
        return sum(self.credits.values())


@dataclass(frozen=True)
class Part:
    """Time of one kind on one day and pool; `live`: by an attempt that runs, which belongs to these."""

    day: int
    pool: str
    market: str
    kind: Kind
    credits: float
    seconds: float
    live: Mapping[str, Any] | None = None


def moment(text: str, now: float) -> float:
    """A time as people write it: 7d (ago), 2026-01-31, a whole time, or all (the beginning)."""
    if text == "all":
        return 0.0
    try:
        return clipped(now - parse_duration(text).total_seconds())
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
        return clipped((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise BadRequest(f"{text!r} is not a time", hint="write 7d (ago), 2026-01-31 or all") from None


def usage_view(
    context: Context, *, by: By, project: str | None, since: float, until: float | None, limit: int
) -> UsageView:
    now = context.clock()
    end = now if until is None else min(now, until)
    if since >= end:
        raise BadRequest("the time ends before it begins", hint="give `since` before `until`")
    with context.database.read() as connection:
        window: dict[str, Any] = {"since": since, "until": end, "project": project}
        parts = [
            Part(int(row.day), row.pool, row.market, Kind(row.kind), float(row.credits), float(row.seconds))
            for row in usage.daily(connection, **window)
        ]
        parts += _live(context, connection, since, end, project)
        days = _gathered(parts, lambda part: part.day)
        found, count = _groups(connection, by, window, parts, limit)
        total = _gathered(parts, lambda part: "").get("", Sum())
        total.attempts = usage.attempts(connection, **window) + len({p.live["attempt"] for p in parts if p.live})
        comparison = _comparison(connection, _gathered(parts, lambda part: part.pool))
        balances = budgets.balances(context, connection, project)
    order = sorted(found.items()) if by == "day" else sorted(found.items(), key=lambda pair: (-pair[1].whole, pair[0]))
    first = since if since > 0 else min(days, default=math.floor(end / DAY)) * DAY
    return UsageView(
        by=by,
        project=project,
        since=iso(first),
        until=iso(end),
        total=_spent("", by, total),
        groups=[_spent(key, by, each) for key, each in order[:limit]],
        left_off=max(0, count - limit),
        days=[_day(number, days.get(number, Sum())) for number in _range(first, end)],
        budgets=[budgets.view(balance) for balance in balances],
        comparison=comparison,
    )


def _live(context: Context, connection: sa.Connection, since: float, until: float, project: str | None) -> list[Part]:
    """Attempts that run, as the ledger will have them."""
    found = []
    for row in ledger.live(connection, project=project):
        belongs = {
            "project": row.project,
            "workflow": row.workflow or "",
            "run": row.run_id,
            "name": row.run_name,
            "number": row.run_number,
            "attempt": row.id,
        }
        for piece in by_day(accounting.pieces(connection, row, context.hub.progress.get(row.id), context.clock())):
            seconds = max(0.0, min(piece.until, until) - max(piece.since, since)) * len(row.slots)
            credits = 0.0 if piece.kind is Kind.QUEUED else seconds * row.price / HOUR
            day = math.floor(piece.since / DAY)
            if seconds:
                found.append(Part(day, row.pool, row.charged_market, piece.kind, credits, seconds, belongs))
    return found


def _gathered(parts: Iterable[Part], key: Callable[[Part], Key]) -> dict[Key, Sum]:
    found: dict[Key, Sum] = {}
    for part in parts:
        here = found.setdefault(key(part), Sum(market=part.market))
        here.add(part.kind, part.credits, part.seconds)
    return found


def _groups(
    connection: sa.Connection, by: By, window: Mapping[str, Any], parts: Sequence[Part], limit: int
) -> tuple[dict[str, Sum], int]:
    """Those that may be among the dearest, with what runs, and how many there are in all."""
    if by not in COLUMNS:
        words = {"day": lambda p: _name(p.day), "pool": lambda p: p.pool, "market": lambda p: p.market}
        found = _gathered(parts, words.get(by, lambda p: p.kind.value))
        return found, len(found)
    column = COLUMNS[by]
    rows = usage.groups(connection, column, limit=limit, **window)
    count = rows[0].groups if rows else 0
    found = {row.key: _sum(row) for row in rows}
    running = [(part, part.live) for part in parts if part.live is not None]
    unseen = {live[by] for _, live in running} - set(found)
    if unseen:
        more = {row.key: _sum(row) for row in usage.groups(connection, column, only=unseen, **window)}
        count += len(unseen) - len(more)
        found |= more
    if by == "run":
        known = usage.attempts_of(connection, list(found), since=window["since"], until=window["until"])
        for key, each in found.items():
            each.attempts = known.get(key, 0)
    for part, live in running:
        here = found.setdefault(live[by], Sum(live["name"], live["number"], attempts=0 if by == "run" else None))
        here.add(part.kind, part.credits, part.seconds)
    if by == "run":
        for _, run_id in {(live["attempt"], live["run"]) for _, live in running}:
            found[run_id].attempts = (found[run_id].attempts or 0) + 1
    return found, count


def _comparison(connection: sa.Connection, spent: Mapping[str, Sum]) -> ComparisonView:
    """By pool; at the prices of today, by the class of machine."""
    known = {row.name: row for row in pools.all_pools(connection)}
    cheapest: dict[tuple[str, str], float] = {}
    for row in known.values():
        cheapest[row.kind, row.market] = min(row.price, cheapest.get((row.kind, row.market), math.inf))
    hours = {name: each.seconds[Kind.PRODUCTIVE] / HOUR for name, each in spent.items()}
    there = {name: known[name] for name in spent if name in known}
    productive = sum(hours[name] for name in there)

    def elsewhere(market: Market) -> float | None:
        prices = [(hours[name], cheapest.get((row.kind, market.value))) for name, row in there.items() if hours[name]]
        return sum(each * (price or 0.0) for each, price in prices) if all(p is not None for _, p in prices) else None

    spot = sum(hours[name] for name, row in there.items() if row.market == Market.SPOT)
    return ComparisonView(
        hours=productive,
        cost=sum(spent[name].whole for name in there),
        on_demand=elsewhere(Market.ON_DEMAND),
        spot=elsewhere(Market.SPOT),
        spot_share=spot / productive if productive else 0.0,
        unpriced_hours=sum(each for name, each in hours.items() if name not in known),
    )


def _sum(row: sa.Row[*tuple[Any, ...]]) -> Sum:
    made = Sum(row.name or "", row.number or 0)
    for kind in Kind:
        made.add(kind, float(getattr(row, f"credits_{kind.value}")), float(getattr(row, f"seconds_{kind.value}")))
    return made


def _spent(key: str, by: By, spent: Sum) -> SpentView:
    whole = spent.whole
    share = whole or 1.0
    redone, stalled = spent.credits[Kind.REDONE], spent.credits[Kind.STALLED]
    return SpentView(
        key=key,
        name=spent.name if by == "run" else key,
        number=spent.number or None if by == "run" else None,
        market=spent.market or None if by == "pool" else None,
        credits=whole,
        slot_hours=sum(seconds for kind, seconds in spent.seconds.items() if kind is not Kind.QUEUED) / HOUR,
        attempts=spent.attempts,
        kinds=_kinds(spent.credits),
        hours=_kinds({kind: seconds / HOUR for kind, seconds in spent.seconds.items()}),
        redone=redone / share,
        wasted=(redone + stalled) / share,
    )


def _day(number: int, spent: Sum) -> DayView:
    return DayView(day=_name(number), credits=spent.whole, kinds=_kinds(spent.credits))


def _kinds(values: Mapping[Kind, float]) -> Any:
    return {kind.value: value for kind, value in values.items() if value > 0}


def _range(since: float, until: float) -> Iterable[int]:
    last = math.ceil(until / DAY) - 1
    return range(max(math.floor(since / DAY), last - MOST_DAYS + 1), last + 1)


def _name(day: int) -> str:
    return utc(day * DAY).date().isoformat()
