"""What is found is kept for as long as it holds, told when it comes and when it goes, and guards act upon it once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.blobs.manifest import Checkpoint
from whistlestop.blobs.storage import DAY, Storage
from whistlestop.channel.journal import JournalReader, JournalWriter
from whistlestop.engines.base import JobState
from whistlestop.server.scheduler import watching as watching_module
from whistlestop.server.scheduler.sweeping import Sweeper
from whistlestop.server.scheduler.watching import Watching
from whistlestop.server.services import diagnosing, guarding, ingest, launches, storages, verbs, views
from whistlestop.server.store import checkpoints, events, findings, phases, runs
from whistlestop.testing.checkpoints import write_checkpoint
from whistlestop.testing.wait import until
from whistlestop.testing.world import ME, World, ended, world
from whistlestop.wire.api import PhaseView, RunView
from whistlestop.wire.frames import Data, LogLine, Order, Progress, RunnerEvent, pack_record

NAN = float("nan")


@pytest.fixture(params=["sqlite", "postgres"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with world(tmp_path, url) as made:
        yield made


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[World]:
    """Where the database makes no difference."""
    with world(tmp_path) as made:
        yield made


class Program:
    """One attempt, as its runner and its program speak for it; `suspected`: how often a diagnosis was called for."""

    def __init__(self, here: World, run: RunView, resumed: int | None = None) -> None:
        self.here, self.run, self.suspected = here, run, 0
        here.context.hub.connect_diagnosis(self._suspect)
        here.settle()
        self.attempt = here.attempt(run.id)
        self._offsets: dict[str, int] = {}
        self._journal = here.settings.data / f"journal-{self.attempt.id}"
        self._journal.mkdir()
        self.say("program_started", restored_step=resumed)
        here.settle()

    def _suspect(self, run_id: str, anew: bool) -> None:
        self.suspected += 1

    def _send(self, stream: str, data: bytes) -> None:
        offset = self._offsets.get(stream, 0)
        ingest.store(self.here.context, self.attempt, [Data(stream, offset, data)])
        self._offsets[stream] = offset + len(data)

    def say(self, kind: str, **data: Any) -> None:
        self._send("runner", pack_record(RunnerEvent(self.here.now, kind, kind, data)))

    def log(self, step: int, rank: int = 0, **values: float) -> None:
        stream = f"metrics-{rank}"
        writer = JournalWriter(self._journal, f"{stream}.{step}")
        writer.points(step, self.here.now, values)
        writer.close()
        reader = JournalReader(self._journal, f"{stream}.{step}")
        self._send(stream, reader.read(0))
        reader.close()
        self.here.context.hub.progress[self.attempt.id] = Progress(
            at=self.here.now, stage="training", step=step, total=1000
        )

    def print(self, *lines: str) -> None:
        self._send("logs", b"".join(pack_record(LogLine(self.here.now, "err", 0, line)) for line in lines))

    def saved(self, step: int, **more: Any) -> None:
        path = f"/c/{self.run.id}/{step}"
        self.say("checkpoint", id=f"c-{step}-{self.attempt.id}", step=step, path=path, at=self.here.now, **more)

    def end(self, reason: str, **data: Any) -> None:
        self._send("runner", ended(reason, **data))
        self.here.engine.says[self.attempt.id] = JobState.ENDED
        self.here.settle()

    @property
    def order(self) -> Order:
        return ingest.order(self.here.context, self.attempt.id)


def submit(here: World, *guards: str, retries: int = 0) -> RunView:
    lines = "".join(f"- {{{guard}}}\n" for guard in guards)
    return here.submit(f"name: x\ncommand: 'true'\nretries: {retries}\n" + (f"guards:\n{lines}" if guards else ""))


def look(here: World, run: RunView) -> None:
    diagnosing.look(here.context, run.id)
    here.settle()


def shown(here: World, run: RunView) -> tuple[RunView, PhaseView]:
    with here.context.database.read() as connection:
        view = views.run_view(here.context, connection, runs.resolve(connection, run.id))
    return view, view.phases[0]


def told(here: World, run: RunView, *kinds: str) -> list[tuple[str, dict[str, Any]]]:
    with here.context.database.read() as connection:
        found = events.of_run(connection, run.id, limit=5000, kinds=kinds)
        return [(row.kind, row.data) for row in found]


def test_a_value_that_is_not_finite_calls_for_a_look_and_is_kept_and_told_once(here: World) -> None:
    run = submit(here)
    program = Program(here, run)
    before = program.suspected
    program.log(1, loss=0.5)
    assert program.suspected == before
    program.log(2, rank=1, loss=NAN)
    assert program.suspected == before + 1
    for _ in range(3):
        here.now += 15
        look(here, run)
    _, phase = shown(here, run)
    (finding,) = phase.findings
    assert (finding.cause, finding.weight, finding.step, finding.rank) == ("non_finite", "fatal", 2, 1)
    assert finding.do
    (only,) = told(here, run, "finding")
    assert only[1] == {
        "cause": "non_finite", "weight": "fatal", "confidence": finding.confidence, "metric": "loss", "step": 2,
        "rank": 1,
    }  # fmt: skip
    assert told(here, run, "finding_over", "guard") == []


def test_a_system_sample_that_is_not_finite_calls_for_nothing(lite: World) -> None:
    run = submit(lite)
    program = Program(lite, run)
    before = program.suspected
    program._offsets.clear()
    writer = JournalWriter(program._journal, "metrics-sys")
    writer.points(1, lite.now, {"gpu": NAN})
    writer.close()
    reader = JournalReader(program._journal, "metrics-sys")
    ingest.store(lite.context, program.attempt, [Data("metrics-sys", 0, reader.read(0))])
    reader.close()
    assert program.suspected == before


def test_a_run_that_hangs_and_goes_again_has_a_finding_that_comes_and_goes(here: World) -> None:
    run = submit(here)
    program = Program(here, run)
    program.log(1, loss=0.5)
    before = program.suspected
    program.say("stuck", rank=0, step=1, seconds=120.0)
    look(here, run)
    assert [each.cause for each in shown(here, run)[1].findings] == ["stuck"]
    here.now += 5
    program.say("going_again", rank=0, step=2)
    look(here, run)
    assert program.suspected == before + 2
    assert shown(here, run)[1].findings == []
    assert [kind for kind, _ in told(here, run, "finding", "finding_over")] == ["finding", "finding_over"]


def test_what_an_earlier_attempt_came_to_is_over_when_the_next_one_runs(here: World) -> None:
    run = submit(here, retries=1)
    program = Program(here, run)
    program.saved(5)
    program.log(9, loss=NAN)
    program.end("code_raised", exit_code=1)
    look(here, run)
    assert "non_finite" in [each.cause for each in shown(here, run)[1].findings]
    here.now += 60
    program = Program(here, run, resumed=5)
    program.log(6, loss=0.5)
    look(here, run)
    assert shown(here, run)[1].findings == []
    assert [data["cause"] for _, data in told(here, run, "finding_over")] == ["non_finite"]
    program.log(9, loss=NAN)
    look(here, run)
    (again,) = shown(here, run)[1].findings
    assert again.attempt == program.attempt.number


def test_an_end_for_lack_of_memory_fails_without_a_retry_where_a_guard_says_so(here: World) -> None:
    run = submit(here, "when: oom, do: fail", retries=3)
    program = Program(here, run)
    program.end("out_of_memory", signal=9)
    assert here.run_state(run.id) == "running", "it is held until its guards were asked"
    here.tick()
    assert len(here.engine.launched) == 1
    look(here, run)
    view, phase = shown(here, run)
    assert (view.status, len(phase.attempts)) == ("failed", 1)
    assert view.cause == "the host ran out of memory"
    assert "guard 1" in (view.reason or "")
    assert [data["do"] for _, data in told(here, run, "guard")] == ["fail"]


def test_without_guards_nothing_waits_for_the_diagnosis(lite: World) -> None:
    run = submit(lite, retries=3)
    Program(lite, run).end("out_of_memory", signal=9)
    assert lite.run_state(run.id) == "queued"
    look(lite, run)
    with lite.context.database.read() as connection:
        assert findings.unjudged(connection) == []


def test_an_end_that_no_guard_is_for_is_retried_as_ever(here: World) -> None:
    run = submit(here, "when: oom, do: fail", retries=1)
    program = Program(here, run)
    program.print("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'nonsense'")
    program.end("code_raised", exit_code=1)
    look(here, run)
    assert here.run_state(run.id) == "queued"
    assert told(here, run, "guard") == []
    here.now += 60
    Program(here, run).end("code_raised", exit_code=1)
    look(here, run)
    view, phase = shown(here, run)
    assert (view.status, phase.attempts[-1].reason) == ("failed", "code_raised")


def test_a_run_that_cannot_be_judged_is_not_held(lite: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = submit(lite, "when: oom, do: fail", retries=1)
    watching = Watching(lite.context)
    lite.context.hub.connect_diagnosis(watching.suspect)
    program = Program(lite, run)
    program.end("out_of_memory", signal=9)

    def broken(*given: object) -> None:
        raise RuntimeError("no evidence today")

    monkeypatch.setattr(diagnosing, "gather", broken)
    monkeypatch.setattr(watching_module, "TICK", 0.02)
    lite.context.hub.connect_diagnosis(lambda run_id, anew: None)
    watching.start()
    try:
        until(lambda: lite.run_state(run.id) == "running" and not unjudged(lite), within=30, what="it to be let go")
    finally:
        watching.stop()
    lite.tick()
    assert lite.run_state(run.id) == "queued"


def unjudged(here: World) -> list[str]:
    with here.context.database.read() as connection:
        return findings.unjudged(connection)


def test_of_the_ends_that_nobody_has_looked_at_those_come_first_that_are_held(here: World) -> None:
    ended = []
    for guards in ((), ("when: oom, do: fail",), ()):
        run = submit(here, *guards)
        Program(here, run).end("code_raised", exit_code=1)
        ended.append(run.id)
    assert unjudged(here)[0] == ended[1]
    assert sorted(unjudged(here)) == sorted(ended)


def test_the_runner_hears_at_once_which_checkpoint_is_the_last_good_one(here: World) -> None:
    """Else its retention, which counts those that were passed over, would remove it in the seconds that are left."""
    run = submit(here, "when: non_finite, do: stop")
    program = Program(here, run)
    for step in (4, 8):
        program.saved(step)
    program.log(8, loss=0.5)
    program.log(9, loss=NAN)
    program.saved(12)
    look(here, run)
    order = here.context.hub.order(program.attempt.id)
    assert order is not None
    assert (order.stop, order.protected) == (1, [f"c-8-{program.attempt.id}"])


class Late:
    """A NaN at step 9 that is found when all that is kept, 12 and 16, is from behind it; 4 is in the trash."""

    def __init__(self, here: World, guard: str) -> None:
        self.here, self.run = here, submit(here, guard)
        self.program = Program(here, self.run)
        with here.context.database.read() as connection:
            self.storage: Storage = storages.of_run(here.settings, runs.get(connection, self.run.id))
        self.good = self._saved(4)
        self.storage.discard(self.good, here.now)
        self.program.say("checkpoints_removed", ids=[self.good.id], until=here.now + DAY)
        for step in range(9):
            self.program.log(step, loss=0.5)
        self.program.log(9, loss=NAN)
        for step in (12, 16):
            self._saved(step)

    def _saved(self, step: int) -> Checkpoint:
        attempt = self.program.attempt
        made = write_checkpoint(self.storage, "main", step, attempt.number, attempt.id, {"parts/x": b"x"})
        path = self.storage.where(made)
        self.program.say("checkpoint", id=made.id, step=step, path=path, at=self.here.now)
        return made

    def found(self) -> tuple[str, dict[str, Any]]:
        """The words and the data of what the guard has done, once."""
        for _ in range(2):
            look(self.here, self.run)
        with self.here.context.database.read() as connection:
            (event,) = events.of_run(connection, self.run.id, kinds=["guard"])
        return event.text, event.data

    def kept(self) -> list[int]:
        return [each.step for each in self.storage.list("main")]

    def skips(self) -> list[list[int]]:
        with self.here.context.database.read() as connection:
            (row,) = phases.of_runs(connection, [self.run.id])[self.run.id]
            return list(row.skips)


def test_where_all_that_is_kept_is_spoilt_the_newest_good_one_comes_back_from_the_trash(here: World) -> None:
    late = Late(here, "when: non_finite, do: roll_back")
    text, data = late.found()
    assert "goes back to the checkpoint of step 4, without the data of batches 4 to 9" in text
    assert (data["to"], data["skip"], late.skips()) == (4, [[4, 10]], [[4, 10]])
    assert late.kept() == [16, 12, 4]
    assert [data["step"] for _, data in told(here, late.run, "checkpoint_restored")] == [4]
    order = here.context.hub.order(late.program.attempt.id)
    assert order is not None
    assert (order.protected, order.preempt_deadline) == ([late.good.id], here.now)
    late.program.end("preempted")
    with here.context.database.read() as connection:
        newest = checkpoints.newest(connection, late.run.id, "main")
    assert newest is not None
    assert newest.step == 4


def test_a_guard_in_dry_mode_has_nothing_back_and_says_where_it_would_have_gone(lite: World) -> None:
    late = Late(lite, "when: non_finite, do: roll_back, dry: true")
    assert (
        "in dry mode, or else: attempt 1 ends, and the next one goes back to the checkpoint of step 4"
        in (late.found()[0])
    )
    assert (late.kept(), late.skips()) == ([16, 12], [])


def test_what_cannot_be_had_back_is_said_and_no_data_are_passed_over_for_it(lite: World) -> None:
    late = Late(lite, "when: non_finite, do: roll_back")
    late.storage.purge("main", lite.now + 1)
    text, data = late.found()
    assert "no checkpoint from before step 9 can be used" in text
    assert "beginning" not in text
    assert (data["to"], data["skip"], late.skips()) == (None, [], [])
    late.program.end("preempted")
    launch, _ = launches.build(lite.context, lite.attempt(late.run.id).id, "token", "http://127.0.0.1:1")
    assert (launch.must_restore, launch.skip) == (True, [])


def test_a_storage_that_is_away_holds_no_guard_up_and_what_it_needs_comes_back_later(lite: World) -> None:
    late = Late(lite, "when: non_finite, do: kill")
    place = lite.settings.checkpoints(late.run.id)
    place.rename(place.with_name("away"))
    assert "the run is killed" in late.found()[0]
    place.with_name("away").rename(place)
    assert late.kept() == [16, 12]
    Sweeper(lite.context).sweep()
    assert late.kept() == [16, 12, 4]


def test_a_roll_back_passes_over_what_was_saved_since_and_its_data_also_if_it_is_saved_later(here: World) -> None:
    run = submit(here, "when: non_finite, do: roll_back, times: 2")
    program = Program(here, run)
    for step in (4, 8):
        program.saved(step)
    for step in range(9):
        program.log(step, loss=0.5)
    program.log(9, loss=NAN)
    program.saved(12)
    look(here, run)
    assert program.order.preempt_deadline == here.now, "at once: there is nothing worth saving"
    program.saved(16)  # it was on its way
    with here.context.database.read() as connection:
        rows = checkpoints.of_run(connection, run.id)
        assert [(row.step, row.healthy) for row in rows] == [(16, False), (12, False), (8, True), (4, True)]
    look(here, run)
    program.end("preempted")
    (act,) = told(here, run, "guard")
    assert (act[1]["to"], act[1]["skip"]) == (8, [[8, 10]])
    view, phase = shown(here, run)
    assert (view.status, phase.attempts[0].reason, phase.attempts[0].status) == ("starting", "guarded", "aborted")
    launch, _ = launches.build(here.context, here.attempt(run.id).id, "token", "http://127.0.0.1:1")
    assert (launch.skip, launch.passed_over) == ([[8, 10]], [[1, 9]])

    # The second time it goes wrong at another batch; then it may not roll back any more.
    program = Program(here, run, resumed=8)
    program.log(8, loss=0.5)
    program.log(9, loss=NAN)  # the batch that step 11 would have had
    look(here, run)
    program.end("preempted")
    with here.context.database.read() as connection:
        (row,) = phases.of_runs(connection, [run.id])[run.id]
        assert row.skips == [[8, 12]]
    program = Program(here, run, resumed=8)
    program.log(8, loss=NAN)
    look(here, run)
    assert (program.order.stop, program.order.reason) == (1, "non_finite_metric")
    program.saved(9)
    program.end("stopped")
    view, phase = shown(here, run)
    assert view.status == "completed"
    (decisive,) = [each for each in phase.stop_reasons if each.decisive]
    assert decisive.reason == "non_finite_metric"
    assert "rolled back 2 times" in decisive.text
    with here.context.database.read() as connection:
        newest = checkpoints.newest(connection, run.id, "main")
        assert newest is not None
        assert newest.step == 4, "from the one at 8 the first value was none"


def test_a_crash_between_the_look_and_its_end_leaves_nothing_and_it_acts_once(
    lite: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = submit(lite, "when: non_finite, do: restart, times: 1")
    program = Program(lite, run)
    program.log(1, loss=NAN)

    def crash(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(guarding.phases, "ask_preempt", crash)
        with pytest.raises(KeyboardInterrupt):
            look(lite, run)
    assert told(lite, run, "guard", "finding") == []
    assert program.order.preempt_deadline == 0
    for _ in range(3):
        look(lite, run)
    assert [data["do"] for _, data in told(lite, run, "guard")] == ["restart"]
    assert program.order.preempt_deadline > 0


def test_nobody_who_is_being_ended_is_ended_once_more(lite: World) -> None:
    run = submit(lite, "when: non_finite, do: restart", "when: non_finite, do: notify")
    program = Program(lite, run)
    verbs.stop(lite.context, run.id, verbs.StopBody(), ME)
    program.log(1, loss=NAN)
    look(lite, run)
    assert [data["do"] for _, data in told(lite, run, "guard")] == ["notify"]


def test_a_run_that_is_deleted_leaves_no_findings(here: World) -> None:
    run = submit(here, "when: non_finite, do: kill")
    program = Program(here, run)
    program.log(1, loss=NAN)
    look(here, run)
    program.end("killed")
    assert shown(here, run)[0].reason == "killed by guard: non_finite"
    assert shown(here, run)[1].findings
    verbs.delete(here.context, run.id, ME)
    look(here, run)
    with here.context.database.read() as connection:
        assert findings.open_of_runs(connection, [run.id]) == {}
        assert findings.acts(connection, f"{run.id}.0") == []
