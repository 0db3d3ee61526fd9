"""Lists as pages need them: projects, totals and orders, workflows with the code of their newest run, a live stream."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from whistlestop.domain.errors import BadRequest, NotFound
from whistlestop.engines.base import JobState
from whistlestop.server.services import ingest, preview, projects, submit, verbs
from whistlestop.server.store import admin, events, runs
from whistlestop.server.store.schema import runs as table
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.world import ME, World, world
from whistlestop.wire.api import BulkBody, Submit
from whistlestop.wire.frames import Data, RunnerEvent, pack_record


@pytest.fixture(params=["sqlite", "postgres"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with world(tmp_path, url) as made:
        yield made


def test_projects_have_counts_credits_and_the_last_that_happened(here: World) -> None:
    first = here.submit("name: a\nproject: old\ncommand: 'true'\n")
    here.settle()
    here.now += 10
    said = RunnerEvent(here.now, "ended", "it ended", {"reason": "code_raised"})
    ingest.store(here.context, here.attempt(first.id), [Data("runner", 0, pack_record(said))])
    here.engine.says[here.attempt(first.id).id] = JobState.ENDED
    here.settle()
    here.now += 100
    for _ in range(3):
        here.submit("name: b\nproject: new\ncommand: 'true'\n")
    here.settle()
    here.now += 5
    with here.context.database.write() as connection:
        admin.save_workflow(
            connection, "flow", "name: x\nproject: planned\ncommand: x\n", note="", by="me", at=here.now
        )
    found = {view.name: view for view in projects.projects(here.context)}
    assert list(found) == ["new", "old", "planned"]
    new, old = found["new"], found["old"]
    assert (new.runs, new.active, new.running, new.queued, new.failed) == (3, 3, 2, 1, 0)
    assert new.credits == pytest.approx(2 * 5.0), "two slots at one credit a second"
    assert (old.runs, old.active, old.failed) == (1, 0, 1)
    assert old.credits == pytest.approx(10.0)
    assert (found["planned"].runs, found["planned"].last_at) == (0, None)


def test_a_list_is_counted_and_sorted_as_its_heads_say(here: World) -> None:
    first, second, third = (
        here.submit(f"name: {name}\nproject: p\ncommand: 'true'\npriority: {priority}\n")
        for name, priority in (("beta", 0), ("Alpha", 5), ("gamma", 1))
    )
    here.settle()  # two slots: the two of the highest priority run
    verbs.set_note(here.context, first.id, "too much 100% dropout", ME)
    with here.context.database.read() as connection:

        def names(sort: str, **wanted: str) -> list[str]:
            return [row.name for row in runs.listing(connection, runs.Filter(**wanted), sort=sort)]

        assert names("-created") == ["gamma", "Alpha", "beta"]
        assert names("name") == ["Alpha", "beta", "gamma"]
        assert names("-priority") == ["Alpha", "gamma", "beta"]
        assert names("status")[-1] == "beta", "what runs comes before what waits"
        assert names("started")[-1] == names("-started")[-1] == "beta", "what has not begun is last either way"
        assert names("name", search="DROPOUT") == ["beta"]
        assert names("name", search="100%") == ["beta"]
        assert names("name", search="a") == ["Alpha", "beta", "gamma"]
        assert runs.count(connection, runs.Filter(status=("queued",))) == 1
        assert runs.count(connection, runs.Filter(project="p")) == 3
        assert runs.count(connection, runs.Filter(project="q")) == 0
    assert second.number < third.number


def test_a_search_in_any_case_is_one_for_every_letter(here: World) -> None:
    run = here.submit("name: x\ncommand: 'true'\n")
    verbs.set_note(here.context, run.id, "GRÖSSE des Übergangs", ME)
    with here.context.database.write() as connection:
        events.add(connection, run.id, "notice", "GRÖSSE geändert", at=here.now)
    with here.context.database.read() as connection:
        assert runs.count(connection, runs.Filter(search="grösse")) == 1
        assert runs.count(connection, runs.Filter(search="übergang")) == 1
        assert [row.text for row in events.of_run(connection, run.id, search="GeÄndert")] == ["GRÖSSE geändert"]
        assert [row.text for row in events.of_run(connection, run.id, search="grösse")] == ["GRÖSSE geändert"]


@pytest.mark.parametrize("verb", ["stop", "pause", "kill", "delete"])
def test_a_preview_of_many_runs_costs_a_few_queries(tmp_path: Path, verb: Any) -> None:
    with world(tmp_path) as here:
        made = [here.submit() for _ in range(40)]
        asked: list[str] = []

        def count(*given: Any) -> None:
            asked.append(given[2])

        sa.event.listen(sa.Engine, "before_cursor_execute", count)
        try:
            seen = preview.preview(here.context, BulkBody(verb=verb, everything=True))
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", count)
        assert [item.run for item in seen.items] == [run.id for run in made]
        assert len([statement for statement in asked if statement.startswith("SELECT")]) <= 4


def test_a_workflow_knows_its_runs_and_the_code_of_the_newest(here: World) -> None:
    spec = "name: x\nproject: p\ncommand: 'true'\n"
    with here.context.database.write() as connection:
        admin.save_workflow(connection, "flow", spec, note="", by="me", at=here.now)
        admin.save_workflow(connection, "flow_", spec, note="", by="me", at=here.now)
    submit.submit(here.context, Submit(workflow="flow", in_place=str(here.settings.data), commit="abc", dirty=True), ME)
    newest = submit.submit(here.context, Submit(workflow="flow@1", commit="def"), ME)
    cards = {card.name: card for card in projects.workflows(here.context, "p")}
    assert (cards["flow"].runs, cards["flow_"].runs) == (2, 0)
    assert cards["flow"].newest is not None
    assert (cards["flow"].newest.number, cards["flow"].newest.code.commit) == (newest.number, "def")
    assert projects.workflows(here.context, "elsewhere") == []
    with here.context.database.read() as connection:
        assert runs.count(connection, runs.Filter(workflow="flow")) == 2
        assert runs.count(connection, runs.Filter(workflow="flo")) == 0
        assert runs.count(connection, runs.Filter(workflow="Flow")) == 0, "two workflows may differ by case alone"
    asked = BulkBody(verb="kill", workflow="flow")
    assert preview.preview(here.context, asked).total == 2
    other = here.submit()
    assert [item.ok for item in verbs.bulk(here.context, asked, ME).items] == [True, True]
    assert here.run_state(other.id) == "queued"


def test_a_new_run_takes_code_and_environment_of_another(here: World) -> None:
    first = submit.submit(
        here.context,
        Submit(
            spec="name: x\ncommand: y\n", in_place=str(here.settings.data), env={"A": "1"}, commit="abc", dirty=True
        ),
        ME,
    )
    second = submit.submit(here.context, Submit(spec="name: z\ncommand: y\n", code_of=first.id), ME)
    assert second.code == first.code
    with here.context.database.read() as connection:
        assert runs.get(connection, second.id).env == {"A": "1"}
    with pytest.raises(BadRequest, match="give nothing of them beside it"):
        submit.submit(here.context, Submit(spec="name: z\ncommand: y\n", code_of=first.id, commit="def"), ME)
    with pytest.raises(NotFound):
        submit.submit(here.context, Submit(spec="name: z\ncommand: y\n", code_of="nobody"), ME)


def test_ten_thousand_runs_are_listed_and_counted_quickly(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        first = here.submit("name: x\nproject: big\ncommand: 'true'\n")
        with here.context.database.write() as connection:
            row = dict(runs.get(connection, first.id)._mapping)
            same = {**row, "state": "completed", "ended_at": here.now}
            copies = [{**same, "id": f"r-{at}", "number": at, "changed": at} for at in range(2, 10_001)]
            connection.execute(table.insert(), copies)
            connection.execute(sa.text("ANALYZE"))
        started = time.perf_counter()
        with here.context.database.read() as connection:
            wanted = runs.Filter(project="big", search="nowhere")
            assert runs.count(connection, runs.Filter(project="big")) == 10_000
            assert runs.count(connection, wanted) == 0
            assert (
                len(runs.listing(connection, runs.Filter(project="big"), sort="-started", limit=100, skip=5000)) == 100
            )
        assert projects.projects(here.context)[0].runs == 10_000
        assert time.perf_counter() - started < 2.0, "a guard against a query per run, not a measurement"


def test_the_stream_of_rows_begins_where_the_page_ends_and_tells_what_is_gone(server: ServerProcess) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    with httpx2.Client(base_url=f"{server.url}/api/v1", headers=headers, timeout=30) as http:
        before = server.submit({"name": "a", "kind": "task", "command": "true"}, name="before")
        server.wait(before.id)
        page = http.get("/runs").json()
        after = server.submit({"name": "a", "kind": "task", "command": "true"}, name="after")
        server.wait(after.id)
        with server.client() as client:
            client.delete(before.id)
        told: list[tuple[str, str]] = []
        with http.stream("GET", "/rows/stream", params={"last_event_id": page["cursor"]}) as answer:
            kind = ""
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    said = json.loads(line.removeprefix("data: "))
                    told += [(kind, said.get("id") or said.get("run"))] if kind != "progress" else []
                    if kind == "gone":
                        break
        assert told[-1] == ("gone", before.id)
        assert {run for kind, run in told if kind == "run"} == {after.id}, "not everything that ever was"
        assert http.get("/rows/stream", params={"last_event_id": "x"}).status_code == 400


def test_the_stream_of_rows_without_a_cursor_begins_now(server: ServerProcess) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    with httpx2.Client(base_url=f"{server.url}/api/v1", headers=headers, timeout=30) as http, server.client() as client:
        before = server.submit({"name": "a", "kind": "task", "command": "true"}, name="before")
        server.wait(before.id)
        cursor = http.get("/runs").json()["cursor"]
        told: list[str] = []
        with http.stream("GET", "/rows/stream") as answer:
            for line in answer.iter_lines():
                told.append(line)
                if line == f"id: {cursor}":
                    client.note(before.id, "changed since")
                if line.startswith("data: "):
                    break
        assert told[-1].startswith("data: ")
        assert json.loads(told[-1].removeprefix("data: "))["note"] == "changed since", "not what was before"


def test_a_run_that_moves_tells_its_progress_to_lists(server: ServerProcess) -> None:
    code = "import whistlestop,time\nwith whistlestop.run() as r:\n for s in r.steps(total=100000): time.sleep(.01)"
    run = server.submit({"name": "a", "command": ["python", "-c", code]}, name="moves")
    headers = {"Authorization": f"Bearer {server.token}"}
    with httpx2.Client(base_url=f"{server.url}/api/v1", headers=headers, timeout=30) as http:
        until(lambda: http.get(f"/runs/{run.id}").json()["progress"]["step"] > 0, within=30, what="its first steps")
        steps: list[int] = []
        cursor = http.get("/runs").json()["cursor"]
        with http.stream("GET", "/rows/stream", params={"last_event_id": cursor}) as answer:
            for line in answer.iter_lines():
                if line.startswith('data: {"runs"'):
                    (said,) = json.loads(line.removeprefix("data: "))["runs"]
                    steps.append(said["progress"]["step"])
                    if len(steps) == 3:
                        break
        assert steps == sorted(set(steps)), "each message is news"
        with server.client() as client:
            client.kill(run.id)
