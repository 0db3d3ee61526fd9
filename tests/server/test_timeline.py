"""The timeline: marks that count, stages with their lengths, and a cost that does not grow with history."""

import itertools
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from whistlestop.client import Client
from whistlestop.server.services import timeline
from whistlestop.server.store import events, marks
from whistlestop.server.store.database import Database
from whistlestop.server.store.schema import events as table
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

EVALUATES = """
import os, time
import whistlestop
with whistlestop.run() as run:
    for step in run.steps(total=int(os.environ["STEPS"]), per_epoch=10):
        if int(step) % 5 == 4:
            with run.evaluating():
                pass
        if int(step) % 10 == 9:
            run.save()
        time.sleep(float(os.environ.get("PACE", "0")))
        while os.environ["WHISTLE_ATTEMPT_NUMBER"] != "1" and not os.path.exists(os.environ["GO_ON"]):
            time.sleep(0.005)
"""
REPORTS_EPOCHS = """
import whistlestop
with whistlestop.run() as run:
    for item in run.each([1, 2, 3, 4], epochs=3):
        pass
"""


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def get(server: ServerProcess, path: str) -> Any:
    headers = {"Authorization": f"Bearer {server.token}"}
    return httpx2.get(f"{server.url}/api/v1{path}", headers=headers, timeout=30).raise_for_status().json()


def asked(server: ServerProcess, run: str) -> list[dict[str, Any]]:
    phases: list[dict[str, Any]] = get(server, f"/runs/{run}/timeline")["phases"]
    return phases


def program(directory: Path, text: str) -> list[str]:
    (directory / "program.py").write_text(text)
    return [sys.executable, "program.py"]


