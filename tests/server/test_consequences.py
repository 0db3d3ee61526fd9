"""What a verb would do, told before it is done: kept, lost, freed, paid, and how long it took the times before."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.domain.errors import BadRequest, NotFound, Refused
from whistlestop.engines.base import JobState
from whistlestop.server.services import consequences, ingest, preview, steering, verbs
from whistlestop.server.store import pools
from whistlestop.testing.world import ME, World, world
from whistlestop.wire.api import BulkBody, ExtendBody, KillBody, PauseBody, ResumeBody, RunView, StopBody
from whistlestop.wire.frames import Data, Progress, RunnerEvent, pack_record
from whistlestop.wire.pages import Consequences

PIPE = """
name: pipe
phases:
  - {name: train, command: 'true', grace: {flag: 60s, interrupt: 1s, terminate: 1s, attach: 0s}}
  - {name: report, kind: task, command: 'true'}
"""


@pytest.fixture(params=["sqlite", "postgres"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with world(tmp_path, url) as made:
        yield made


class Attempt:
    """One attempt, as its runner speaks for it."""

    def __init__(self, here: World, run: RunView) -> None:
        self.here, self.run, self._offset = here, run, 0
        here.settle()
        self.row = here.attempt(run.id)
        self._say(RunnerEvent(here.now, "program_started", "started", {}))
        here.settle()

    def _say(self, event: RunnerEvent) -> None:
        data = pack_record(event)
        ingest.store(self.here.context, self.row, [Data("runner", self._offset, data)])
        self._offset += len(data)

    def at(self, step: int, total: int = 1000, **more: Any) -> None:
        said = Progress(at=self.here.now, stage="training", step=step, total=total, **more)
        self.here.context.hub.progress[self.row.id] = said

    def saved(self, step: int, **more: Any) -> None:
        body = {"id": f"c-{step}-{self.row.id}", "step": step, "path": f"/c/{self.run.id}/{step}", "at": self.here.now}
        self._say(RunnerEvent(self.here.now, "checkpoint", "saved", {**body, "bytes": 2048, **more}))

    def end(self, reason: str, **data: Any) -> None:
        self._say(RunnerEvent(self.here.now, "ended", "it ended", {"reason": reason, **data}))
        self.here.engine.says[self.row.id] = JobState.ENDED
        self.here.context.hub.over(self.row.id)
        self.here.settle()


def look(here: World, run: RunView, verb: Any, phase: str | None = None) -> Consequences:
    return consequences.consequences(here.context, run.id, verb, phase)


def test_a_kill_tells_what_is_lost_since_the_checkpoint_and_who_gets_the_slots(here: World) -> None:
    run = here.submit(PIPE)
    attempt = Attempt(here, run)
    wide = here.submit("name: wide\ncommand: 'true'\nslots: 2\n")
    here.settle()
    attempt.at(100)
    attempt.saved(100)
    here.now += 36
    attempt.at(150, loop_started_at=here.now - 36, progress_at=here.now)
    found = look(here, run, "kill")
    assert found.refused is None
    assert found.checkpoint is not None
    assert (found.checkpoint.step, found.checkpoint.age_s, found.checkpoint.steps_since) == (100, 36.0, 50)
    assert found.lost == ["50 steps of train since the checkpoint at 100", "the phases that have not run: report"]
    assert found.kept[0] == "1 checkpoint, the newest at step 100"
    assert found.frees is not None
    assert (found.frees.slots, found.frees.pool) == (1, "local")
    assert [(each.number, each.slots) for each in found.frees.next] == [(wide.number, 2)]
    assert found.per_hour == 3600.0
    assert found.credits.used == pytest.approx(36.0)
    assert found.credits.saved == pytest.approx(850 * 36 / 150)
    assert found.takes is None, "nothing was measured yet"
    assert found.at_most_s == 30.0


def test_slots_of_a_host_that_is_excluded_go_to_nobody(here: World) -> None:
    hosts = [{"name": "h1", "slots": 1}, {"name": "h2", "slots": 1}]
    with here.context.database.write() as connection:
        pools.put(connection, "local", at=here.now, hosts=hosts)
    first, second = here.submit("name: a\ncommand: 'true'\n"), here.submit("name: b\ncommand: 'true'\n")
    here.settle()
    with here.context.database.write() as connection:
        pools.put_host(connection, "local", "h1", excluded_at=here.now, excluded_by="me")
    waits = here.submit("name: c\ncommand: 'true'\n")
    here.settle()
    on = {here.attempt(run.id).host: run for run in (first, second)}
    kills = [look(here, on[host], "kill").frees for host in ("h1", "h2")]
    assert [[each.number for each in frees.next] for frees in kills if frees is not None] == [[], [waits.number]]


def test_a_stop_keeps_the_result_and_names_the_phases_that_go_on(here: World) -> None:
    run = here.submit(PIPE)
    attempt = Attempt(here, run)
    attempt.at(150)
    found = look(here, run, "stop")
    assert found.phase == "train"
    assert found.kept[0] == "the result of train, as it is at its next step (now 150)"
    assert found.lost == ["nothing but the 850 steps it has left"]
    assert found.goes_on[-1] == "phase report"
    assert found.frees is not None
    assert [each.phase for each in found.frees.next] == ["report"], "its own next phase is first in the queue"
    assert found.at_most_s == 62.0


def test_a_cancel_loses_every_checkpoint_and_a_pause_nothing(here: World) -> None:
    run = here.submit(PIPE)
    attempt = Attempt(here, run)
    attempt.at(150)
    attempt.saved(120)
    gone = look(here, run, "cancel")
    assert gone.lost[:2] == ["1 checkpoint: nothing is left to continue from", "all 150 steps of train"]
    paused = look(here, run, "pause")
    assert (paused.lost, paused.undo) == (["nothing"], "yes: resume")
    assert paused.checkpoint is not None
    assert paused.checkpoint.steps_since == 30, "what a pause from the latest checkpoint would lose"


def test_how_long_it_takes_is_the_median_of_this_phase_first_then_of_the_pool(here: World) -> None:
    for seconds in (2.0, 9.0, 4.0):
        other = here.submit("name: other\ncommand: 'true'\n")
        attempt = Attempt(here, other)
        verbs.kill(here.context, other.id, KillBody(), ME)
        here.now += seconds
        attempt.end("killed")
    run = here.submit(PIPE)
    attempt = Attempt(here, run)
    pool = look(here, run, "kill").takes
    assert pool is not None
    assert (pool.seconds, pool.longest, pool.count, pool.among) == (4.0, 9.0, 3, "pool")
    assert look(here, run, "cancel").takes == pool, "a cancel is a kill"
    assert look(here, run, "pause").takes is None
    verbs.pause(here.context, run.id, PauseBody(), ME)
    here.now += 3
    attempt.end("paused", last_step=10)
    verbs.resume(here.context, run.id, ResumeBody(from_start=True), ME)
    second = Attempt(here, run)
    second.at(5)
    paused = look(here, run, "pause").takes
    assert paused is not None
    assert (paused.seconds, paused.count, paused.among) == (3.0, 1, "phase")
    verbs.stop(here.context, run.id, StopBody(), ME)
    here.now += 7
    second.end("stopped", last_step=20)
    again = here.submit(PIPE)
    Attempt(here, again)
    stopped = look(here, again, "stop").takes
    assert stopped is not None
    assert (stopped.seconds, stopped.count, stopped.among) == (7.0, 1, "phase")


def test_what_would_be_refused_says_so_and_what_to_do(here: World) -> None:
    run = here.submit(PIPE)
    attempt = Attempt(here, run)
    assert look(here, run, "delete").refused == f"run #{run.number} (pipe) is running: kill it first"
    assert "is a task" in (look(here, run, "stop", "report").refused or "")
    with pytest.raises(NotFound, match="has no phase trane"):
        look(here, run, "stop", "trane")
    attempt.end("killed")
    verbs.kill(here.context, run.id, KillBody(), ME)
    here.tick()
    assert "it can't be killed any more" in (look(here, run, "kill").refused or "")
    gone = look(here, run, "delete")
    assert gone.refused is None
    assert gone.undo == "no"


def test_a_bulk_request_is_judged_run_by_run_without_being_done(here: World) -> None:
    first, second = here.submit(PIPE), here.submit("name: task\nkind: task\ncommand: 'true'\n")
    Attempt(here, first)
    seen = preview.preview(here.context, BulkBody(verb="stop", project="default"))
    assert (seen.total, seen.refused) == (2, 1)
    assert [(item.run, item.ok) for item in seen.items] == [(first.id, True), (second.id, False)]
    assert (seen.items[0].text, seen.items[0].phase) == ("stops phase train", "train")
    deleted = preview.preview(here.context, BulkBody(verb="delete", runs=[first.id, "nobody"]))
    assert [item.code for item in deleted.items] == ["run_active", "not_found"]
    assert here.run_state(first.id) == "running", "nothing was done"


def test_a_bulk_stop_is_about_the_phase_that_was_shown_and_no_later_one(here: World) -> None:
    run = here.submit("name: two\nphases:\n  - {name: first, command: 'true'}\n  - {name: second, command: 'true'}\n")
    attempt = Attempt(here, run)
    (shown,) = preview.preview(here.context, BulkBody(verb="stop", runs=[run.id])).items
    assert shown.phase == "first"
    attempt.end("finished")
    Attempt(here, run)
    asked = BulkBody(verb="stop", runs=[run.id], phases={run.id: shown.phase})
    for judged in (preview.preview(here.context, asked).items, verbs.bulk(here.context, asked, ME).items):
        assert [(item.ok, item.code) for item in judged] == [(False, "phase_ended")]
    unknown = BulkBody(verb="stop", runs=[run.id], phases={run.id: "third"})
    assert [item.code for item in verbs.bulk(here.context, unknown, ME).items] == ["not_found"]
    with pytest.raises(BadRequest, match="only a stop"):
        verbs.bulk(here.context, BulkBody(verb="kill", runs=[run.id], phases={run.id: "first"}), ME)
    (plain,) = verbs.bulk(here.context, BulkBody(verb="stop", runs=[run.id]), ME).items
    assert plain.text.startswith("phase second"), "who names no phase means the one that runs"


def test_a_stop_of_a_paused_run_says_that_it_is_paused_and_what_to_do(here: World) -> None:
    run = here.submit(PIPE)
    attempt = Attempt(here, run)
    attempt.at(40)
    verbs.pause(here.context, run.id, PauseBody(), ME)
    attempt.saved(40)
    attempt.end("paused", last_step=40)
    said = verbs.stop(here.context, run.id, StopBody(), ME)
    assert said.changed
    assert said.text == (
        f"run #{run.number} (pipe) is paused and phase train stands at step 40: it ends there with its result as soon "
        f"as the run is resumed; do that with: whistle resume {run.number}"
    )


def test_an_end_before_what_was_reached_is_refused_right_after_a_resume(here: World) -> None:
    run = here.submit(PIPE)
    attempt = Attempt(here, run)
    attempt.at(400)
    attempt.saved(400)
    verbs.pause(here.context, run.id, PauseBody(), ME)
    attempt.end("paused", last_step=400)
    verbs.resume(here.context, run.id, ResumeBody(), ME)
    second = Attempt(here, run)
    for step in (None, 0):
        if step is not None:
            second.at(step)  # restored, and before its first step
        with pytest.raises(Refused, match="is at step 400 already"):
            steering.extend(here.context, run.id, ExtendBody(steps=300), ME)
    assert steering.extend(here.context, run.id, ExtendBody(steps=401), ME).changed
