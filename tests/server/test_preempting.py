"""Capacity taken back by us: who is asked, what the runner hears, what is said, and what wins over it."""

import pytest

from whistlestop.domain.errors import NotFound, Refused, RunEnded
from whistlestop.server.services import ingest, preempting, verbs
from whistlestop.server.store import events, phases, pools
from whistlestop.testing.world import ME, World, ended
from whistlestop.wire.api import KillBody, PauseBody, StopBody
from whistlestop.wire.frames import Data, Order
from whistlestop.wire.rehearsal import PreemptBody

TASK = "name: prepare\nkind: task\ncommand: 'true'\n"


def started(here: World, text: str | None = None) -> str:
    run = here.submit(text) if text else here.submit()
    here.settle()
    return run.id


def order(here: World, run: str) -> Order:
    return ingest.order(here.context, here.attempt(run).id)


def handed_on(here: World, run: str) -> tuple[float, str]:
    found = here.context.hub.order(here.attempt(run).id)
    assert found is not None
    return found.preempt_deadline, found.preempt_why


def told(here: World, run: str, kind: str = "preempt_requested") -> list[str]:
    with here.context.database.read() as connection:
        return [row.text for row in events.of_run(connection, run, kinds=[kind])]


def preempt(here: World, run: str, notice: float = 30.0, **more: object) -> tuple[bool, str]:
    done = preempting.preempt(here.context, run, PreemptBody(notice_s=notice, **more), ME)  # type: ignore[arg-type]
    return done.changed, done.text


def test_a_preempted_run_gets_a_deadline_with_its_why_and_says_so(here: World) -> None:
    run = started(here)
    before = order(here, run)
    changed, text = preempt(here, run, 30.0, note="a rehearsal")
    assert changed
    assert "30 s" in text
    assert "queue" in text
    after = order(here, run)
    assert after.preempt_deadline == here.now + 30.0
    assert after.preempt_why == "preempted by me: a rehearsal"
    assert after.seq > before.seq, "of two orders the newer one must be known as such"
    assert handed_on(here, run) == (here.now + 30.0, after.preempt_why), "the runner hears it at once"
    (event,) = told(here, run)
    assert "30 s" in event
    assert "a rehearsal" in event
    assert "pool local" in event


def test_asking_again_changes_nothing_but_less_time_counts(here: World) -> None:
    run = started(here)
    preempt(here, run, 30.0)
    deadline = order(here, run).preempt_deadline
    here.now += 1
    changed, text = preempt(here, run, 30.0)
    assert not changed
    assert "already" in text
    assert order(here, run).preempt_deadline == deadline
    assert preempt(here, run, 5.0)[0]
    assert order(here, run).preempt_deadline == here.now + 5.0
    assert handed_on(here, run)[0] == here.now + 5.0
    assert len(told(here, run)) == 2


def test_of_two_orders_with_the_same_number_the_one_that_leaves_less_time_counts(here: World) -> None:
    hub = here.context.hub
    hub.ordered("a", Order(seq=3, preempt_deadline=100.0))
    hub.ordered("a", Order(seq=3, preempt_deadline=50.0))
    hub.ordered("a", Order(seq=3, preempt_deadline=100.0))
    found = hub.order("a")
    assert found is not None
    assert found.preempt_deadline == 50.0


def test_it_goes_back_to_the_queue_and_nothing_counts_against_its_retries(here: World) -> None:
    run = started(here)
    preempt(here, run)
    attempt = here.attempt(run)
    ingest.store(here.context, attempt, [Data("runner", 0, ended("preempted", last_step=7))])
    here.settle()
    again = here.attempt(run)
    assert again.number == attempt.number + 1
    assert order(here, run).preempt_deadline == 0.0, "the next attempt is not asked to leave"
    with here.context.database.read() as connection:
        (phase,) = phases.of_runs(connection, [run])[run]
    assert (phase.errors_used, phase.faults) == (0, 0)
    assert any("recovering" in text for text in told(here, run, "run_queued"))


def test_who_means_an_attempt_that_is_over_does_not_hit_the_next(here: World) -> None:
    run = started(here)
    number = here.attempt(run).number
    ingest.store(here.context, here.attempt(run), [Data("runner", 0, ended("preempted"))])
    here.settle()
    changed, text = preempt(here, run, attempts=[number])
    assert not changed
    assert "has left" in text
    assert preempt(here, run, attempts=[number + 1])[0]


def test_what_holds_no_capacity_is_not_preempted(here: World) -> None:
    with here.context.database.write() as connection:
        pools.put(connection, "local", at=here.now, slots=1)
    started(here)
    waits = started(here)
    with pytest.raises(Refused, match="holds no capacity"):
        preempt(here, waits)
    verbs.kill(here.context, waits, KillBody(), ME)
    here.settle()
    with pytest.raises(RunEnded, match="can't be preempted"):
        preempt(here, waits)


def test_a_kill_a_pause_and_a_stop_win_over_it(here: World) -> None:
    run = started(here)
    preempt(here, run)
    verbs.stop(here.context, run, StopBody(), ME)
    assert (order(here, run).stop, order(here, run).preempt_deadline > 0) == (1, True)
    verbs.pause(here.context, run, PauseBody(), ME)
    assert order(here, run).stop == 2
    changed, text = preempt(here, run, 1.0)
    assert not changed
    assert "pausing" in text
    verbs.kill(here.context, run, KillBody(), ME)
    assert order(here, run).stop == 3
    with pytest.raises(RunEnded):
        preempt(here, run)
    # Preempted before it could pause: it waits, as was asked.
    other = started(here)
    preempt(here, other)
    verbs.pause(here.context, other, PauseBody(), ME)
    ingest.store(here.context, here.attempt(other), [Data("runner", 0, ended("preempted"))])
    here.settle()
    assert here.run_state(other) == "waiting"


def test_a_task_is_said_to_start_over(here: World) -> None:
    changed, text = preempt(here, started(here, TASK))
    assert changed
    assert "starts again from its beginning" in text


def test_a_host_is_preempted_with_all_that_runs_there_and_nobody_else(here: World) -> None:
    first, second = started(here), started(here)
    with here.context.database.write() as connection:
        for run, host in ((first, "h1"), (second, "h2")):
            phases.update_attempt(connection, here.attempt(run).id, host=host)
    done = preempting.preempt_host(here.context, "local", "h1", PreemptBody(notice_s=5.0), ME)
    assert [(item.run, item.ok) for item in done.items] == [(first, True)]
    assert order(here, first).preempt_deadline == here.now + 5.0
    assert order(here, second).preempt_deadline == 0.0
    assert "host h1" in told(here, first)[0]
    with pytest.raises(NotFound, match="no pool"):
        preempting.preempt_host(here.context, "elsewhere", "h1", PreemptBody(), ME)
    with pytest.raises(NotFound, match="no host"):
        preempting.preempt_host(here.context, "local", "h3", PreemptBody(), ME)


def test_several_attempts_are_asked_in_one_go_and_each_hears_its_own_why(here: World) -> None:
    first, second = started(here), started(here)
    asked = [(here.attempt(run).id, why) for run, why in ((first, "a deadline"), (second, "run #9 matters more"))]
    assert preempting.ask_all(here.context, asked, notice=60.0, by="whistlestop") == [each for each, _ in asked]
    assert [order(here, run).preempt_why for run in (first, second)] == ["a deadline", "run #9 matters more"]
    assert preempting.ask_all(here.context, asked, notice=60.0, by="whistlestop") == []
    assert handed_on(here, first) == (here.now + 60.0, "a deadline")
