"""Requests on the way: stored before they are answered, carried whole, applied once, copied by a continue."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.channel.layout import Kind, Loop
from whistlestop.domain.errors import BadRequest, NotATrainPhase, NotFound, PhaseEnded, Refused, RunEnded
from whistlestop.engines.base import JobState
from whistlestop.server.services import checkpoint_views, ingest, launches, steering, submit, verbs, views
from whistlestop.server.store import checkpoints, events, phases, runs
from whistlestop.testing.world import ME, World, ended, world
from whistlestop.wire.api import (
    ContinueBody,
    ExtendBody,
    KillBody,
    ParamsBody,
    PauseBody,
    PhaseView,
    RerunBody,
    ResumeBody,
    RunView,
    SaveBody,
    StopBody,
)
from whistlestop.wire.frames import Change, Data, Order, Progress, RunnerEvent, pack_record

PIPELINE = """
name: pipe
phases:
  - {name: prepare, kind: task, command: 'true'}
  - {name: first, kind: train, command: 'true', needs: [prepare]}
  - {name: second, kind: train, command: 'true', needs: [first]}
"""


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
    """One attempt, as its runner and its program speak for it."""

    def __init__(self, here: World, run: RunView) -> None:
        self.here, self.run = here, run
        here.settle()
        self.attempt = here.attempt(run.id)
        self._offsets: dict[str, int] = {}
        self.say("program_started")
        here.settle()

    def _send(self, stream: str, data: bytes) -> None:
        offset = self._offsets.get(stream, 0)
        ingest.store(self.here.context, self.attempt, [Data(stream, offset, data)])
        self._offsets[stream] = offset + len(data)

    def say(self, kind: str, **data: Any) -> None:
        self._send("runner", pack_record(RunnerEvent(self.here.now, kind, kind, data)))

    def tell(self, **event: Any) -> None:
        body = json.dumps(event).encode()
        body += b" " * (-len(body) % 8)
        head = (len(body) + 8).to_bytes(4, "little") + int(Kind.EVENT).to_bytes(2, "little") + b"\0\0"
        self._send("events-0", head + body)

    def at(self, step: int, total: int = 1000, stage: str = "training", **more: Any) -> None:
        progress = Progress(at=self.here.now, stage=stage, step=step, total=total, **more)
        self.here.context.hub.progress[self.attempt.id] = progress

    def declare(self, **params: Any) -> None:
        empty = {"low": None, "high": None}
        whole = {name: {**empty, **said, "default": said["value"]} for name, said in params.items()}
        self.tell(kind="params", params=whole)

    def saved(self, step: int, at: float | None = None, **more: Any) -> None:
        at = self.here.now if at is None else at
        self.say(
            "checkpoint", id=f"c-{step}-{self.attempt.id}", step=step, path=f"/c/{self.run.id}/{step}", at=at, **more
        )

    def end(self, reason: str, **data: Any) -> None:
        self._send("runner", ended(reason, **data))
        self.here.engine.says[self.attempt.id] = JobState.ENDED
        self.here.settle()

    @property
    def order(self) -> Order:
        return ingest.order(self.here.context, self.attempt.id)


def phase_of(here: World, run: RunView, name: str = "main") -> PhaseView:
    with here.context.database.read() as connection:
        view = views.run_view(here.context, connection, runs.resolve(connection, run.id))
    return next(phase for phase in view.phases if phase.name == name)


def said(here: World, run: RunView, kind: str) -> list[tuple[str, str]]:
    with here.context.database.read() as connection:
        return [(row.actor, row.text) for row in events.of_run(connection, run.id, limit=5000) if row.kind == kind]


def save(here: World, run: RunView, **body: Any) -> Any:
    return steering.save(here.context, run.id, SaveBody(**body), ME)


def extend(here: World, run: RunView, **body: Any) -> Any:
    return steering.extend(here.context, run.id, ExtendBody(**body), ME)


def put(here: World, run: RunView, phase: str | None = None, key: str | None = None, **params: Any) -> Any:
    return steering.set_params(here.context, run.id, ParamsBody(params=params, phase=phase, key=key), ME)


def test_a_change_is_carried_whole_applied_once_and_told_with_its_actor(here: World) -> None:
    run = here.submit()
    program = Program(here, run)
    program.at(100)
    program.declare(lr={"value": 0.1, "low": 0.0, "high": 1.0})
    assert put(here, run, lr=0.01).changed
    assert extend(here, run, steps=5000).changed
    wanted = [Change(1, "param:lr", 0.01, None, "me"), Change(2, "total", 5000, None, "me")]
    assert program.order.steering == wanted
    assert here.context.hub.order(program.attempt.id) == Order(seq=2, steering=wanted, actor="")
    program.tell(kind="steered", seq=1, step=120, name="param:lr", value=0.01)
    program.tell(kind="steered", seq=1, step=400, name="param:lr", value=0.01)
    assert [(change.seq, change.step) for change in phase_of(here, run).steering] == [(1, 120), (2, None)]
    assert said(here, run, "steered") == [("me", "lr was set to 0.01 at step 120, asked by me")]
    program.tell(kind="steered", seq=2, step=121, name="total", value=5000)
    assert said(here, run, "steered")[1:] == [("me", "the end was moved to step 5000 at step 121, asked by me")]


def test_the_next_attempt_gets_every_change_with_its_step(here: World) -> None:
    run = here.submit("name: x\ncommand: 'true'\nretries: 1\n")
    program = Program(here, run)
    program.at(100)
    extend(here, run, more=500)
    program.tell(kind="steered", seq=1, step=101)
    program.end("code_raised", last_step=120)
    here.now += 600
    here.tick()
    second = Program(here, run)
    assert second.attempt.number == 2
    launch, _ = launches.build(here.context, second.attempt.id, "token", "http://127.0.0.1:1")
    assert launch.steering == [Change(1, "total", 1500, 101, "me")]
    second.tell(kind="steered", seq=1, step=101)
    assert len(said(here, run, "steered")) == 1


def test_what_the_program_refuses_is_told_and_not_asked_again(here: World) -> None:
    run = here.submit()
    program = Program(here, run)
    put(here, run, lr=2.0)
    program.tell(kind="steering_refused", seq=1, text="1.0 at most")
    program.tell(kind="steering_refused", seq=1, text="1.0 at most")
    assert said(here, run, "steering_refused") == [
        ("me", "the program did not take lr = 2.0, asked by me: 1.0 at most")
    ]
    assert phase_of(here, run).steering[0].refused == "1.0 at most"
    assert program.order.steering is None


def test_a_value_that_proves_wrong_at_its_declaration_counts_as_refused(here: World) -> None:
    run = here.submit()
    program = Program(here, run)
    put(here, run, lr=0.5)
    program.tell(kind="steered", seq=1, step=0)
    put(here, run, lr=2.0)
    program.tell(kind="steered", seq=2, step=3)
    program.tell(kind="steering_refused", seq=2, text="lr was not changed: 2.0 is above 1.0")
    program.tell(kind="steering_refused", seq=2, text="lr was not changed: 2.0 is above 1.0")
    assert said(here, run, "steering_refused") == [
        ("me", "the program did not take lr = 2.0, asked by me: lr was not changed: 2.0 is above 1.0")
    ]
    assert [(change.step, bool(change.refused)) for change in phase_of(here, run).steering] == [
        (0, False),
        (None, True),
    ]
    assert program.order.steering == [Change(1, "param:lr", 0.5, 0, "me")], "the wish before it stands again"
    assert not put(here, run, lr=0.5).changed
    assert put(here, run, lr=2.0).changed, "a refused value is not there already"
    program.saved(10)
    child = submit.continue_run(here.context, run.id, ContinueBody(), ME)
    assert [change.seq for change in child.phases[0].steering] == [1]


def test_a_request_that_is_repeated_under_its_key_is_answered_as_the_first(here: World) -> None:
    run = here.submit()
    program = Program(here, run)
    program.at(100)
    first = extend(here, run, more=500, key="one")
    again = extend(here, run, more=500, key="one")
    assert (again.changed, again.text) == (True, first.text)
    assert [change.value for change in phase_of(here, run).steering] == [1500]
    assert len(said(here, run, "extend_requested")) == 1
    assert extend(here, run, more=500, key="two").run.phases[0].steering[-1].value == 2000
    one = put(here, run, key="three", lr=0.5, size=3)
    put(here, run, lr=0.6)
    assert put(here, run, key="three", lr=0.5, size=3).text == one.text
    assert [change.value for change in phase_of(here, run).steering] == [1500, 2000, 0.5, 3, 0.6]
    program.tell(kind="steered", seq=1, step=101)
    program.saved(110)
    program.end("finished", last_step=1000)
    assert extend(here, run, more=500, key="one").text == first.text, "the answer was lost, not the request"
    child = submit.continue_run(here.context, run.id, ContinueBody(), ME)
    Program(here, child).at(120)
    assert extend(here, child, more=500, key="one").changed
    assert len(phase_of(here, child).steering) == 2, "another run's keys are its own"


def test_a_save_is_counted_and_answered_by_the_next_commit(here: World) -> None:
    run = here.submit()
    program = Program(here, run)
    program.saved(10)
    here.now += 1
    assert save(here, run).changed
    assert program.order.checkpoint_now == 1
    program.saved(5, at=here.now - 0.5)  # told late, committed before the request
    assert phase_of(here, run).saves.done == 0
    here.now += 1
    program.saved(20)
    assert phase_of(here, run).saves.model_dump() == {"requested": 1, "done": 1, "step": 20}
    assert program.order.checkpoint_now == 0, "a new attempt would save without reason"
    save(here, run)
    save(here, run)
    assert program.order.checkpoint_now == 3


def test_a_save_is_answered_by_what_its_runner_counted_whatever_its_clock_says(here: World) -> None:
    run = here.submit()
    program = Program(here, run)
    save(here, run)
    program.saved(10, at=here.now + 3600, saves=0)
    assert phase_of(here, run).saves.done == 0, "it was on its way before the request was seen"
    save(here, run)
    program.saved(20, at=here.now - 3600, saves=1)
    assert phase_of(here, run).saves.model_dump() == {"requested": 2, "done": 1, "step": 20}
    assert program.order.checkpoint_now == 2
    program.saved(30, at=here.now - 3600, saves=99)
    assert phase_of(here, run).saves.model_dump() == {"requested": 2, "done": 2, "step": 30}


def test_a_save_that_was_not_made_is_asked_of_the_next_attempt(lite: World) -> None:
    run = lite.submit("name: x\ncommand: 'true'\nretries: 1\n")
    program = Program(lite, run)
    save(lite, run)
    program.end("code_raised", last_step=3)
    lite.now += 600
    lite.tick()
    assert Program(lite, run).order.checkpoint_now == 1


def test_every_request_raises_the_number_of_the_order(lite: World) -> None:
    run = lite.submit()
    program = Program(lite, run)
    program.at(1)
    numbers = [program.order.seq]
    for ask in (lambda: save(lite, run), lambda: extend(lite, run, steps=50), lambda: save(lite, run)):
        ask()
        numbers.append(program.order.seq)
    verbs.stop(lite.context, run.id, StopBody(), ME)
    numbers.append(program.order.seq)
    assert numbers == sorted(set(numbers))


def test_a_phase_that_has_not_begun_takes_changes_and_no_save(lite: World) -> None:
    run = lite.submit(PIPELINE)
    with pytest.raises(Refused, match="several train phases"):
        put(lite, run, lr=0.5)
    done = put(lite, run, phase="second", lr=0.5)
    assert "has not declared lr yet" in done.text
    assert extend(lite, run, phase="second", steps=70).changed
    with pytest.raises(Refused, match="not running"):
        save(lite, run, phase="second")
    with pytest.raises(Refused, match="nobody knows yet how many steps"):
        extend(lite, run, phase="first", more=5)


def test_tasks_and_ended_phases_refuse_all_three(lite: World) -> None:
    run = lite.submit(PIPELINE)
    asks = [
        lambda name: save(lite, run, phase=name),
        lambda name: extend(lite, run, phase=name, steps=5),
        lambda name: put(lite, run, phase=name, lr=1),
    ]
    for ask in asks:
        with pytest.raises(NotATrainPhase):
            ask("prepare")
        with pytest.raises(NotFound) as missing:
            ask("secnd")
        assert missing.value.hint == "did you mean second?"
    Program(lite, run).end("finished")
    Program(lite, run).end("finished")
    for ask in asks:
        with pytest.raises(PhaseEnded) as late:
            ask("first")
        assert "whistle continue" in str(late.value.hint)
    verbs.kill(lite.context, run.id, KillBody(), ME)
    for ask in asks:
        with pytest.raises(RunEnded):
            ask("second")


def test_a_run_without_training_has_nothing_to_steer(lite: World) -> None:
    run = lite.submit("name: x\nkind: task\ncommand: 'true'\n")
    with pytest.raises(NotATrainPhase):
        save(lite, run)


def test_a_phase_that_was_asked_to_stop_is_not_changed_any_more(lite: World) -> None:
    run = lite.submit()
    Program(lite, run).at(10)
    verbs.stop(lite.context, run.id, StopBody(), ME)
    with pytest.raises(Refused, match="was asked to stop"):
        extend(lite, run, steps=2000)
    with pytest.raises(Refused, match="was asked to stop"):
        put(lite, run, lr=2)


def test_an_end_that_has_passed_is_refused_and_the_same_end_is_no_change(lite: World) -> None:
    run = lite.submit()
    Program(lite, run).at(100, total=1000)
    for steps in (99, 100):
        with pytest.raises(Refused, match="is at step 100 already"):
            extend(lite, run, steps=steps)
    assert not extend(lite, run, steps=1000).changed
    assert extend(lite, run, more=500).run.phases[0].steering[-1].value == 1500
    assert extend(lite, run, more=500).run.phases[0].steering[-1].value == 2000
    assert not extend(lite, run, steps=2000).changed
    for body in (ExtendBody(), ExtendBody(steps=3000, more=1)):
        with pytest.raises(BadRequest):
            steering.extend(lite.context, run.id, body, ME)


def test_values_are_judged_by_what_the_program_has_declared(lite: World) -> None:
    run = lite.submit()
    program = Program(lite, run)
    program.at(1)
    program.declare(
        lr={"value": 0.1, "low": 0.001, "high": 1}, augment={"value": True}, mode={"value": "fast"}, size={"value": 3}
    )
    for wrong, words in (
        ({"lr": 2.0}, "at most"),
        ({"lr": 0}, "at least"),
        ({"lr": "high"}, "lr is a number"),
        ({"lr": True}, "is a truth value"),
        ({"augment": 1}, "augment is a truth value"),
        ({"mode": 1.5}, "mode is a text"),
    ):
        with pytest.raises(BadRequest, match=words):
            put(lite, run, **wrong)
    with pytest.raises(NotFound) as unknown:
        put(lite, run, lr=0.5, augmnt=False)
    assert unknown.value.hint == "did you mean augment?"
    with pytest.raises(NotFound) as far:
        put(lite, run, zzz=1)
    assert far.value.hint == "it has declared: augment, lr, mode, size"
    assert phase_of(lite, run).steering == [], "one of them was refused: none may be taken"
    assert put(lite, run, lr=1, augment=False, mode="slow", size=2).changed
    assert not put(lite, run, lr=1, mode="slow").changed
    assert phase_of(lite, run).params["lr"].model_dump() == {"value": 0.1, "default": 0.1, "low": 0.001, "high": 1.0}


def test_a_program_that_trains_and_has_declared_nothing_takes_no_parameter(lite: World) -> None:
    run = lite.submit()
    program = Program(lite, run)
    program.at(0, stage="starting")
    assert "may never do so" in put(lite, run, lr=0.5).text
    program.at(5)
    assert "may never do so" in put(lite, run, lr=0.6).text, "its words come behind its progress"
    program.declare()
    assert phase_of(lite, run).params == {}
    with pytest.raises(NotFound, match="has declared no parameter"):
        put(lite, run, lr=0.7)


def test_what_an_attempt_has_not_declared_yet_is_not_refused_for_what_the_one_before_did(lite: World) -> None:
    run = lite.submit("name: x\ncommand: 'true'\nretries: 1\n")
    program = Program(lite, run)
    program.at(5)
    program.declare(lr={"value": 0.1})
    with pytest.raises(NotFound):
        put(lite, run, size=3)
    program.end("code_raised", last_step=5)
    lite.now += 600
    lite.tick()
    second = Program(lite, run)
    second.at(5, resumed_step=5)
    second.declare()
    assert "has not declared size yet" in put(lite, run, size=3).text, "no step of it is done"
    second.at(6, resumed_step=5)
    with pytest.raises(NotFound) as unknown:
        put(lite, run, sise=3)
    assert unknown.value.hint == "it has declared: lr"


@pytest.mark.parametrize("loop", [Loop.FINISHED, Loop.STOPPED, Loop.LEFT])
def test_behind_its_loop_a_phase_takes_nothing_any_more(lite: World, loop: Loop) -> None:
    run = lite.submit()
    program = Program(lite, run)
    program.at(1000, loop=int(loop))
    for ask in (
        lambda: extend(lite, run, more=500),
        lambda: put(lite, run, lr=0.5),
        lambda: save(lite, run),
    ):
        with pytest.raises(Refused, match="has left its loop") as late:
            ask()
        assert "whistle continue" in str(late.value.hint)
    program.at(1000, loop=int(Loop.INSIDE))
    assert extend(lite, run, more=500).changed


def test_a_change_that_came_too_late_is_told(lite: World) -> None:
    run = lite.submit()
    program = Program(lite, run)
    program.at(999)
    extend(lite, run, steps=2000)
    program.end("finished", last_step=1000)
    assert said(lite, run, "steering_missed") == [
        ("me", "the end = 2000, asked by me, came too late: the phase had ended")
    ]


def test_a_continue_takes_what_was_changed_up_to_its_checkpoint_and_a_rerun_nothing(here: World) -> None:
    run = here.submit()
    program = Program(here, run)
    program.at(10)
    program.declare(lr={"value": 1.0})
    for value, step in ((0.5, 100), (0.25, 200), (0.1, None)):
        done = put(here, run, lr=value)
        if step is not None:
            program.tell(kind="steered", seq=done.run.phases[0].steering[-1].seq, step=step)
    program.saved(150)
    program.saved(200)
    for step, seqs in ((150, [1]), (200, [1, 2])):
        child = submit.continue_run(here.context, run.id, ContinueBody(step=step), ME)
        assert [change.seq for change in child.phases[0].steering] == seqs
        assert child.phases[0].steering[0].actor == "me"
    again = submit.rerun(here.context, run.id, RerunBody(), ME)
    assert again.phases[0].steering == []


def test_a_continue_or_rerun_that_is_repeated_under_its_key_is_the_same_run(here: World) -> None:
    run = here.submit()
    program = Program(here, run)
    program.saved(30)
    first = submit.continue_run(here.context, run.id, ContinueBody(step=30, key="one"), ME)
    again = submit.rerun(here.context, run.id, RerunBody(key="two"), ME)
    with here.context.database.write() as connection:
        checkpoints.remove_all(connection, run.id)
    program.end("finished")
    verbs.delete(here.context, run.id, ME)
    assert submit.continue_run(here.context, run.id, ContinueBody(step=30, key="one"), ME).id == first.id
    assert submit.rerun(here.context, run.id, RerunBody(key="two"), ME).id == again.id
    other = submit.rerun(here.context, again.id, RerunBody(key="three"), ME)
    assert other.id not in (first.id, again.id)


def test_a_checkpoint_is_chosen_by_its_id_where_two_attempts_saved_at_the_same_step(lite: World) -> None:
    run = lite.submit()
    first = Program(lite, run)
    first.say("checkpoint", id="c-first", step=30, path="/c/first", at=lite.now)
    first.say("checkpoint", id="c-second", step=30, path="/c/second", at=lite.now + 1)
    for chosen in ("c-first", "c-second"):
        child = submit.continue_run(lite.context, run.id, ContinueBody(checkpoint=chosen), ME)
        with lite.context.database.read() as connection:
            row = phases.of_runs(connection, [child.id])[child.id][0]
        assert row.restore_from == f"/c/{chosen.removeprefix('c-')}"
    with pytest.raises(Refused, match="no checkpoint c-third"):
        submit.continue_run(lite.context, run.id, ContinueBody(checkpoint="c-third"), ME)
    with pytest.raises(BadRequest, match="either"):
        submit.continue_run(lite.context, run.id, ContinueBody(checkpoint="c-first", step=30), ME)


def test_a_newer_wish_that_was_applied_earlier_is_not_undone_by_an_older_one(lite: World) -> None:
    run = lite.submit()
    program = Program(lite, run)
    program.at(500)
    program.declare(lr={"value": 1.0})
    put(lite, run, lr=0.5)
    program.tell(kind="steered", seq=1, step=450)
    put(lite, run, lr=0.1)  # after a resume from an earlier checkpoint
    program.tell(kind="steered", seq=2, step=420)
    assert program.order.steering == [Change(2, "param:lr", 0.1, 420, "me")]


def test_changes_wait_through_a_pause(lite: World) -> None:
    run = lite.submit()
    program = Program(lite, run)
    program.at(10)
    program.saved(10)
    verbs.pause(lite.context, run.id, PauseBody(), ME)
    program.end("paused", last_step=10, total=1000)
    assert "as soon as it runs" in extend(lite, run, more=5).text
    verbs.resume(lite.context, run.id, ResumeBody(), ME)
    assert Program(lite, run).order.steering == [Change(1, "total", 1005, None, "me")]


def test_nobody_changes_a_phase_without_end(lite: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "MOST_CHANGES", 3)
    run = lite.submit()
    Program(lite, run).at(1)
    for steps in (10, 20, 30):
        extend(lite, run, steps=steps)
    with pytest.raises(Refused, match="3 is the limit"):
        extend(lite, run, steps=40)


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "steered", "seq": "1", "step": 5},
        {"kind": "steered", "seq": 99, "step": 5},
        {"kind": "steered", "seq": 1, "step": -5},
        {"kind": "steered"},
        {"kind": "steering_refused", "seq": None},
        {"kind": "params", "params": {"lr": 5, "x": {"value": [1], "low": "a", "high": True}}},
        {"kind": "params", "params": None},
        {"kind": "epoch"},
    ],
    ids=str,
)
def test_whatever_a_program_says_about_it_the_run_goes_on(here: World, event: dict[str, Any]) -> None:
    run = here.submit()
    program = Program(here, run)
    put(here, run, lr=0.5)
    program.tell(**event)
    view = phase_of(here, run)
    assert view.steering[0].step is None
    assert set(view.params) <= {"x"}
    assert here.attempt(run.id).state == "started"


def test_an_epoch_is_an_event(lite: World) -> None:
    run = lite.submit()
    Program(lite, run).tell(kind="epoch", epoch=3, step=1200)
    assert said(lite, run, "epoch") == [("program", "epoch 3 began at step 1200")]


def test_nothing_resumes_from_an_unhealthy_checkpoint_and_the_last_good_one_is_kept(here: World) -> None:
    run = here.submit()
    program = Program(here, run)
    program.saved(10, healthy=True)
    program.saved(20)
    with here.context.database.read() as connection:
        assert checkpoints.protected(connection, run.id) == []
    program.saved(30, healthy=False)
    with here.context.database.read() as connection:
        newest = checkpoints.newest(connection, run.id, "main")
        assert newest is not None
        assert newest.step == 20
        assert checkpoints.protected(connection, run.id) == [newest.id]
        shown = [checkpoint_views.view(row) for row in checkpoints.of_run(connection, run.id)]
    assert [(view.step, view.healthy) for view in shown] == [(30, False), (20, True), (10, True)]
    child = submit.continue_run(here.context, run.id, ContinueBody(), ME)
    assert child.parent is not None
    assert child.parent.step == 20
    meant = submit.continue_run(here.context, run.id, ContinueBody(step=30), ME)
    assert meant.parent is not None
    assert meant.parent.step == 30


def test_a_run_with_nothing_but_unhealthy_checkpoints_is_continued_only_by_name(lite: World) -> None:
    run = lite.submit()
    Program(lite, run).saved(30, healthy=False)
    with pytest.raises(Refused, match="gone wrong"):
        submit.continue_run(lite.context, run.id, ContinueBody(), ME)
