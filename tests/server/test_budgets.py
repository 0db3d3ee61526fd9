"""What a project may spend: refused at submit, shared by what runs, kept to before it is used up."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from whistlestop.domain.errors import BudgetExceeded, NotFound
from whistlestop.server.services import budgets, ingest, launches, submit, verbs
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import events, ledger, phases, pools, runs
from whistlestop.server.store.schema import ledger as table
from whistlestop.testing.world import ME, World, world
from whistlestop.wire.api import PauseBody, RerunBody, ResumeBody, RunView, Submit
from whistlestop.wire.frames import Data, RunnerEvent, pack_record
from whistlestop.wire.usage import BudgetBody, BudgetView

LAB = "name: x\nproject: lab\ncommand: 'true'\n"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    """A credit is a second of a slot."""
    with world(tmp_path) as made:
        yield made


def give(here: World, credits: float, **more: Any) -> BudgetView:
    return budgets.put(here.context, "lab", BudgetBody(credits=credits, **more), ME)


def balance(here: World) -> budgets.Balance:
    with here.context.database.read() as connection:
        (found,) = budgets.balances(here.context, connection, "lab")
    return found


def runs_for(here: World, run: RunView, seconds: float) -> None:
    here.settle()
    here.now += seconds
    end(here, run)


def end(here: World, run: RunView, reason: str = "finished", **data: Any) -> None:
    say(here, run, "ended", reason=reason, **data)
    here.settle()


def say(here: World, run: RunView, kind: str, **data: Any) -> None:
    row = here.attempt(run.id)
    offset = ingest.offsets(here.context, row.id).get("runner", 0)
    body = pack_record(RunnerEvent(here.now, kind, kind, data))
    ingest.store(here.context, row, [Data("runner", offset, body)])


def limit(here: World, run: RunView) -> tuple[float | None, str]:
    with here.context.database.read() as connection:
        row, attempt = runs.get(connection, run.id), here.attempt(run.id)
        phase = phases.get(connection, attempt.phase_id)
        spec = spec_of(row.spec).phase(phase.name)
        return launches.remaining(here.context, connection, row, phase, spec, len(attempt.slots), attempt.price)


def told(here: World, run: RunView, kind: str) -> list[str]:
    with here.context.database.read() as connection:
        return [row.text for row in events.of_run(connection, run.id, kinds=(kind,))]


def test_what_ended_and_what_runs_is_taken_from_the_balance_from_the_day_it_was_given(here: World) -> None:
    runs_for(here, here.submit(LAB), 30)
    made = give(here, 100)
    assert (made.spent, made.running, made.balance, made.lasts_s) == (0.0, 0.0, 100.0, None)
    runs_for(here, here.submit(LAB), 20)
    here.submit("name: y\nproject: lab\ncommand: 'true'\nslots: 2\n")
    here.settle()
    here.now += 5
    found = balance(here)
    assert (found.spent, found.running, found.left, found.per_hour) == (20.0, 10.0, 70.0, 7200.0)
    assert budgets.view(found).lasts_s == 35.0
    assert give(here, 50).balance == 20.0, "another amount counts from where the one before did"
    assert give(here, 50, restart=True).balance == 50.0
    budgets.remove(here.context, "lab")
    with pytest.raises(NotFound, match="lab has no budget"):
        budgets.remove(here.context, "lab")


def test_a_run_that_the_balance_cannot_cover_is_refused_with_figures_unless_it_is_forced(here: World) -> None:
    give(here, 60)
    dear = f"{LAB}budget: 80\n"
    with pytest.raises(BudgetExceeded) as refused:
        here.submit(dear)
    assert refused.value.text == (
        "project lab has 60.00 of its 60.00 credits left, and this run needs 80.00, which is its own budget"
    )
    assert refused.value.hint == "give it more: whistle usage budget lab 80; or spend it all the same: --force"
    forced = submit.submit(here.context, Submit(spec=dear, force=True), ME)
    assert told(here, forced, budgets.FORCED)[0].endswith("its own budget; me has it run all the same")
    assert here.submit(f"{LAB}budget: 60\n").status == "queued", "what is forced takes nothing from the others"
    with pytest.raises(BudgetExceeded):
        submit.rerun(here.context, forced.id, RerunBody(), ME)
    assert submit.rerun(here.context, forced.id, RerunBody(force=True), ME).status == "queued"
    assert here.submit("name: elsewhere\ncommand: 'true'\nbudget: 1000\n").status == "queued"


def test_what_runs_that_were_taken_will_need_is_not_given_twice(here: World) -> None:
    give(here, 100)
    first = here.submit(f"{LAB}budget: 60\n")
    with pytest.raises(BudgetExceeded) as refused:
        here.submit(f"{LAB}budget: 40.4\n")
    assert refused.value.text == (
        "project lab has 100.00 of its 100.00 credits left, 60.00 of them for runs that it has taken, "
        "and this run needs 40.40, which is its own budget"
    )
    assert (refused.value.hint or "").startswith("give it more: whistle usage budget lab 101;")
    assert here.submit(f"{LAB}budget: 40\n").status == "queued"
    runs_for(here, first, 10)  # and it needs no more: 50 of its 60 are free again
    here.now += 5
    with pytest.raises(BudgetExceeded, match=r"needs 51\.00"):
        here.submit(f"{LAB}budget: 51\n")
    assert here.submit(f"{LAB}budget: 50\n").status == "queued", "the second one has 35 of its 40 before it"


def test_a_run_without_a_budget_is_judged_by_its_work_on_the_cheapest_pool_it_may_use(here: World) -> None:
    with here.context.database.write() as connection:
        pools.put(connection, "spot", at=0, engine="local", slots=2, price=360.0, market="spot")
    give(here, 100)
    work = f"{LAB}slots: 2\nwork: 2m\n"
    assert here.submit(work).status == "queued", "2 slots for 2 minutes, at a tenth of a credit a second"
    with pytest.raises(BudgetExceeded, match=r"needs 240\.00 by its own estimate"):
        here.submit(f"{work}capacity: {{market: on_demand}}\n")


def test_a_run_of_a_workflow_is_judged_by_those_that_were_completed(here: World) -> None:
    give(here, 100)
    for seconds in (30, 40):
        run = here.submit(LAB)
        with here.context.database.write() as connection:
            runs.update(connection, run.id, workflow="w@1")
        runs_for(here, run, seconds)
    with here.context.database.write() as connection:
        spec = spec_of(LAB)
        with pytest.raises(BudgetExceeded, match=r"30\.00 of its 100\.00 .* needs 35\.00, as 2 runs of workflow w did"):
            budgets.check(here.context, connection, spec, workflow="w@2", force=False)
        assert budgets.check(here.context, connection, spec, workflow="other@1", force=False) == budgets.Judged()
    runs_for(here, here.submit(LAB), 30)
    with pytest.raises(BudgetExceeded, match=r"project lab has 0\.00 of its 100\.00 credits left$"):
        here.submit(LAB)


def test_a_runs_budget_counts_over_all_its_attempts_and_keeps_time_to_leave(here: World) -> None:
    run = here.submit(f"{LAB}budget: 100\nretries: 5\n")
    here.settle()
    assert limit(here, run) == (98.0, "budget_exhausted"), "two seconds to leave, as long as none were measured"
    here.now += 40
    end(here, run, "preempted")
    here.settle()
    assert limit(here, run) == (58.0, "budget_exhausted")
    with here.context.database.write() as connection:
        phases.ask_stop(connection, f"{run.id}.0", by="me", at=here.now)
    here.now += 7
    end(here, run, "stopped", last_step=5)
    again = here.submit(f"{LAB}budget: 100\n")
    here.settle()
    assert limit(here, again) == (93.0, "budget_exhausted"), "its last stop took seven"


def test_phases_beside_each_other_share_the_budget_of_their_run(here: World) -> None:
    phase = "{{name: {}, needs: [], command: 'true'}}".format
    text = f"name: x\nbudget: 100\nphases:\n  - {phase('one')}\n  - {phase('two')}\n"
    run = here.submit(text)
    here.settle()
    with here.context.database.read() as connection:
        rows = phases.attempts_of_runs(connection, [run.id])[run.id]
    assert len(rows) == 2
    assert limit(here, run) == (98.0, "budget_exhausted"), "should the other one end at once, all of it is its own"
    here.now += 40
    here.tick()
    assert told(here, run, "stop_requested") == []
    here.now += 4
    here.tick()
    why = f"the budget of run #{run.number} is used up: 12.00 of 100.00 credits are left"
    assert told(here, run, "stop_requested") == [f"stop of phase {name} requested: {why}" for name in ("one", "two")]


def test_what_the_company_has_spent_counts_also_when_it_has_left(here: World) -> None:
    phase = "{{name: {}, needs: [], command: 'true'}}".format
    run = here.submit(f"name: x\nbudget: 100\nphases:\n  - {phase('one')}\n  - {phase('two')}\n")
    alone = here.submit("name: y\nbudget: 100\ncommand: 'true'\n")
    here.settle()
    here.now += 40
    end(here, run)  # of two; 20 are left for one
    here.now += 12
    here.tick()
    assert told(here, run, "stop_requested") == []
    here.now += 1
    here.tick()
    assert len(told(here, run, "stop_requested")) == 1
    here.now += 82
    here.tick()
    assert told(here, alone, "stop_requested") == [], "its runner knows all that it has to know"


def test_what_runs_in_a_project_shares_its_balance(here: World) -> None:
    give(here, 100)
    first = here.submit(LAB)
    here.settle()
    assert limit(here, first) == (98.0, "budget_exhausted")
    here.now += 20
    second = here.submit(LAB)
    here.settle()
    assert limit(here, second) == (78.0, "budget_exhausted"), "should the first one end at once, all of it is its own"
    here.now += 32
    here.tick()
    assert told(here, first, "stop_requested") == told(here, second, "stop_requested") == [], "eight seconds for two"
    here.now += 1
    here.tick()
    assert told(here, first, "stop_requested") == told(here, second, "stop_requested") != []
    forced = submit.submit(here.context, Submit(spec=f"{LAB}budget: 500\n", force=True), ME)
    here.now += 3
    end(here, second, "stopped", last_step=1)
    assert limit(here, forced) == (497.0, "budget_exhausted"), "its own alone"


def test_training_leaves_with_its_checkpoint_before_the_credits_of_its_project_do(here: World) -> None:
    give(here, 100)
    train, task = here.submit(LAB), here.submit("name: t\nproject: lab\nkind: task\ncommand: 'true'\n")
    here.settle()
    say(here, train, "program_started")
    here.now += 40
    here.tick()
    assert told(here, train, "stop_requested") == []
    here.now += 4  # 12 of 100 are left: six seconds, and a look at it every five
    here.tick()
    why = "the budget of project lab is used up: 12.00 of 100.00 credits are left"
    assert told(here, train, "stop_requested") == [f"stop of phase main requested: {why}"]
    assert told(here, task, "pause_requested") == [f"pause requested: {why}"]
    order = here.context.hub.order(here.attempt(train.id).id)
    assert order is not None
    assert (order.stop, order.reason, order.actor) == (1, "budget_exhausted", "the budget of project lab")
    here.tick()
    assert len(told(here, train, "stop_requested")) == 1
    say(here, train, "checkpoint", id="c", step=40, path="/c")
    reasons = [{"reason": "manually_stopped", "decisive": True, "text": "asked"}]
    end(here, train, "stopped", last_step=40, stop_reasons=reasons)
    with here.context.database.read() as connection:
        phase = phases.get(connection, f"{train.id}.0")
    assert [(each["reason"], each["text"]) for each in phase.stop_reasons] == [
        ("budget_exhausted", "the budget of project lab is used up")
    ]
    assert here.run_state(train.id) == "completed"
    end(here, task, "paused")
    with here.context.database.read() as connection:
        assert runs.get(connection, task.id).reason == "paused: the budget of project lab is used up"


def test_what_is_free_is_bound_by_no_budget(here: World) -> None:
    with here.context.database.write() as connection:
        pools.put(connection, "desk", at=here.now, engine="local", slots=3, price=0.0)
    give(here, 100)
    on_desk = "capacity: {pools: [desk]}\n"
    paid = here.submit(f"{LAB}capacity: {{pools: [local]}}\n")
    free, task = here.submit(LAB + on_desk), here.submit(f"{LAB}kind: task\n{on_desk}")
    here.settle()
    here.now += 99
    here.tick()
    assert len(told(here, paid, "stop_requested")) == 1
    assert told(here, free, "stop_requested") == told(here, task, "pause_requested") == []
    here.now += 10
    with pytest.raises(BudgetExceeded):
        here.submit(LAB)
    assert here.submit(LAB + on_desk).status == "queued"
    verbs.pause(here.context, task.id, PauseBody(), ME)
    end(here, task, "paused")
    verbs.resume(here.context, task.id, ResumeBody(), ME)


def test_a_project_is_looked_at_once_however_many_of_its_runs_begin(here: World) -> None:
    give(here, 60)
    made = [here.submit(LAB) for _ in range(5)]
    asked: list[str] = []
    with here.context.database.read() as connection:
        rows = [runs.get(connection, run.id) for run in made]
        sa.event.listen(connection, "before_cursor_execute", lambda *said: asked.append(said[2]))
        purse = budgets.Purse(here.context, connection)
        assert [purse.seconds_left(row, 3600.0) for row in rows] == [60.0] * 5
        assert [purse.reserve(row, 60.0) for row in rows] == [budgets.LEAVING] * 5
    assert len([each for each in asked if "FROM ledger" in each and "sum(" in each]) == 1
    assert len([each for each in asked if "FROM attempts" in each]) == 2  # what runs, and how long stops took


def test_who_resumes_on_credits_that_its_project_has_used_up_is_refused_before_anything_fails(here: World) -> None:
    give(here, 100)
    run = here.submit("name: t\nproject: lab\nkind: task\ncommand: 'true'\n")
    here.settle()
    verbs.pause(here.context, run.id, PauseBody(), ME)
    here.now += 101
    end(here, run, "paused")
    with pytest.raises(BudgetExceeded, match=r"has none of its 100\.00 credits left for run #1") as refused:
        verbs.resume(here.context, run.id, ResumeBody(), ME)
    assert here.run_state(run.id) == "waiting"
    assert refused.value.hint == "give it more: whistle usage budget lab 102"
    give(here, 102)
    assert verbs.resume(here.context, run.id, ResumeBody(), ME).changed


def test_the_sum_over_a_long_history_is_kept_and_stays_right(here: World) -> None:
    kept = ledger.Spendings(newest=5)

    def add(count: int) -> None:
        names = {"attempt_id": "a", "run_id": "r", "number": 1, "run_name": "x", "project": "lab", "phase": "main"}
        where = {"attempt": 1, "pool": "local", "market": "spot", "kind": "productive", "slots": 1, "price": 1.0}
        rows = [{**names, **where, "since": at, "until": at + 1.0, "credits": 2.0} for at in range(count)]
        with here.context.database.write() as connection:
            connection.execute(table.insert(), rows)

    expected = 0.0
    for count in (1, 4, 30, 2, 1, 50):
        add(count)
        expected += 2.0 * count - 1.0  # of the first one, half lies before
        with here.context.database.read() as connection:
            assert kept.since(connection, "lab", 0.5) == pytest.approx(expected)
            assert kept.since(connection, "other", 0.5) == 0.0
