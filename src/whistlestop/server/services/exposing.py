"""The server in the words of Prometheus. The library is imported at the first question: no start waits for it."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from whistlestop import __version__
from whistlestop.domain.credits import Charge
from whistlestop.domain.reasons import EndReason
from whistlestop.server.services import meters
from whistlestop.server.services.context import Context
from whistlestop.server.store import alerts as alerts_store
from whistlestop.server.store import operations as store

if TYPE_CHECKING:
    from prometheus_client import Metric

Row = sa.Row[Any]
_LOST = (EndReason.PREEMPTED, EndReason.HOST_LOST)


class Exposing:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._spent: defaultdict[str, float] = defaultdict(float)  # by project, up to this line of the ledger
        self._line = 0

    def heard(self, rows: Sequence[Row]) -> None:
        """Events as they come: what has ended is counted, not looked for."""
        runs, attempts = meters.ends(rows)
        if not (runs or attempts):
            return
        with self._context.database.read() as connection:
            projects = store.projects(connection, {row.run_id for row in runs})
            ended = store.ends(connection, {(row.run_id, row.attempt) for row in attempts})
        for row in runs:
            if row.run_id in projects:
                self._context.meters.ended(projects[row.run_id], row.kind.removeprefix("run_"))
        for row in attempts:
            found = ended.get((row.run_id, row.attempt))
            if found is not None:
                self._context.meters.attempt_ended(found.id, found.pool, found.reason)

    def text(self) -> bytes:
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        found = list(self.collect())
        registry.register(_Given(found))
        return generate_latest(registry)

    def collect(self) -> Iterable["Metric"]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        def gauge(name: str, says: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> Any:
            made = GaugeMetricFamily(f"whistle_{name}", says, labels=labels)
            for of, value in values:
                made.add_metric(of, value)
            return made

        def counter(name: str, says: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> Any:
            made = CounterMetricFamily(f"whistle_{name}", says, labels=labels)
            for of, value in values:
                made.add_metric(of, value)
            return made

        # One at a time: one that reads by an older snapshot would count what has ended since as running, too.
        with self._lock, self._context.database.read() as connection:
            now = self._context.clock()
            active, (queued, since) = store.active(connection), store.queue(connection)
            sizes, live = store.sizes(connection), store.live(connection)
            saved, size = store.oldest_checkpoint(connection), store.size(connection)
            waiting = alerts_store.waiting(connection)
            receivers = alerts_store.all_receivers(connection)
            credits = self._credits(connection, live, now)
        used = Counter[str]()
        for row in live:
            used[row.pool] += len(row.slots)
        counted = self._context.meters
        yield gauge("info", "The server.", ("version",), [((__version__,), 1)])
        yield gauge("runs", "Runs that have not ended.", ("project", "status"),
                    [((row.project, row.state), row.amount) for row in active])  # fmt: skip
        yield counter("runs_ended", "Runs that have ended.", ("project", "status"), list(counted.runs_ended.items()))
        yield counter("attempts_ended", "Attempts that have ended, by reason.", ("pool", "reason"),
                      list(counted.attempts_ended.items()))  # fmt: skip
        yield counter("preemptions", "Attempts that lost their capacity.", ("pool",), _lost(counted.attempts_ended))
        yield gauge("queue_length", "Phases that wait for capacity.", (), [((), queued)])
        yield gauge("queue_oldest_wait_seconds", "How long the first of them has waited.", (),
                    [((), 0.0 if since is None else max(0.0, now - since))])  # fmt: skip
        yield gauge("slots_used", "Slots that are held.", ("pool",), [((row.name,), used[row.name]) for row in sizes])
        yield gauge("slots_free", "Slots that are free.", ("pool",),
                    [((row.name,), max(0, row.slots - used[row.name])) for row in sizes])  # fmt: skip
        yield gauge("credits_spent", "Credits, with those of what runs.", ("project",),
                    [((project,), amount) for project, amount in sorted(credits.items())])  # fmt: skip
        yield gauge("checkpoint_age_seconds", "Of what trains: the longest time without a checkpoint.", (),
                    [((), 0.0 if saved is None else max(0.0, now - saved))])  # fmt: skip
        yield gauge("alerts_waiting", "Alerts that were not taken yet.", ("receiver",),
                    [((row.name,), waiting.get(row.name, 0)) for row in receivers])  # fmt: skip
        yield gauge("receiver_failing_seconds", "For how long a receiver has failed; 0: it is well.", ("receiver",),
                    [((row.name,), now - (row.failing_since or now)) for row in receivers])  # fmt: skip
        yield gauge("runner_connections", "Runners that are connected.", (), [((), self._context.hub.links())])
        yield gauge("database_bytes", "Size of the database.", (), [((), size)])
        passes = HistogramMetricFamily("whistle_scheduler_pass_seconds", "One pass of the scheduler.", labels=())
        passes.add_metric((), *counted.passes.read())
        yield passes
        requests = HistogramMetricFamily(
            "whistle_request_seconds",
            "From a request to the beginning of its answer.",
            labels=("method", "route", "status"),
        )
        for of, (buckets, total) in counted.requests():
            requests.add_metric(of, buckets, total)
        yield requests

    def _credits(self, connection: sa.Connection, live: Sequence[Any], now: float) -> dict[str, float]:
        """The ledger is only added to: each line is read once in the life of a server. Under the lock."""
        self._line, fresh = store.spent(connection, self._line)
        for row in fresh:
            self._spent[row.project] += row.credits
        found = dict(self._spent)
        for row in live:
            cost = Charge(len(row.slots), row.price, row.started_at, None).credits(now)
            found[row.project] = found.get(row.project, 0.0) + cost
        return found


class _Given:
    def __init__(self, metrics: Sequence["Metric"]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable["Metric"]:
        return self._metrics


def _lost(ended: Counter[tuple[str, str]]) -> list[tuple[tuple[str], float]]:
    found = Counter[str]()
    for (pool, reason), count in list(ended.items()):
        found[pool] += count if reason in _LOST else 0
    return [((pool,), count) for pool, count in sorted(found.items())]
