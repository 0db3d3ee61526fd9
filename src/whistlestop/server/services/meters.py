"""What the server counts of itself while it lives: requests, passes of the scheduler, ends. In memory alone; whoever
scrapes it knows that counters begin anew when a process does."""

import threading
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.alerts import ENDED

Row = sa.Row[Any]
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
MOST_ROUTES = 1000  # of methods, routes and statuses: all others are one
REMEMBERED = 10_000  # attempts whose end was counted: each of several nodes tells of it


class Histogram:
    def __init__(self) -> None:
        self._counts, self._sum = [0] * (len(BOUNDS) + 1), 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """How many took at most so long, and the sum of all."""
        names = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
        return [(name, float(count)) for name, count in zip(names, accumulate(self._counts), strict=True)], self._sum


class Meters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, str, str], Histogram] = {}
        self.passes = Histogram()  # of the scheduler: one thread writes it
        self.runs_ended: Counter[tuple[str, str]] = Counter()  # project, status
        self.attempts_ended: Counter[tuple[str, str]] = Counter()  # pool, reason
        self._known: OrderedDict[str, None] = OrderedDict()

    def answered(self, method: str, route: str, status: str, seconds: float) -> None:
        key = (method, route, status)
        with self._lock:
            if key not in self._requests and len(self._requests) >= MOST_ROUTES:
                key = ("other", "other", status)
            self._requests.setdefault(key, Histogram()).observe(seconds)

    def requests(self) -> list[tuple[tuple[str, str, str], tuple[list[tuple[str, float]], float]]]:
        with self._lock:
            return [(key, made.read()) for key, made in sorted(self._requests.items())]

    def ended(self, project: str, status: str) -> None:
        self.runs_ended[project, status] += 1

    def attempt_ended(self, attempt_id: str, pool: str, reason: str) -> None:
        if attempt_id in self._known:
            return
        self._known[attempt_id] = None
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        self.attempts_ended[pool, reason] += 1


def ends(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Of these events, those of runs that have ended, and those of attempts."""
    over = ("run_completed", "run_failed", "run_killed")
    return [row for row in rows if row.kind in over], [row for row in rows if row.kind == ENDED]
