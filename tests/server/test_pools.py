"""Several pools and their hosts: where runs go, what they leave, and what is said about it."""

from pathlib import Path
from typing import Any

import pytest

from whistlestop.domain.errors import NeverFits, SpecInvalid
from whistlestop.engines.base import JobState
from whistlestop.server.scheduler.engines import One
from whistlestop.server.scheduler.passes import Passes
from whistlestop.server.services import ingest, standing, verbs, views
from whistlestop.server.services.hosts import readmit
from whistlestop.server.store import checkpoints, events, phases, pools, runs
from whistlestop.testing.wait import until
from whistlestop.testing.world import ME, World, ended, unreachable, world
from whistlestop.wire.api import PauseBody, RunView
from whistlestop.wire.frames import Data, RunnerEvent, pack_record
from whistlestop.wire.pools import ReadmitBody

SPEC = "name: {name}\ncommand: 'true'\n"


def put(here: World, name: str, **values: Any) -> None:
    with here.context.database.write() as connection:
        pools.put(connection, name, at=here.now, **{"engine": "local", **values})
    here.context.hub.capacity_changed()


def hosts(**sizes: int) -> list[dict[str, object]]:
    return [{"name": name, "slots": size} for name, size in sizes.items()]


def submit(here: World, name: str = "x", more: str = "") -> RunView:
    return here.submit(SPEC.format(name=name) + more)


def end(here: World, run: str, reason: str, **data: object) -> None:
    attempt = here.attempt(run)
    ingest.store(here.context, attempt, [Data("runner", 0, ended(reason, gone_at=here.now, **data))])
    here.engine.says[attempt.id] = JobState.ENDED
    here.settle()


def told(here: World, run: str, kind: str) -> list[str]:
    with here.context.database.read() as connection:
        return [row.text for row in events.of_run(connection, run, limit=500) if row.kind == kind]


def waits_for(here: World, run: str) -> str:
    with here.context.database.read() as connection:
        view = views.run_view(here.context, connection, runs.get(connection, run))
    assert view.queue is not None
    return view.queue.waits_for


def commit(here: World, run: str, step: int = 5) -> None:
    with here.context.database.write() as connection:
        checkpoints.add(
            connection, id=f"c-{step}-{run}", run_id=run, phase="main", step=step, attempt=1, path="/nowhere",
            bytes=1, committed_at=here.now, verified=True, metrics={},
        )  # fmt: skip


@pytest.fixture
def three(here: World) -> World:
    """Besides `local` (2 slots at 3,600): two spot pools, the first of them the cheaper."""
    put(here, "spot-a", slots=1, price=1.0, market="spot")
    put(here, "spot-b", slots=1, price=2.0, market="spot")
    return here


# --- which pool -------------------------------------------------------------------------------------------------------


def test_the_cheapest_pool_that_can_take_it_is_taken_and_the_event_says_why(three: World) -> None:
    first, second = submit(three, "first"), submit(three, "second")
    three.settle()
    assert [three.attempt(run.id).pool for run in (first, second)] == ["spot-a", "spot-b"]
    assert told(three, second.id, "placed") == [
        "phase main: attempt 1 gets 1 slot of pool spot-b: the cheapest that can take it, at 2 credits per slot-hour; "
        "not spot-a: 0 of 1 slots free"
    ]
    assert three.attempt(second.id).why_here.startswith("the cheapest that can take it")


def test_a_spec_names_its_pools_in_order_and_its_class_and_market(three: World) -> None:
    put(three, "big", slots=1, price=9.0, kind="h100", region="north")
    named = submit(three, "named", "capacity: {pools: [local, spot-a]}\n")
    classy = submit(three, "classy", "capacity: {class: h100}\n")
    paid = submit(three, "paid", "capacity: {market: on_demand, region: north}\n")
    three.settle()
    assert three.attempt(named.id).pool == "local"
    assert three.attempt(classy.id).pool == "big"
    assert three.run_state(paid.id) == "queued"
    assert waits_for(three, paid.id) == "1 slot of pool big: 0 of 1 free"


