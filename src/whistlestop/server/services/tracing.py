"""Each run as a trace for OpenTelemetry: what an attempt did is sent when it has ended, the run itself when it has.

Only where an address is set and the package is there; else nothing of it is imported. Ids follow from the run's, so
that attempts that ended under different lives of the server are in one trace.
"""

import hashlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from whistlestop import __version__
from whistlestop.domain.reasons import OUTCOMES, EndReason
from whistlestop.domain.states import AttemptState
from whistlestop.server.services import meters
from whistlestop.server.services.context import Context
from whistlestop.server.store import operations as store
from whistlestop.server.store import phases, runs

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)
Row = sa.Row[Any]
ADDRESSES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
MOMENT = 2.0  # seconds
REMEMBERED = 10_000  # attempts that were sent: each of several nodes tells of an end


def wanted(environ: Mapping[str, str] = os.environ) -> bool:
    if not any(environ.get(name) for name in ADDRESSES):
        return False
    try:
        there = find_spec("opentelemetry.sdk") and find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:
        there = None
    if not there:
        log.warning("no traces are sent: pip install 'whistlestop[otel]', or unset %s", ADDRESSES[0])
    return bool(there)


class Tracing:
    """`exporter`: where to; by default as OpenTelemetry's own variables say."""

    def __init__(self, context: Context, exporter: "SpanExporter | None" = None) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        self._context, self._ids = context, _ids()
        name = os.environ.get("OTEL_SERVICE_NAME", "whistlestop")
        resource = Resource.create({"service.name": name, "service.version": __version__})
        self._provider = TracerProvider(id_generator=self._ids, resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("whistlestop", __version__)
        self._known: OrderedDict[str, None] = OrderedDict()

    def heard(self, rows: Sequence[Row]) -> None:
        over, ended = meters.ends(rows)
        if not (over or ended):
            return
        with self._context.database.read() as connection:
            found = store.ends(connection, {(row.run_id, row.attempt) for row in ended})
            names = {
                row.id: row.name for row in phases.by_id(connection, {row.phase_id for row in found.values()}).values()
            }
            ran = runs.by_id(connection, {row.run_id for row in rows})
        for attempt in found.values():
            if attempt.id not in self._known and attempt.run_id in ran:
                self._known[attempt.id] = None
                if len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
                self._attempt(ran[attempt.run_id], attempt, names.get(attempt.phase_id, ""))
        for event in over:
            if event.run_id in ran and ran[event.run_id].ended_at is not None:
                self._run(ran[event.run_id])

    def close(self) -> None:
        """What is not sent within a moment is dropped: a trace is not worth a slow stop."""
        # Neither keeps to a time by itself: for a collector that is dead they wait as long as one export may take.
        ending = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(MOMENT)

    def _run(self, run: Row) -> None:
        values = {"whistle.run": run.id, "whistle.number": run.number, "whistle.name": run.name,
                  "whistle.project": run.project, "whistle.status": run.state}  # fmt: skip
        bad = run.reason or run.state if run.state == "failed" else None
        self._span(run.id, "run", None, run.created_at, run.ended_at, values, bad=bad)

    def _attempt(self, run: Row, attempt: Row, phase: str) -> None:
        own = f"attempt {attempt.number}"
        values = {"whistle.run": run.id, "whistle.project": run.project, "whistle.phase": phase,
                  "whistle.attempt": attempt.number, "whistle.pool": attempt.pool, "whistle.host": attempt.host or "",
                  "whistle.reason": attempt.reason, "whistle.last_step": attempt.last_step or 0}  # fmt: skip
        if attempt.queued_at is not None:
            queued = {"whistle.phase": phase, "whistle.attempt": attempt.number}
            self._span(run.id, f"queued {attempt.number}", "run", attempt.queued_at, attempt.started_at, queued)
        failed = OUTCOMES[EndReason(attempt.reason)].state in (AttemptState.FAILED, AttemptState.LOST)
        marks = {"first checkpoint": attempt.committed_at, "asked to end": attempt.stopping_at}
        self._span(run.id, own, "run", attempt.started_at, attempt.ended_at, values,
                   bad=attempt.text if failed else None, marks=marks)  # fmt: skip
        if attempt.loop_at is not None:
            self._span(run.id, f"starting {attempt.number}", own, attempt.started_at, attempt.loop_at, {})

    def _span(
        self,
        run_id: str,
        name: str,
        parent: str | None,
        since: float,
        until: float,
        values: Mapping[str, Any],
        *,
        bad: str | None = None,
        marks: Mapping[str, float | None] | None = None,
    ) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context as Nothing

        around = Nothing()
        if parent is not None:
            flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
            of = trace.SpanContext(
                _number(run_id, 16), _number(f"{run_id}/{parent}", 8), is_remote=True, trace_flags=flags
            )
            around = trace.set_span_in_context(trace.NonRecordingSpan(of), around)
        self._ids.trace, self._ids.span = _number(run_id, 16), _number(f"{run_id}/{name}", 8)
        span = self._tracer.start_span(
            name.partition(" ")[0], context=around, start_time=_nanos(since), attributes=dict(values)
        )
        for mark, at in (marks or {}).items():
            if at is not None:
                span.add_event(mark, timestamp=_nanos(at))
        if bad is not None:
            span.set_status(trace.StatusCode.ERROR, bad[:500])
        span.end(end_time=_nanos(max(since, until)))


def _ids() -> Any:
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class Given(IdGenerator):
        """The next span's, set before each."""

        trace = span = 1

        def generate_trace_id(self) -> int:
            return self.trace

        def generate_span_id(self) -> int:
            return self.span

    return Given()


def _number(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], "big")


def _nanos(seconds: float) -> int:
    return int(seconds * 1e9)
