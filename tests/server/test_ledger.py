"""What attempts cost, by kind of time: written with their end, and it adds up."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from whistlestop.domain import credits
from whistlestop.domain.states import RUN_ENDED
from whistlestop.server.services import accounting, ingest, verbs, views
from whistlestop.server.store import phases, pools
from whistlestop.server.store.ledger import Spendings
from whistlestop.server.store.schema import ledger
from whistlestop.testing.world import ME, World, world
from whistlestop.wire.api import KillBody, RunView
from whistlestop.wire.frames import Data, Progress, RunnerEvent, pack_record

TRAIN = "name: x\nproject: lab\ncommand: 'true'\n"
TASK = "name: x\nproject: lab\nkind: task\ncommand: 'true'\n"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with world(tmp_path, url) as made:
        yield made


class Told:
    """One attempt, as its runner speaks for it."""

    def __init__(self, here: World, run: RunView) -> None:
        self.here, self.offset = here, 0
        here.settle()
        self.row = here.attempt(run.id)

    def say(self, kind: str, **data: Any) -> None:
        body = pack_record(RunnerEvent(self.here.now, kind, kind, data))
        ingest.store(self.here.context, self.row, [Data("runner", self.offset, body)])
        self.offset += len(body)

    def after(self, seconds: float) -> "Told":
        self.here.now += seconds
        return self

    def step(self, step: int, **more: Any) -> None:
        said = {"stage": "training", "total": 1000, "progress_at": self.here.now, **more}
        self.here.context.hub.progress[self.row.id] = Progress(at=self.here.now, step=step, **said)

    def end(self, reason: str, **data: Any) -> None:
        self.say("ended", reason=reason, **data)
        self.here.settle()


def lines(here: World) -> list[Any]:
    with here.context.database.read() as connection:
        return list(connection.execute(sa.select(ledger).order_by(ledger.c.id)))


def spent(here: World, attempt: int) -> dict[str, float]:
    """A credit is a second of a slot here."""
    return {row.kind: round(row.credits, 6) for row in lines(here) if row.attempt == attempt}


def test_every_second_from_start_to_end_has_its_kind_and_what_is_done_again_is_seen(both: World) -> None:
    here = both
    run = here.submit(TRAIN)
    first = Told(here, run)
    first.after(2).say("program_started")
    first.after(3).say("attached")
    first.after(5).say("training")
    first.after(40).say("checkpoint", id="c1", step=40, path="/c/1", block_seconds=4.0, upload_seconds=1.0)
    first.after(50).step(90)
    first.say("notice", final=True)
    first.after(6).end("preempted", last_step=90, saved_step=40)
    assert spent(here, 1) == {"starting": 10.0, "productive": 86.0, "saving": 4.0, "stopping": 6.0}
    second = Told(here, run)
    assert second.row.number == 2
    second.say("program_started", restored_step=40)
    second.say("attached")
    second.say("training")
    second.after(100).step(140)
    second.end("finished", last_step=140)
    assert spent(here, 2) == {"redone": 50.0, "productive": 50.0}
    row = here.attempt(run.id)
    assert (row.loop_at, row.committed_at, row.stopping_at) == (row.started_at, None, None)
    (saved,) = [line for line in lines(here) if line.kind == "saving"]
    assert (saved.project, saved.run_name, saved.number, saved.phase) == ("lab", "x", run.number, "main")
    assert (saved.pool, saved.market, saved.slots, saved.price) == ("local", "on_demand", 1, 3600.0)


def test_the_first_times_count_and_later_ones_do_not_move_them(here: World) -> None:
    told = Told(here, here.submit(TRAIN))
    told.say("program_started")
    marks = []
    for _ in range(2):
        told.after(1).say("training")
        told.after(1).say("checkpoint", id=f"c{told.here.now}", step=1, path="/c/1", at=here.now)
        told.after(1).say("order_seen", seq=1, stop=0)
        told.say("notice")
        told.after(1).say("rung", rung="flag")
        row = phases_row(here, told)
        marks.append((row.loop_at, row.committed_at, row.stopping_at))
    started = told.row.started_at
    assert marks == [(started + 1, started + 2, started + 4)] * 2
    told.end("killed")


def phases_row(here: World, told: Told) -> Any:
    with here.context.database.read() as connection:
        return phases.attempt(connection, told.row.id)


def test_a_task_is_productive_from_its_start_and_so_is_a_program_without_the_sdk(here: World) -> None:
    for text in (TASK, TRAIN):
        told = Told(here, here.submit(text))
        told.after(5).say("program_started")
        told.after(30).end("finished")
    assert [(line.kind, line.credits) for line in lines(here)] == [("starting", 5.0), ("productive", 30.0)] * 2


def test_from_the_request_to_the_proven_end_it_is_stopping(here: World) -> None:
    run = here.submit(TRAIN)
    told = Told(here, run)
    told.say("program_started")
    told.say("attached")
    told.say("training")
    told.after(20).step(20)
    verbs.kill(here.context, run.id, KillBody(), ME)
    told.after(3).say("order_seen", seq=1, stop=3)
    told.after(4).end("killed", last_step=20)
    assert spent(here, 1) == {"productive": 20.0, "stopping": 7.0}


def test_what_never_ran_costs_nothing_and_the_queue_is_free(here: World) -> None:
    waits = Told(here, here.submit(TRAIN))
    with here.context.database.write() as connection:
        phases.update_attempt(connection, waits.row.id, queued_at=here.now - 50)
    waits.after(9).say("ended", reason="storage_away")
    (line,) = lines(here)
    assert (line.kind, line.until - line.since, line.credits) == ("queued", 50.0, 0.0)


def test_a_program_that_ran_is_paid_for_also_if_its_checkpoint_could_not_be_had(here: World) -> None:
    told = Told(here, here.submit(TRAIN))
    told.after(2).say("program_started")  # its runner's link still has the row from before
    told.after(60).end("storage_away")
    assert spent(here, 1) == {"starting": 62.0}


def test_the_ledger_of_random_histories_is_what_the_attempts_cost(tmp_path: Path) -> None:
    dice = random.Random(6)
    kinds = ("program_started", "attached", "training", "checkpoint", "order_seen", "rung", "notice")
    ends = ("finished", "preempted", "code_raised", "killed", "paused", "runner_lost", "storage_away", "nonsense")
    with world(tmp_path / "w") as here:
        for _ in range(20):
            told = Told(here, here.submit(f"name: x\ncommand: 'true'\nslots: {dice.choice((1, 2))}\nretries: 3\n"))
            for _ in range(dice.randrange(8)):
                told.after(dice.choice((0, 0.001, 10, 7200, 90_000)))
                at = dice.choice((here.now, here.now + 1e5, 0.0, -5.0, 1e300))
                data = {"id": str(dice.random()), "step": 1, "path": "/c", "block_seconds": dice.choice((1, 1e9, None))}
                body = pack_record(RunnerEvent(at, dice.choice(kinds), "", {**data, "stop": 2, "final": True}))
                ingest.store(here.context, told.row, [Data("runner", told.offset, body)])
                told.offset += len(body)
                if dice.random() < 0.5:
                    told.step(dice.randrange(100), progress_at=dice.choice((at, here.now)), loop_started_at=at)
            gone = dice.choice((here.now, 0, 1e9))
            told.end(dice.choice(ends), last_step=dice.choice((None, 5, 50, -3)), gone_at=gone)
            if here.run_state(told.row.run_id) not in RUN_ENDED:
                verbs.kill(here.context, told.row.run_id, KillBody(), ME)
                here.settle()
            if here.attempt(told.row.run_id).ended_at is None:
                Told(here, RunView.model_construct(id=told.row.run_id)).after(5).end("killed")
        with here.context.database.read() as connection:
            runs = {line.run_id for line in lines(here)}
            made = [row for rows in phases.attempts_of_runs(connection, runs).values() for row in rows]
        assert all(row.ended_at is not None for row in made)
        whole = credits.used(views.charges(made), here.now)
        assert whole > 1e5
        written = lines(here)
        assert sum(line.credits for line in written) == pytest.approx(whole, rel=1e-12)
        by_attempt = {row.id: credits.used(views.charges([row]), 0.0) for row in made}
        for attempt_id, cost in by_attempt.items():
            own = [line for line in written if line.attempt_id == attempt_id]
            assert sum(line.credits for line in own) == pytest.approx(cost, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("said", ["abc", True, [1], None])
def test_a_save_that_took_no_time_that_anybody_could_tell_does_not_keep_an_attempt_from_its_end(
    both: World, said: Any
) -> None:
    told = Told(both, both.submit(TRAIN))
    told.say("program_started")
    told.after(10).say("checkpoint", id="c", step=1, path="/c", block_seconds=said, upload_seconds=said)
    told.after(20).end("finished")
    assert sum(spent(both, 1).values()) == 30.0


def test_a_line_has_the_market_of_its_start_as_it_has_its_price(here: World) -> None:
    told = Told(here, here.submit(TRAIN))
    with here.context.database.write() as connection:
        pools.put(connection, "local", at=here.now, engine="local", slots=2, price=9999.0, market="spot")
    told.after(30).end("finished")
    assert {(line.market, line.price) for line in lines(here)} == {("on_demand", 3600.0)}


def test_a_long_history_is_read_once(here: World) -> None:
    plans: list[str] = []

    def see(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "sum(" in statement:
            found = connection.connection.cursor().execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            plans.extend(row[3] for row in found)

    with here.context.database.read() as connection:
        sa.event.listen(connection, "before_cursor_execute", see)
        Spendings().since(connection, "lab", 0.0)
    assert [plan for plan in plans if "rowid>? AND rowid<?" in plan] == plans
    assert plans


def test_what_was_spent_outlives_the_run_and_what_ended_before_the_ledger_is_written_down(both: World) -> None:
    here = both
    run = here.submit(TRAIN)
    told = Told(here, run)
    told.say("program_started")
    told.after(30).end("finished")
    with here.context.database.write() as connection:
        connection.execute(ledger.delete())
    assert accounting.catch_up(here.context) == 1
    assert accounting.catch_up(here.context) == 0
    verbs.delete(here.context, run.id, ME)
    assert spent(here, 1) == {"productive": 30.0}