def test_a_pool_that_reclaims_every_minute_is_left_for_the_next(three: World) -> None:
    run = submit(three)
    three.settle()
    for _ in range(2):
        assert three.attempt(run.id).pool == "spot-a"
        three.now += 60
        end(three, run.id, "preempted")
        if three.attempt(run.id).pool != "spot-a":
            break
    assert three.attempt(run.id).pool == "spot-b"
    [left] = told(three, run.id, "pool_left")
    assert left.startswith(
        "pool spot-a is left for spot-b: this phase's slots were taken back there once in the last hour"
    )
    other = submit(three, "other")
    three.settle()
    assert three.attempt(other.id).pool == "spot-a", "once is no reason for others"
    three.now += 60
    end(three, other.id, "preempted")
    third = submit(three, "third", "capacity: {market: spot}\n")
    three.settle()
    assert three.attempt(third.id).pool == "spot-a", "spot-b is taken: better than nothing"
    assert "although it took slots back 2 times in the last hour, after 60 s each" in told(three, third.id, "placed")[0]
    end(three, run.id, "finished")
    three.now += 60
    end(three, third.id, "preempted")
    fourth = submit(three, "fourth")
    three.settle()
    assert three.attempt(third.id).pool == "spot-b"
    assert three.attempt(fourth.id).pool == "local", "now the record is against spot-a for everybody"
    three.now += 3 * 3600
    end(three, third.id, "finished")
    later = submit(three, "later")
    three.settle()
    assert three.attempt(later.id).pool == "spot-a", "what is long ago counts no more"


def test_whoever_made_room_for_another_does_not_hold_it_against_the_pool(three: World) -> None:
    run = submit(three)
    three.settle()
    attempt = three.attempt(run.id)
    with three.context.database.write() as connection:
        phases.ask_preempt(connection, attempt.id, until=three.now, by=events.SYSTEM, why="another", at=three.now)
    end(three, run.id, "preempted")
    assert three.attempt(run.id).pool == "spot-a"
    assert told(three, run.id, "pool_left") == []


# --- hosts ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(here: World) -> World:
    """`local` has two hosts of one slot each, and nothing else is there."""
    put(here, "local", slots=2, hosts=hosts(h1=1, h2=1))
    return here


def test_a_host_that_fails_three_times_is_not_used_until_it_is_readmitted(two: World) -> None:
    for number in range(3):
        run = submit(two, f"run{number}")
        two.settle()
        assert two.attempt(run.id).host == "h1"
        two.now += 60
        end(two, run.id, "runner_lost")
        assert two.attempt(run.id).host == "h2", "a retry lands elsewhere"
        end(two, run.id, "finished")
    [excluded] = told(two, run.id, "host_excluded")
    assert excluded.startswith("host h1 of pool local is excluded: 3 bad ends: runner lost, until ")
    two.now += 3600
    first, second = submit(two, "first"), submit(two, "second")
    two.settle()
    assert two.attempt(first.id).host == "h2"
    assert two.run_state(second.id) == "queued"
    with two.context.database.read() as connection:
        bad = next(each for each in standing.standings(connection, two.now) if each.name == "h1")
    assert bad.excluded
    assert (len(bad.bad_ends), bad.free) == (3, 1)
    with two.context.database.write() as connection:
        pools.put_host(connection, "local", "h1", readmitted_at=two.now)
    two.settle()
    assert two.attempt(second.id).host == "h1"


def test_good_ends_elsewhere_do_not_outweigh_a_bad_host(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "HOST_ENDS", 4)
    for number in range(3):
        run = submit(two, f"run{number}")
        two.settle()
        end(two, run.id, "runner_lost")
        end(two, run.id, "finished")
    for number in range(5):
        run = submit(two, f"good{number}")
        two.settle()
        end(two, run.id, "finished")
    with two.context.database.read() as connection:
        bad = next(each for each in standing.standings(connection, two.now) if each.name == "h1")
    assert (bad.excluded, len(bad.bad_ends)) == (True, 3)


def test_who_was_taken_back_from_a_host_goes_to_another_one(two: World) -> None:
    run = submit(two)
    two.settle()
    assert two.attempt(run.id).host == "h1"
    end(two, run.id, "preempted")
    assert two.attempt(run.id).host == "h2"