def test_evaluations_and_epoch_ends_are_marks_and_every_stage_has_its_length(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    phase = {"name": "train", "command": program(tmp_path, EVALUATES), "env": {"STEPS": "40"}}
    run = server.submit(phase, {"name": "report", "kind": "task", "command": "true"}, directory=tmp_path)
    server.wait(run.id, "completed")
    train, report = asked(server, run.id)
    assert (train["phase"], train["total"], train["per_epoch"]) == ("train", 40, 10)
    assert train["epochs"] == [10, 20, 30, 40]
    assert train["evaluations"] == [4, 9, 14, 19, 24, 29, 34, 39]
    assert [stage["stage"] for stage in train["stages"]] == [
        "queued",
        "allocating",
        "preparing",
        "starting",
        "training",
    ]
    assert all(stage["seconds"] >= 0 and stage["attempt"] == 1 for stage in train["stages"])
    assert [stage["stage"] for stage in report["stages"]] == ["queued", "allocating", "preparing", "training"]
    assert report["stages"][0]["at"] >= train["stages"][-1]["at"]  # it waited for the other, not for a slot


def test_real_epochs_count_where_the_program_reports_them(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    run = server.submit({"name": "train", "command": program(tmp_path, REPORTS_EPOCHS)}, directory=tmp_path)
    server.wait(run.id, "completed")
    assert asked(server, run.id)[0]["epochs"] == [4, 8, 12]


def test_what_a_resume_has_superseded_is_no_mark_and_a_pause_is_not_queue_time(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    env = {"STEPS": "100000", "PACE": "0.01", "GO_ON": str(tmp_path / "go on")}
    phase = {"name": "train", "command": program(tmp_path, EVALUATES), "env": env}
    run = server.submit(phase, directory=tmp_path)
    until(lambda: client.run(run.id).progress.step >= 25 and client.checkpoints(run.id), what="steps and a checkpoint")
    client.pause(run.id, checkpoint="latest")
    server.wait(run.id, "waiting")
    kept = client.checkpoints(run.id)[0].step
    lost = [step for step in asked(server, run.id)[0]["evaluations"] if step > kept]
    client.resume(run.id)
    until(lambda: any(attempt.resumed_from == kept for attempt in client.run(run.id).phases[0].attempts))
    marks = asked(server, run.id)[0]["evaluations"]
    assert (marks[0], max(marks) <= kept) == (4, True)
    (tmp_path / "go on").touch()
    until(lambda: {*lost} <= {*asked(server, run.id)[0]["evaluations"]}, what="the same steps to be evaluated again")
    first, second = (
        [stage for stage in asked(server, run.id)[0]["stages"] if stage["attempt"] == number] for number in (1, 2)
    )
    assert second[0]["stage"] == "queued"
    assert second[0]["at"] > first[-1]["at"]
    (resume,) = (event for event in client.events(run.id) if event.kind == "resume_requested")
    assert second[0]["at"] == resume.at, "it waits in the queue from then on"
    client.kill(run.id)
    server.wait(run.id, "killed")


def test_a_queued_run_shows_that_it_waits(server: ServerProcess, client: Client) -> None:
    busy = server.submit({"name": "busy", "kind": "task", "command": "sleep 60", "slots": 2})
    server.wait(busy.id, "running")
    run = server.submit({"name": "later", "kind": "task", "command": "true"})
    (stage,) = asked(server, run.id)[0]["stages"]
    assert (stage["attempt"], stage["stage"], stage["seconds"]) == (None, "queued", None)
    client.kill(busy.id)
    server.wait(busy.id, "killed")


def test_events_can_be_asked_for_from_their_end(server: ServerProcess, client: Client) -> None:
    run = server.submit({"name": "one", "kind": "task", "command": "true"}, name="ends")
    server.wait(run.id, "completed")
    every = [event.seq for event in client.events(run.id)]

    def listed(query: str) -> list[int]:
        return [event["seq"] for event in get(server, f"/runs/{run.id}/events?{query}")]

    assert listed("newest=true&limit=3") == every[-3:]
    assert listed(f"before={every[-3]}&limit=2") == every[-5:-3]
    found = get(server, f"/runs/{run.id}/events?search=SUBMITTED")
    assert [event["kind"] for event in found] == ["submitted"]
    kinds = [event["kind"] for event in get(server, f"/runs/{run.id}/events")]
    only = get(server, f"/runs/{run.id}/events?kind=submitted&kind=placed&newest=true")
    assert [event["kind"] for event in only] == [kind for kind in kinds if kind in ("submitted", "placed")]
    rest = get(server, f"/runs/{run.id}/events?without=submitted&without=placed")
    assert [event["kind"] for event in rest] == [kind for kind in kinds if kind not in ("submitted", "placed")]
    assert listed("search=%25") == []  # a percent sign is a percent sign


@pytest.mark.parametrize(
    ("began", "per_epoch", "until_step", "ends"),
    [
        ([], 10, 35, [10, 20, 30]),
        ([], None, 35, []),
        ([0, 12, 25], 10, 50, [12, 25, 35, 45]),
        ([0, 12, 25], None, 50, [12, 25]),
        ([], 10, 0, []),
    ],
)
def test_epoch_ends_are_real_where_told_and_reckoned_behind(
    began: list[int], per_epoch: int | None, until_step: int, ends: list[int]
) -> None:
    assert timeline.epoch_ends(began, per_epoch, until_step) == ends


def test_a_million_epochs_make_at_most_five_hundred_regular_marks() -> None:
    ends = timeline.epoch_ends([], 1, 1_000_000)
    assert 400 <= len(ends) <= 500
    assert {after - before for before, after in itertools.pairwise(ends)} == {2000}
    assert len(timeline.epoch_ends(list(range(10_000)), 1, 1_000_000)) <= 500


def test_a_hundred_thousand_evaluations_cost_what_a_thousand_cost(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'test.db'}")
    database.migrate()
    _evaluate(database, few=1000, many=100_000)

    def ask(run: str) -> tuple[float, list[int]]:
        with database.read() as connection:
            began = time.perf_counter()
            rows = marks.of_kind(connection, run, 1, "evaluation", most=500)
            return time.perf_counter() - began, [row.data["step"] for row in rows]

    few, many = min(ask("few")[0] for _ in range(3)), min(ask("many")[0] for _ in range(3))
    steps = ask("many")[1]
    database.close()
    assert (steps[0], steps[-1]) == (0, 99_999)
    assert 400 < len(steps) <= 502
    assert max(after - before for before, after in itertools.pairwise(steps)) <= 250
    assert many < max(0.05, 5 * few)  # a hundred times the events


def test_postgresql_finds_the_same_marks(postgres_url: str) -> None:
    database = Database(postgres_url)
    database.migrate()
    _evaluate(database, few=100, many=3000)
    with database.read() as connection:
        steps = [row.data["step"] for row in marks.of_kind(connection, "many", 1, "evaluation", most=100)]
        assert len(marks.of_kind(connection, "few", 1, "evaluation", most=100)) == 100
        assert marks.first_of_kinds(connection, "few", ["evaluation"], [1]) == {(1, "evaluation"): 0.0}
        found = events.of_run(connection, "few", newest=True, limit=2, search="X E")
    database.close()
    assert (steps[0], steps[-1]) == (0, 2999)
    assert 90 < len(steps) <= 102
    assert [event.data["step"] for event in found] == [98, 99]


def _evaluate(database: Database, **counts: int) -> None:
    rows = [
        {"run_id": run, "at": 0.0, "scope": "instance", "kind": "evaluation", "actor": "program", "text": "x",
         "phase": "train", "attempt": 1, "data": {"step": step}}
        for run, count in counts.items() for step in range(count)
    ]  # fmt: skip
    with database.write() as connection:
        connection.execute(table.insert(), rows)
