"""Each run as a trace, sent to a real receiver of OTLP over HTTP."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whistlestop.server.services import ingest, tracing
from whistlestop.server.services.alerting import Follower
from whistlestop.server.store import events
from whistlestop.testing.wait import until
from whistlestop.testing.webhooks import Receiver
from whistlestop.testing.world import World, world
from whistlestop.wire.frames import Data, RunnerEvent, pack_record


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def say(here: World, run: str, kind: str, **data: Any) -> None:
    row = here.attempt(run)
    offset = ingest.offsets(here.context, row.id).get("runner", 0)
    body = pack_record(RunnerEvent(here.now, kind, "it " + kind, data))
    ingest.store(here.context, row, [Data("runner", offset, body)])
    here.settle()


def spans_of(receiver: Receiver) -> list[Any]:
    found = []
    for post in receiver.taken:
        request = ExportTraceServiceRequest.FromString(post.body)
        found += [span for part in request.resource_spans for scope in part.scope_spans for span in scope.spans]
    return found


def test_a_run_with_two_attempts_under_two_servers_is_one_trace(here: World) -> None:
    with Receiver(then=200) as collector:
        address = collector.url.partition("?")[0]
        run = here.submit("name: x\nproject: lab\ncommand: 'true'\n").id
        for reason in ("preempted", "finished"):
            traced = tracing.Tracing(here.context, OTLPSpanExporter(address))
            follower = Follower(here.context, lambda: "", [traced.heard])
            here.settle()
            here.now += 5
            say(here, run, "program_started")
            say(here, run, "training")
            here.now += 10
            number = here.attempt(run).number
            say(here, run, "ended", reason=reason, last_step=7, gone_at=here.now)
            follower.follow()
            with here.context.database.write() as connection:  # another node says so as well: not another span
                events.add(connection, run, "ended", "it ended", at=here.now, attempt=number)
            follower.follow()
            traced.close()
        spans = spans_of(collector)
    names = sorted(span.name for span in spans)
    assert names == ["attempt", "attempt", "queued", "queued", "run", "starting", "starting"]
    assert len({span.trace_id for span in spans}) == 1
    assert len({span.span_id for span in spans}) == len(spans)
    [whole] = [span for span in spans if span.name == "run"]
    tries = [span for span in spans if span.name == "attempt"]
    assert whole.parent_span_id == b""
    assert {span.parent_span_id for span in tries} == {whole.span_id}
    assert {span.parent_span_id for span in spans if span.name == "starting"} == {span.span_id for span in tries}
    assert [round((span.end_time_unix_nano - span.start_time_unix_nano) / 1e9) for span in tries] == [15, 15]
    said = {item.key: item.value.string_value for item in tries[0].attributes}
    assert (said["whistle.pool"], said["whistle.reason"], said["whistle.phase"]) == ("local", "preempted", "main")


def test_a_collector_that_does_not_answer_holds_up_no_stop(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MOMENT", 0.1)
    with Receiver([60.0] * 9) as collector:
        exporter = OTLPSpanExporter(collector.url.partition("?")[0])
        traced = tracing.Tracing(here.context, exporter)
        follower = Follower(here.context, lambda: "", [traced.heard])
        run = here.submit("name: x\nproject: lab\ncommand: 'true'\n").id
        here.settle()
        say(here, run, "ended", reason="finished", gone_at=here.now)
        follower.follow()
        began = time.monotonic()
        traced.close()
        assert time.monotonic() - began < 8  # an export may take 10
        until(lambda: collector.posts, what="it to have been asked")
        exporter.shutdown()  # or it would try again when the collector leaves


def test_nothing_is_sent_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing.ADDRESSES:
        monkeypatch.delenv(name, raising=False)
    assert not tracing.wanted()
    assert tracing.wanted({tracing.ADDRESSES[0]: "http://127.0.0.1:1"})


def test_an_address_without_the_package_is_said_and_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracing, "find_spec", lambda name: None)
    assert not tracing.wanted({tracing.ADDRESSES[0]: "http://127.0.0.1:1"})
    assert "whistlestop[otel]" in caplog.text