@pytest.mark.parametrize("source", ["aws", "file", "sigterm"])
def test_nothing_is_started_where_a_notice_says_that_it_goes(two: World, source: str) -> None:
    put(two, "local", slots=1, hosts=hosts(h1=1, h2=1))  # h2 is away
    run = submit(two)
    two.settle()
    notice = RunnerEvent(two.now, "notice", "it goes", {"final": True, "source": source, "deadline": two.now + 30})
    ingest.store(two.context, two.attempt(run.id), [Data("runner", 0, said := pack_record(notice))])
    attempt = two.attempt(run.id)
    ingest.store(two.context, attempt, [Data("runner", len(said), ended("preempted", gone_at=two.now))])
    two.engine.says[attempt.id] = JobState.ENDED
    two.settle()
    if source == "sigterm":  # it was meant for that runner alone
        assert two.attempt(run.id).number == 2
        return
    assert (two.run_state(run.id), two.attempt(run.id).number) == ("queued", 1)
    assert "host h1 of local is not used now (a notice says that it goes by" in waits_for(two, run.id)
    two.now += 31
    two.tick()
    assert (two.attempt(run.id).number, two.attempt(run.id).host) == (2, "h1")


def test_a_pool_that_names_no_hosts_is_one_when_it_goes(here: World) -> None:
    run = submit(here)
    here.settle()
    here.context.hub.goes(("local", "some-machine"), here.now + 1e9)
    other = submit(here, "other")
    here.settle()
    assert (here.run_state(run.id), here.run_state(other.id)) == ("starting", "queued")
    assert "pool local is not used now" in waits_for(here, other.id)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_programs_that_fail_on_a_host_count_against_it_until_one_succeeds_there(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    url = request.getfixturevalue("postgres_url") if database == "postgres" else None
    with world(tmp_path, url) as here:
        put(here, "local", slots=2, hosts=hosts(h1=1, h2=1))

        def ends(name: str, reason: str) -> int:
            run = submit(here, name)
            here.settle()
            assert here.attempt(run.id).host == "h1"
            here.now += 60
            end(here, run.id, reason)
            with here.context.database.read() as connection:
                found = next(each for each in standing.standings(connection, here.now) if each.name == "h1")
            return len(found.bad_ends)

        assert [ends(name, "code_raised") for name in ("a", "b")] == [0, 0]
        assert ends("c", "finished") == 0
        assert [ends(name, "code_raised") for name in ("d", "e", "f")] == [0, 0, 3]


def test_an_exclusion_is_told_once_also_by_a_server_that_was_just_started(two: World) -> None:
    def restart() -> None:
        two.passes = Passes(two.context, One(two.engine), lambda: "http://127.0.0.1:1")
        two.settle()

    for number in range(3):
        run = submit(two, f"run{number}")
        two.settle()
        restart()  # nothing is queued: it looks at no host before the next end
        two.now += 60
        end(two, run.id, "runner_lost")
        end(two, run.id, "finished")
    assert len(told(two, run.id, "host_excluded")) == 1
    restart()
    submit(two, "another")
    two.settle()
    assert len(told(two, run.id, "host_excluded")) == 1


def test_who_is_readmitted_begins_anew_also_if_the_clock_was_set_back(two: World) -> None:
    for number in range(3):
        run = submit(two, f"run{number}")
        two.settle()
        two.now += 1
        end(two, run.id, "runner_lost")
        end(two, run.id, "finished")
    two.now -= 10
    done = readmit(two.context, "local", "h1", ReadmitBody())
    assert (done.changed, done.host.excluded, done.host.bad) == (True, False, [])


def test_an_excluded_host_is_used_again_when_its_record_has_faded(two: World) -> None:
    for number in range(3):
        run = submit(two, f"run{number}")
        two.settle()
        end(two, run.id, "runner_lost")
        end(two, run.id, "finished")
    hold, waits = submit(two, "hold"), submit(two, "waits")
    two.settle()
    assert two.attempt(hold.id).host == "h2"
    two.now += 18 * 3600
    two.tick()
    assert two.run_state(waits.id) == "queued", "three fade to one in 19 hours"
    two.now += 2 * 3600
    two.tick()
    assert two.attempt(waits.id).host == "h1"


def test_the_last_host_is_never_excluded_by_itself_and_that_is_said(here: World) -> None:
    put(here, "local", slots=1, hosts=hosts(only=1))
    for number in range(4):
        run = submit(here, f"run{number}")
        here.settle()
        end(here, run.id, "runner_lost")
        end(here, run.id, "finished")
    with here.context.database.read() as connection:
        [only] = standing.standings(connection, here.now)
    assert not only.excluded
    assert only.why == "host only would be excluded (4 bad ends: runner lost) but is the only one left"


def test_a_run_that_can_not_be_launched_anywhere_is_no_hosts_fault(two: World) -> None:
    two.engine.broken = RuntimeError("a mistake of ours")
    run = submit(two)
    for _ in range(30):
        two.settle()
        two.now += 120
        two.tick()
    two.engine.broken = None
    assert two.run_state(run.id) == "failed"
    with two.context.database.read() as connection:
        assert not any(each.excluded or each.why for each in standing.standings(connection, two.now))


def test_a_person_excludes_a_host_and_nothing_is_put_there(two: World) -> None:
    with two.context.database.write() as connection:
        pools.put_host(connection, "local", "h1", excluded_at=two.now, excluded_by="ada", note="loud fan")
    run, second = submit(two), submit(two, "second")
    two.settle()
    assert two.attempt(run.id).host == "h2"
    assert waits_for(two, second.id) == (
        "1 slot of pool local: 0 of 2 free; host h1 of local is not used now (excluded by ada: loud fan)"
    )


# --- capacity comes and goes ------------------------------------------------------------------------------------------


def test_capacity_appears_and_vanishes_while_runs_are_queued(here: World) -> None:
    put(here, "local", slots=0)
    first, wide = submit(here, "first"), submit(here, "wide", "slots: 2\n")
    here.settle()
    assert waits_for(here, wide.id) == "2 slots of pool local, which has no slots now: it starts when there are some"
    put(here, "burst", slots=1, price=5.0)
    here.settle()
    assert here.attempt(first.id).pool == "burst"
    put(here, "local", slots=2)
    here.settle()
    assert here.attempt(wide.id).pool == "local"
    with here.context.database.write() as connection:
        pools.remove(connection, "burst", at=here.now)
    late = submit(here, "late")
    here.settle()
    end(here, first.id, "preempted")
    assert here.run_state(first.id) == "queued", "its pool is gone, and the other one is full"
    end(here, wide.id, "finished")
    assert {here.attempt(run.id).pool for run in (first, late)} <= {"local", "burst"}
    assert here.attempt(first.id).pool == "local"


def test_a_pool_that_does_not_exist_is_named_at_submit(three: World) -> None:
    with pytest.raises(SpecInvalid, match="there is no pool spot-c") as refused:
        submit(three, "x", "capacity: {pools: [spot-c]}\n")
    assert "did you mean spot-" in (refused.value.hint or "")


def test_what_can_never_fit_is_refused_and_what_fits_when_the_pool_is_back_waits(three: World) -> None:
    with pytest.raises(NeverFits, match="asks for 3 slots; the largest pool has 2"):
        submit(three, "x", "slots: 3\n")
    with pytest.raises(NeverFits, match="asks for 2 slots; the largest pool that it may use has 1"):
        submit(three, "x", "slots: 2\ncapacity: {market: spot}\n")
    with pytest.raises(NeverFits, match="no pool is like that"):
        submit(three, "x", "capacity: {class: h100}\n")
    put(three, "local", slots=0)
    put(three, "later", slots=0, price=1.0)
    back = submit(three, "back", "slots: 2\n")
    named = submit(three, "named", "slots: 2\ncapacity: {pools: [later]}\n")
    three.settle()
    assert [three.run_state(run.id) for run in (back, named)] == ["queued", "queued"]


# --- priority ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_priority_takes_slots_back_gracefully_and_only_after_the_first_commit(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    with world(tmp_path, url) as here:
        _priority(here)


def _priority(here: World) -> None:
    put(here, "local", slots=1)
    low = submit(here, "low")
    here.settle()
    here.now += 60
    urgent = submit(here, "urgent", "priority: 5\n")
    here.tick()
    assert here.attempt(low.id).preempt_at is None, "it has nothing to go on from yet"
    commit(here, low.id)
    here.tick()
    attempt = here.attempt(low.id)
    assert attempt.preempt_at == here.now + 120
    [asked] = told(here, low.id, "preempt_requested")
    assert asked.endswith(f"run #{urgent.number} (urgent) of priority 5 needs its slots")
    here.tick()
    assert len(told(here, low.id, "preempt_requested")) == 1, "once is enough"
    order = here.context.hub.order(attempt.id)
    assert order is not None
    assert order.preempt_deadline == attempt.preempt_at
    end(here, low.id, "preempted")
    assert here.attempt(urgent.id).pool == "local"
    assert here.run_state(low.id) == "queued"
    end(here, urgent.id, "finished")
    assert here.attempt(low.id).number == 2


def test_one_that_began_anew_is_left_alone_until_it_has_saved_itself(here: World) -> None:
    put(here, "local", slots=1)
    low = submit(here, "low")
    commit(here, low.id)
    with here.context.database.write() as connection:
        [row] = phases.of_runs(connection, [low.id])[low.id]
        phases.update(connection, row.id, from_start=True)
    here.settle()
    submit(here, "urgent", "priority: 5\n")
    here.tick()
    assert here.attempt(low.id).preempt_at is None, "the old checkpoints are no good"
    with here.context.database.write() as connection:
        phases.update_attempt(connection, here.attempt(low.id).id, committed_at=here.now)
    here.tick()
    assert here.attempt(low.id).preempt_at is not None


def test_a_long_notice_is_shortened_for_one_that_is_urgent(here: World) -> None:
    put(here, "local", slots=1)
    low = submit(here, "low")
    here.settle()
    commit(here, low.id)
    attempt = here.attempt(low.id)
    with here.context.database.write() as connection:
        phases.ask_preempt(connection, attempt.id, until=here.now + 3000, by="ada", why="later", at=here.now)
    submit(here, "urgent", "priority: 5\n")
    here.tick()
    assert here.attempt(low.id).preempt_at == here.now + 120


def test_losses_that_a_person_rehearses_are_not_held_against_the_pool(three: World) -> None:
    for name in ("one", "two"):
        run = submit(three, name, "capacity: {pools: [spot-a]}\n")
        three.settle()
        attempt = three.attempt(run.id)
        three.now += 60
        with three.context.database.write() as connection:
            phases.ask_preempt(connection, attempt.id, until=three.now, by="ada", why="rehearsal", at=three.now)
        end(three, run.id, "preempted")
        assert three.attempt(run.id).pool == "spot-a", "it may use no other"
        end(three, run.id, "finished")
    other = submit(three, "other")
    three.settle()
    assert three.attempt(other.id).pool == "spot-a"


def test_who_is_preempted_before_its_first_step_again_and_again_comes_back_later_each_time(here: World) -> None:
    run = submit(here)
    here.settle()
    for _ in range(3):
        end(here, run.id, "preempted")
        here.now += 100
        here.tick()
    assert here.attempt(run.id).number == 4
    end(here, run.id, "preempted")
    here.now += 4
    here.tick()
    assert here.attempt(run.id).number == 4
    assert "it goes on elsewhere in 5 s, since it came to no step there" in told(here, run.id, "phase_pending")[-1]
    here.now += 2
    here.tick()
    assert here.attempt(run.id).number == 5
    end(here, run.id, "preempted", last_step=3)
    assert here.attempt(run.id).number == 6, "it got on: at once"


def test_neither_a_task_nor_one_that_may_not_makes_room(here: World) -> None:
    text = "name: {}\nphases:\n- {{name: main, kind: {}, command: 'true', capacity: {{preemptible: {}}}}}\n"
    task, firm = here.submit(text.format("task", "task", "true")), here.submit(text.format("firm", "train", "false"))
    here.settle()
    for run in (task, firm):
        commit(here, run.id)
    urgent = submit(here, "urgent", "priority: 5\n")
    here.tick()
    assert here.run_state(urgent.id) == "queued"
    assert [here.attempt(run.id).preempt_at for run in (task, firm)] == [None, None]


def test_one_that_does_not_leave_in_time_is_ended_and_counts_as_preempted(here: World) -> None:
    run = submit(here)
    here.settle()
    attempt = here.attempt(run.id)
    with here.context.database.write() as connection:
        phases.ask_preempt(connection, attempt.id, until=here.now + 30, by="ada", why="test", at=here.now)
        phases.update_attempt(connection, attempt.id, seen_at=here.now)
    here.now += 31 + here.settings.kill_watch
    here.tick()
    until(lambda: here.engine.cancelled == [attempt.id], what="the engine's cancel")
    here.engine.says[attempt.id] = JobState.ENDED
    here.tick()
    with here.context.database.read() as connection:
        first = phases.attempt(connection, attempt.id)
    assert first is not None
    assert (first.state, first.reason) == ("preempted", "preempted")


# --- bookkeeping ------------------------------------------------------------------------------------------------------


def test_an_attempt_knows_since_when_its_phase_waited(here: World) -> None:
    put(here, "local", slots=1)
    text = "name: x\nphases:\n- {name: a, command: 'true'}\n- {name: b, command: 'true'}\n"
    run = here.submit(text)
    submitted = here.now
    here.now += 5
    here.settle()
    assert here.attempt(run.id).queued_at == submitted
    here.now += 100
    other = submit(here, "other", "priority: 3\n")
    end(here, run.id, "finished")
    done = here.now
    here.now += 50
    end(here, other.id, "finished")
    assert here.attempt(run.id).number == 2
    assert here.attempt(run.id).queued_at == done


def test_the_slow_tick_leaves_alone_what_just_waits_in_the_queue(here: World) -> None:
    put(here, "local", slots=1)
    text = "name: x\nphases:\n- {name: a, command: 'true'}\n- {name: b, command: 'true'}\n"
    first, second, third = here.submit(text), here.submit(text), here.submit(text)
    here.settle()
    assert here.passes.check_everything() == {first.id}
    here.dirty.clear()
    verbs.pause(here.context, second.id, PauseBody(), ME)
    here.dirty.clear()  # as if the server had died right behind the answer
    here.tick()
    assert here.run_state(second.id) == "waiting"
    with here.context.database.write() as connection:
        [row, _] = phases.of_runs(connection, [third.id])[third.id]
        phases.update(connection, row.id, ready_at=None)  # as an older server has left it
    end(here, first.id, "finished")
    end(here, first.id, "finished")
    assert here.run_state(third.id) == "queued"
    here.tick()
    assert here.run_state(third.id) == "starting"


def test_one_run_whose_spec_can_not_be_read_any_more_stops_nobody_else(here: World) -> None:
    bad, good = submit(here, "bad"), submit(here, "good")
    with here.context.database.write() as connection:
        runs.update(connection, bad.id, spec="name: bad\ncommand: a\nof_an_older_version: 1\n")
    here.settle()
    assert here.run_state(good.id) == "starting"
    assert here.run_state(bad.id) == "queued"


def test_the_engine_gets_the_host_the_devices_and_where_notices_are_asked(here: World) -> None:
    seen: list[Any] = []
    launch = here.engine.launch
    here.engine.launch = lambda given, secrets: (seen.append(given), launch(given, secrets))[1]  # type: ignore[method-assign]
    put(here, "local", slots=0)
    put(here, "spot", slots=4, price=1.0, hosts=hosts(a=2, b=2), devices=[4, 5, 6, 7], notices={"file": "/run/goes"})
    submit(here, "first", "slots: 2\n")
    submit(here, "second", "slots: 2\n")
    here.settle()
    assert [(each.host, each.slots, each.devices) for each in seen] == [("a", [0, 1], [4, 5]), ("b", [2, 3], [6, 7])]
    assert seen[0].notices == {"file": "/run/goes"}


def test_the_same_failure_twice_without_a_checkpoint_between_ends_the_run_with_words(here: World) -> None:
    run = submit(here, "x", "retries: 5\n")
    here.settle()
    for _ in range(2):
        attempt = here.attempt(run.id)
        said = ended("code_raised", exit_code=1, last_step=7)
        ingest.store(here.context, attempt, [Data("runner", 0, said)])
        here.engine.says[attempt.id] = JobState.ENDED
        here.settle()
        here.now += 5
        here.tick()
    assert here.run_state(run.id) == "failed"
    [failed] = told(here, run.id, "run_failed")
    assert "failed twice in the same way at step 7 without a new checkpoint" in failed


def test_a_launch_that_never_comes_up_is_tried_on_the_other_host(two: World) -> None:
    two.engine.broken = unreachable()
    run = submit(two)
    two.settle()
    assert two.attempt(run.id).host == "h1"
    for _ in range(8):
        two.now += 30
        two.tick()
        if two.attempt(run.id).number == 2:
            break
    assert (two.attempt(run.id).number, two.attempt(run.id).host) == (2, "h2")
