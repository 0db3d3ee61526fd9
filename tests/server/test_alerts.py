"""From events to the outbox: who is told of what, once per event, through crashes; and what no single event tells."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from whistlestop.domain.errors import BadRequest, NotFound, Refused, SpecInvalid
from whistlestop.domain.estimates import Pace
from whistlestop.server.services import alert_watch, budgets, ingest, receivers, verbs
from whistlestop.server.services.alerting import Follower
from whistlestop.server.store import alerts as store
from whistlestop.server.store import events
from whistlestop.testing.world import ME, World, world
from whistlestop.wire.alerts import DeliveryView, ReceiverBody, ReceiverView
from whistlestop.wire.api import PauseBody, ResumeBody, RunView
from whistlestop.wire.frames import Data, Progress, RunnerEvent, pack_record
from whistlestop.wire.usage import BudgetBody

HOOK = "https://hooks.example.org/secret-part"
LAB = "name: x\nproject: lab\ncommand: 'true'\n"
OTHER = "name: y\nproject: other\ncommand: 'true'\n"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def add(here: World, name: str = "ops", **more: Any) -> ReceiverView:
    return receivers.add(here.context, ReceiverBody(name=name, address=HOOK, **more), ME)


def follow(here: World) -> list[DeliveryView]:
    """By one that has just been started, as after a crash."""
    follower = Follower(here.context, lambda: "http://here")
    while follower.follow():
        pass
    return list(reversed(receivers.deliveries(here.context)))


def told(here: World) -> list[tuple[str, str]]:
    return [(each.receiver, each.kind) for each in follow(here)]


def tell(here: World, run: RunView, kind: str, **data: Any) -> None:
    with here.context.database.write() as connection:
        events.add(connection, run.id, kind, f"it is {kind}", at=here.now, phase="main", attempt=1, data=data)


def say(here: World, run: RunView, kind: str, **data: Any) -> None:
    row = here.attempt(run.id)
    offset = ingest.offsets(here.context, row.id).get("runner", 0)
    body = pack_record(RunnerEvent(here.now, kind, kind, data))
    ingest.store(here.context, row, [Data("runner", offset, body)])
    here.settle()


def lose(here: World, run: RunView) -> None:
    here.settle()
    say(here, run, "ended", reason="preempted", last_step=10, gone_at=here.now)
    here.now += 1
    here.settle()


# --- who is told ---------------------------------------------------------------------------------------------------


def test_a_run_that_fails_is_told_to_its_projects_receivers_and_to_those_of_all(here: World) -> None:
    add(here, "lab", project="lab")
    add(here, "all")
    add(here, "elsewhere", project="other")
    add(here, "quiet", on=["done"])
    run = here.submit(LAB)
    here.settle()
    say(here, run, "ended", reason="code_raised")
    assert here.run_state(run.id) == "failed"
    assert told(here) == [("all", "failed"), ("lab", "failed")]
    first = follow(here)[0]
    assert (first.run, first.state, first.tries) == (run.id, "waiting", 0)
    assert first.title == f"Run #{run.number} lab/x has failed"


def test_a_run_names_receivers_of_its_own_and_what_they_are_told(here: World) -> None:
    add(here, "me", only_named=True)
    add(here, "team", on=["failed"])
    run = here.submit(LAB + "alerts: [{to: me, on: [done]}, {to: team, on: [done, failed]}]\n")
    unnamed = here.submit(LAB)
    here.settle()
    for each in (run, unnamed):
        say(here, each, "ended", reason="finished")
    assert sorted(told(here)) == [("me", "done"), ("team", "done")]
    assert {each.run for each in follow(here)} == {run.id}


@pytest.mark.parametrize(
    ("alerts", "words"), [("nobody", "no receiver nobody"), ("lab", "is of project lab, and this run of other")]
)
def test_a_run_that_names_a_receiver_it_cant_have_is_refused(here: World, alerts: str, words: str) -> None:
    add(here, "lab", project="lab")
    with pytest.raises(SpecInvalid, match=words):
        here.submit(OTHER + f"alerts: [{alerts}]\n")


def test_nobody_hears_of_what_happened_before_they_were_added(here: World) -> None:
    run = here.submit(LAB)
    tell(here, run, "stuck")
    add(here)
    tell(here, run, "guard", do="kill")
    assert told(here) == [("ops", "guard")]


def test_attention_is_told_and_a_pause_is_not(here: World) -> None:
    add(here)
    run = here.submit(LAB)
    here.settle()
    say(here, run, "ended", reason="checkpoint_unusable")
    assert here.run_state(run.id) == "waiting"
    assert told(here) == [("ops", "attention")]


# --- once, through crashes -------------------------------------------------------------------------------------------


def test_each_event_is_told_once_however_often_the_follower_dies(here: World) -> None:
    add(here)
    run = here.submit(LAB)
    for number in range(7):
        tell(here, run, "guard", number=number)
        follow(here)
        follow(here)
    found = follow(here)
    assert [each.kind for each in found] == ["guard"] * 7
    assert len({each.event for each in found}) == len({each.id for each in found}) == 7


def test_a_crash_between_the_alerts_and_the_cursor_leaves_neither(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add(here)
    run = here.submit(LAB)
    tell(here, run, "guard")
    with monkeypatch.context() as patch:
        patch.setattr(store, "move_cursor", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Follower(here.context, lambda: "").follow()
    assert receivers.deliveries(here.context) == []
    assert told(here) == [("ops", "guard")]


def test_more_events_than_fit_into_one_transaction_are_told_in_their_order(here: World) -> None:
    add(here)
    run = here.submit(LAB)
    with here.context.database.write() as connection:
        row = {"run_id": run.id, "at": here.now, "phase": None, "attempt": None}
        events.add_all(connection, [{**row, "kind": "guard", "text": str(at), "data": {}} for at in range(450)])
    follow(here)
    found = receivers.deliveries(here.context, limit=1000)
    assert [each.event for each in found] == sorted((each.event for each in found), reverse=True)
    assert len(found) == 450


def test_what_the_runner_and_a_finding_say_of_one_hang_is_told_once(here: World) -> None:
    add(here)
    run = here.submit(LAB)
    tell(here, run, "stuck")
    tell(here, run, "finding", cause="stuck", weight="fatal")
    tell(here, run, "finding", cause="overfitting", weight="bad")
    assert told(here) == [("ops", "stuck"), ("ops", "finding")]
    tell(here, run, "going_again")
    tell(here, run, "finding_over", cause="stuck")
    tell(here, run, "finding", cause="stuck", weight="fatal")
    tell(here, run, "stuck")
    assert told(here) == [("ops", "stuck"), ("ops", "finding"), ("ops", "stuck")]


def test_a_run_that_is_preempted_three_times_in_an_hour_is_told_of_once(here: World) -> None:
    add(here, on=["preempted_often"])
    run = here.submit(LAB)
    for _ in range(5):
        lose(here, run)
        here.now += 60
        follow(here)
    [alert] = follow(here)
    assert alert.kind == "preempted_often"
    here.now += 7200
    for _ in range(3):
        lose(here, run)
        here.now += 60
    assert [each.kind for each in follow(here)] == ["preempted_often"] * 2


# --- what no event tells ---------------------------------------------------------------------------------------------


def trains(here: World, every: str = "1 minute") -> RunView:
    run = here.submit(LAB + f"checkpoint: {{every: {every}}}\n" if every else LAB)
    here.settle()
    for kind in ("program_started", "training"):
        say(here, run, kind)
    return run


def at_step(here: World, run: RunView, step: int, stage: str = "training") -> None:
    here.context.hub.progress[here.attempt(run.id).id] = Progress(here.now, stage, step=step)


def commit(here: World, run: RunView, step: int, **more: Any) -> None:
    number = here.attempt(run.id).number
    say(here, run, "checkpoint", id=f"c-{run.id}-{step}", step=step, path=f"/c/{step}", attempt=number, at=here.now,
        upload_seconds=5.0, **more)  # fmt: skip


def watched(here: World) -> list[str]:
    alert_watch.watch(here.context)
    return [kind for _, kind in told(here)]


def test_a_checkpoint_that_is_two_intervals_late_is_told_of_once_until_it_saves_again(here: World) -> None:
    add(here)
    run = trains(here)
    for step in (60, 120):
        here.now += 60
        commit(here, run, step)
        at_step(here, run, step + 1)
        assert watched(here) == []
    here.now += 124
    assert watched(here) == []
    here.now += 2
    assert watched(here) == ["checkpoint_too_old"]
    here.now += 600
    assert watched(here) == ["checkpoint_too_old"]
    commit(here, run, 180)
    at_step(here, run, 181)
    assert watched(here) == ["checkpoint_too_old"]
    here.now += 3600
    assert watched(here) == ["checkpoint_too_old"] * 2


def test_an_evaluation_or_a_run_that_makes_no_step_is_not_late(here: World) -> None:
    add(here)
    run = trains(here)
    here.now += 60
    commit(here, run, 60)
    here.now += 3600
    at_step(here, run, 90, stage="evaluating")
    assert watched(here) == []
    at_step(here, run, 60)
    assert watched(here) == []
    at_step(here, run, 90)
    assert watched(here) == ["checkpoint_too_old"]


def test_a_run_without_a_cadence_is_late_only_if_it_has_saved_in_a_rhythm(here: World) -> None:
    add(here)
    run = trains(here, every="")
    here.now += 600
    commit(here, run, 10, why="on request")
    at_step(here, run, 20)
    here.now += 86400
    assert watched(here) == []


def test_how_late_is_too_late() -> None:
    attempt = SimpleNamespace(number=2, loop_at=100.0)
    saved = [SimpleNamespace(attempt=2, committed_at=at, upload_seconds=7.0, why="") for at in (400.0, 300.0, 200.0)]
    steps = Pace()
    for step in range(0, 101, 5):
        steps = steps.told(step, 100.0 + 2.0 * step)
    allowed = alert_watch.allowed
    assert allowed(("10 minutes",), attempt, [], None, 0) == 1200.0
    assert allowed(("10 minutes", "1 hour"), attempt, [], None, 0) == 1200.0
    assert allowed(("100 steps",), attempt, [], steps, 0) == pytest.approx(400.0, rel=0.02)
    assert allowed(("2 epochs",), attempt, [], steps, 50) == pytest.approx(400.0, rel=0.02)
    assert allowed(("100 steps",), attempt, [], None, 0) is None
    assert allowed(("auto",), attempt, [], steps, 0) is None
    assert allowed(("auto",), attempt, saved, steps, 0) == 207.0
    assert allowed(("1 second",), attempt, saved, steps, 0) == 207.0
    assert allowed(("1 second",), attempt, [], steps, 0) == alert_watch.AT_LEAST
    assert allowed((), attempt, saved[:1], steps, 0) is None
    assert allowed((), attempt, saved, steps, 0) == 207.0


def test_eighty_percent_of_a_budget_are_told_once_per_budget(here: World) -> None:
    add(here)
    run = here.submit(LAB + "budget: 100\n")  # a credit is a second of a slot
    budgets.put(here.context, "lab", BudgetBody(credits=1000), ME)
    here.settle()
    here.now += 79
    assert watched(here) == []
    here.now += 2
    assert watched(here) == ["budget_80"]
    assert watched(here) == ["budget_80"]
    budgets.put(here.context, "lab", BudgetBody(credits=100), ME)
    assert watched(here) == ["budget_80"] * 2
    budgets.put(here.context, "lab", BudgetBody(credits=500), ME)
    assert watched(here) == ["budget_80"] * 2
    budgets.put(here.context, "lab", BudgetBody(credits=99), ME)
    assert watched(here) == ["budget_80"] * 3
    with here.context.database.read() as connection:
        said = [row.text for row in events.of_run(connection, run.id, kinds=("budget_80",))]
    assert said[0].startswith(f"run #{run.number} has used 81.00 of its 100.00 credits, 81%")
    assert said[1].startswith("project lab has used 81.00 of its 100.00 credits, 81%")


def test_a_run_that_rests_at_eighty_percent_is_not_told_of_again_when_it_goes_on(here: World) -> None:
    add(here, on=["budget_80"])
    run = here.submit(LAB + "budget: 1000\n")
    here.settle()
    here.now += 810
    assert watched(here) == ["budget_80"]
    for _ in range(2):
        verbs.pause(here.context, run.id, PauseBody(), ME)
        say(here, run, "ended", reason="paused", last_step=10, gone_at=here.now)
        assert here.run_state(run.id) == "waiting"
        assert watched(here) == ["budget_80"]
        verbs.resume(here.context, run.id, ResumeBody(from_start=True), ME)
        here.now += 1
        here.settle()
        assert watched(here) == ["budget_80"]
    say(here, run, "ended", reason="finished")
    assert watched(here) == ["budget_80"]
    with here.context.database.read() as connection:
        assert store.lasting(connection, "budget_80") == set()


def test_an_evaluation_or_a_restarted_server_does_not_make_a_late_checkpoint_late_again(here: World) -> None:
    add(here)
    run = trains(here)
    here.now += 3600
    at_step(here, run, 90)
    assert watched(here) == ["checkpoint_too_old"]
    at_step(here, run, 91, stage="evaluating")
    assert watched(here) == ["checkpoint_too_old"]
    at_step(here, run, 92)
    assert watched(here) == ["checkpoint_too_old"]
    here.context.hub.progress.clear()  # as after a restart, until it says something
    assert watched(here) == ["checkpoint_too_old"]
    at_step(here, run, 93)
    assert watched(here) == ["checkpoint_too_old"]


def test_a_long_text_is_cut_before_it_is_sent_and_keeps_its_link(here: World) -> None:
    add(here)
    run = here.submit(LAB)
    with here.context.database.write() as connection:
        events.add(connection, run.id, "guard", "long " * 10_000, at=here.now)
    follow(here)
    with here.context.database.read() as connection:
        [row] = store.log(connection, limit=1)
    body = json.loads(row.body)
    assert body["text"].endswith(f"…\nhttp://here/runs/{run.id}")
    assert len(row.body) < 10_000


# --- receivers -------------------------------------------------------------------------------------------------------


def test_an_address_is_sealed_and_shown_masked_and_its_secret_once(here: World) -> None:
    made = add(here)
    assert made.address == "https://hooks.example.org/…"
    assert made.secret is not None
    assert made.secret.startswith("whsec_")
    [shown] = receivers.listed(here.context)
    assert shown == made.model_copy(update={"secret": None})
    with here.context.database.read() as connection:
        row = store.receiver(connection, "ops")
    assert row is not None
    assert b"secret-part" not in row.address
    assert here.context.vault.unseal("ops", row.address) == HOOK


@pytest.mark.parametrize("address", ["hello", "https://", "https://[", "nosuch://x/y", "https://a b", "mailto://"])
def test_an_address_that_nothing_can_be_sent_to_is_refused(here: World, address: str) -> None:
    with pytest.raises(BadRequest, match=r"address|host"):
        receivers.add(here.context, ReceiverBody(name="x", address=address), ME)
    assert receivers.listed(here.context) == []


def test_names_are_given_once_and_unknown_ones_are_said(here: World) -> None:
    add(here)
    with pytest.raises(Refused, match="called ops already"):
        add(here)
    for act in (lambda: receivers.remove(here.context, "opz"), lambda: receivers.try_out(here.context, "opz", ME)):
        with pytest.raises(NotFound, match="no receiver opz") as wrong:
            act()
        assert wrong.value.hint == 'did you mean "ops"?'
    receivers.remove(here.context, "ops")
    assert receivers.listed(here.context) == []


def test_a_removed_receiver_takes_what_waits_for_it_along(here: World) -> None:
    add(here)
    receivers.try_out(here.context, "ops", ME)
    assert [each.kind for each in receivers.deliveries(here.context)] == ["test"]
    receivers.remove(here.context, "ops")
    assert receivers.deliveries(here.context) == []
