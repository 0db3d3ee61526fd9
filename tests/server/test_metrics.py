"""The server in the words of Prometheus: read by its own parser, for a token alone, at a bounded cost."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
from prometheus_client.parser import text_string_to_metric_families

from whistlestop.server.services import ingest, receivers
from whistlestop.server.services.alerting import Follower
from whistlestop.server.services.exposing import Exposing
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.world import ME, World, world
from whistlestop.wire.alerts import ReceiverBody
from whistlestop.wire.api import RunView
from whistlestop.wire.frames import Data, RunnerEvent, pack_record

LAB = "name: x\nproject: lab\ncommand: 'true'\n"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def read(text: str) -> Samples:
    families = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((f"whistle_{name}", tuple(sorted(labels.items()))))


def say(here: World, run: RunView, kind: str, **data: Any) -> None:
    row = here.attempt(run.id)
    offset = ingest.offsets(here.context, row.id).get("runner", 0)
    body = pack_record(RunnerEvent(here.now, kind, kind, data))
    ingest.store(here.context, row, [Data("runner", offset, body)])
    here.settle()


def test_what_runs_waits_and_ended_is_told(here: World) -> None:
    exposing = Exposing(here.context)
    follower = Follower(here.context, lambda: "", [exposing.heard])
    receivers.add(here.context, ReceiverBody(name="ops", address="https://example.org/x"), ME)
    running, ending, losing = here.submit(LAB), here.submit(LAB), here.submit(LAB.replace("lab", "other"))
    here.settle()
    here.now += 10
    say(here, running, "program_started")
    say(here, running, "training")
    say(here, ending, "ended", reason="finished", gone_at=here.now)
    say(here, losing, "ended", reason="preempted", last_step=5, gone_at=here.now)
    third = here.submit(LAB)
    here.submit(LAB + "slots: 2\n")
    here.settle()
    here.now += 30
    while follower.follow():
        pass
    found = read(exposing.text().decode())
    assert value(found, "runs", project="lab", status="running") == 1
    assert value(found, "runs", project="lab", status="queued") == 2
    assert value(found, "runs_ended_total", project="lab", status="completed") == 1
    assert value(found, "attempts_ended_total", pool="local", reason="finished") == 1
    assert value(found, "attempts_ended_total", pool="local", reason="preempted") == 1
    assert value(found, "preemptions_total", pool="local") == 1
    assert value(found, "queue_length") == 2
    assert value(found, "queue_oldest_wait_seconds") == 30
    assert value(found, "slots_used", pool="local") == 2
    assert value(found, "slots_free", pool="local") == 0
    assert value(found, "credits_spent", project="lab") == 50  # 40 of what runs, 10 of what has ended
    assert value(found, "checkpoint_age_seconds") == 30
    assert value(found, "alerts_waiting", receiver="ops") == 1
    assert value(found, "receiver_failing_seconds", receiver="ops") == 0
    assert value(found, "runner_connections") == 0
    assert (value(found, "database_bytes") or 0) > 100_000
    assert third.status == "queued"


def test_a_counter_begins_anew_with_its_server_and_counts_nothing_twice(here: World) -> None:
    run = here.submit(LAB)
    here.settle()
    say(here, run, "ended", reason="finished")
    exposing = Exposing(here.context)  # a new one: what was before it is another life's
    follower = Follower(here.context, lambda: "", [exposing.heard])
    follower.follow()
    assert value(read(exposing.text().decode()), "runs_ended_total", project="lab", status="completed") is None
    second = here.submit(LAB)
    here.settle()
    say(here, second, "ended", reason="finished")
    follower.follow()
    say(here, second, "ended", reason="finished")  # a runner that says so again
    follower.follow()
    found = read(exposing.text().decode())
    assert value(found, "runs_ended_total", project="lab", status="completed") == 1
    assert value(found, "attempts_ended_total", pool="local", reason="finished") == 1


def test_a_scrape_of_an_older_snapshot_makes_no_line_of_the_ledger_count_twice(here: World) -> None:
    exposing = Exposing(here.context)
    run = here.submit(LAB)
    here.settle()
    here.now += 10
    with here.context.database.read() as older:
        assert exposing._credits(older, [], here.now) == {}
        say(here, run, "ended", reason="finished", gone_at=here.now)
        first = value(read(exposing.text().decode()), "credits_spent", project="lab")
        exposing._credits(older, [], here.now)
    assert value(read(exposing.text().decode()), "credits_spent", project="lab") == first == 10


def test_a_scrape_costs_as_many_questions_with_a_history_as_without(here: World) -> None:
    exposing, asked, here_only = Exposing(here.context), list[str](), threading.get_ident()  # sweepers ask as well

    @sa.event.listens_for(here.context.database._engine, "before_cursor_execute")
    def count(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if threading.get_ident() == here_only:
            asked.append(statement)

    exposing.text()
    first = len(asked)
    for _ in range(5):
        run = here.submit(LAB)
        here.settle()
        say(here, run, "ended", reason="finished")
    asked.clear()
    exposing.text()
    assert len(asked) == first < 20


def test_a_token_is_needed_and_a_viewers_is_enough(shared_server: ServerProcess) -> None:
    address = f"{shared_server.url}/metrics"
    assert httpx2.get(address).status_code == 401
    assert httpx2.get(address, headers={"authorization": "Bearer nonsense"}).status_code == 401
    with shared_server.client() as client:
        token = client.create_token("prometheus", "viewer")
        try:

            def scraped() -> Samples:
                answer = httpx2.get(address, headers={"authorization": f"Bearer {token.token}"})
                assert answer.status_code == 200
                assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
                return read(answer.text)

            run = shared_server.submit({"name": "a", "command": "sleep 600", "kind": "task"}, project="metered")
            shared_server.wait(run.id, "running")
            found = scraped()
            assert value(found, "runs", project="metered", status="running") == 1
            assert value(found, "runner_connections") == 1
            assert (value(found, "scheduler_pass_seconds_count") or 0) > 0
            of = {"method": "POST", "route": "/api/v1/runs", "status": "2xx"}
            assert (value(found, "request_seconds_count", **of) or 0) >= 1
            assert value(found, "request_seconds_bucket", **of, le="+Inf") == value(
                found, "request_seconds_count", **of
            )
            client.kill(run.id)
            shared_server.wait(run.id)
            until(lambda: value(scraped(), "runs_ended_total", project="metered", status="killed") == 1)
        finally:
            client.revoke_token(token.id)


def test_a_server_starts_without_what_alerts_and_metrics_need() -> None:
    """Each of them takes longer to import than the rest of the start."""
    words = (
        "import sys, whistlestop.server.app; print([m for m in ('apprise', 'prometheus_client', 'opentelemetry.sdk')"
    )
    made = subprocess.run(
        [sys.executable, "-c", words + " if m in sys.modules])"], capture_output=True, text=True, check=True
    )
    assert made.stdout.strip() == "[]"
