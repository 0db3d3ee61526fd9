"""What the scheduler hears of runs with a deadline: from the store, with a clock of its own."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from whistlestop.domain.states import AttemptState, PhaseState
from whistlestop.engines.base import JobState
from whistlestop.server.services import ingest, views
from whistlestop.server.services.deadlines import Deadlines, Found
from whistlestop.server.store import checkpoints, deadlines, events, phases, placing, pools, runs
from whistlestop.testing.world import World, ended, world
from whistlestop.wire.frames import Data, Progress

HOUR, MINUTE = 3600.0, 60.0
SPEC = "name: x\ncommand: a\ndeadline: 10h\nwork: 4h\ncheckpoint: {every: 5 minutes}\ncapacity: {changeover: 4 min}\n"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    """`cheap` is spot, `local` on-demand."""
    with world(tmp_path / "data") as made:
        pool(made, "local", slots=2, price=3.0)
        pool(made, "cheap", slots=2, price=1.0, market="spot", engine="local")
        made.deadlines = Deadlines(made.context)  # type: ignore[attr-defined]
        yield made


def pool(here: World, name: str, **values: Any) -> None:
    with here.context.database.write() as connection:
        pools.put(connection, name, at=here.now, **values)


def asked(here: World) -> Found:
    with here.context.database.read() as connection:
        there = views.pool_facts(connection, placing.live(connection))
        found: Found = here.deadlines.advise(connection, here.now, there)  # type: ignore[attr-defined]
        return found


def queued(here: World, text: str = SPEC) -> str:
    run = here.submit(text)
    here.passes.settle([run.id])
    return run.id


def put_on(here: World, run_id: str, name: str, *, loop: bool = True) -> str:
    """An attempt there, as the scheduler would have written it."""
    with here.context.database.write() as connection:
        phase = phases.of_runs(connection, [run_id])[run_id][0]
        phases.move(connection, phase.id, PhaseState.RUNNING, ready_at=None)
        number = len(phases.attempts_of_runs(connection, [run_id]).get(run_id, [])) + 1
        phases.add_attempt(
            connection, id=f"a{number}", run_id=run_id, phase_id=phase.id, number=number, stage="training", pool=name,
            slots=[0], price=1.0, token_hash=f"t{number}", started_at=here.now,
            loop_at=here.now + 60 if loop else None,
        )  # fmt: skip
    return f"a{number}"


def save(here: World, run_id: str, step: int) -> None:
    with here.context.database.write() as connection:
        checkpoints.add(
            connection, id=f"c{step}-{run_id}", run_id=run_id, phase="main", step=step, attempt=1, path="/none",
            bytes=1, committed_at=here.now, verified=True, metrics={},
        )  # fmt: skip


def trains(here: World, attempt: str, *, step: int, total: int, pace: float) -> None:
    here.context.hub.progress[attempt] = Progress(
        here.now, "training", step, total, progress_at=here.now, loop_started_at=here.now - step * pace
    )


def directive(here: World) -> tuple[tuple[str, ...] | None, str, bool]:
    [said] = asked(here).directives.values()
    return said.pools, said.why, said.escalates


def test_with_time_enough_it_starts_on_spot(here: World) -> None:
    queued(here)
    assert directive(here) == (("cheap",), "spot is the cheapest way to its deadline: 4 h of work in 10 h", False)


def test_with_time_enough_it_waits_for_spot(here: World) -> None:
    pool(here, "cheap", slots=0)
    queued(here, SPEC.replace("10h", "40h"))
    assert directive(here) == ((), "waits for spot, which costs less: 4 h of work in 40 h", False)


def test_when_spot_can_not_make_it_any_more_it_goes_to_on_demand(here: World) -> None:
    queued(here)
    here.now += 5 * HOUR + 50 * MINUTE
    assert directive(here) == (
        ("local", "cheap"),  # it must start now: spot is better than nothing
        "spot can't make the deadline: 4 h of work in 4 h 10 min, a move costs 4 min, a loss 5 min of work: "
        "on-demand pool local from here on",
        True,
    )


def test_what_comes_behind_it_needs_its_time_too(here: World) -> None:
    text = (
        "name: x\ndeadline: 10h\ncapacity: {changeover: 4 min}\nphases:\n"
        "- {name: a, command: a, work: 4h, checkpoint: {every: 5 minutes}}\n"
        "- {name: b, command: b, work: 3h}\n- {name: c, command: c, work: 2h 45 min}\n"
    )
    queued(here, text)
    pools_, why, escalates = directive(here)
    assert (pools_, escalates) == (("local", "cheap"), True)
    assert "4 h of work in 4 h 7 min" in why


def test_of_which_nothing_is_known_does_not_wait(here: World) -> None:
    queued(here, SPEC.replace("work: 4h\n", ""))
    assert asked(here) == Found()


def test_without_both_markets_or_a_deadline_there_is_nothing_to_say(here: World) -> None:
    queued(here, SPEC.replace("deadline: 10h\n", ""))
    queued(here, SPEC.replace("changeover: 4 min", "changeover: 4 min, market: spot"))
    assert asked(here) == Found()


def test_what_saves_nothing_is_planned_as_if_all_of_it_were_lost(here: World) -> None:
    """Eight minutes for two moves, and four hours of work."""
    unsaved = SPEC.replace("checkpoint: {every: 5 minutes}\n", "")
    queued(here, unsaved.replace("10h", "9h"))
    assert directive(here)[0] == ("cheap",)
    here.now += 50 * MINUTE
    assert directive(here)[0] == ("local", "cheap")


def test_how_often_it_saves_in_steps_is_known_with_its_pace_and_then_spot_is_taken(here: World) -> None:
    run = queued(here, SPEC.replace("5 minutes", "100 steps"))
    here.now += 2 * HOUR
    assert directive(here) == (
        ("local", "cheap"),
        "spot can't make the deadline: 4 h of work in 8 h, a move costs 4 min, a loss all of it, as long as nobody "
        "knows how often it saves: on-demand pool local from here on",
        True,
    )
    attempt = put_on(here, run, "local")
    here.now += 12 * MINUTE
    trains(here, attempt, step=200, total=4800, pace=3.0)
    assert asked(here).moves == [], "it has not saved yet"
    save(here, run, 200)
    [move] = asked(here).moves
    assert move.why.startswith("spot is the cheapest way to its deadline: 3 h 50 min of work in 7 h 48 min")


def test_what_it_would_lose_between_two_saves_keeps_it_from_spot_also_when_it_pays(here: World) -> None:
    run = queued(here, SPEC.replace("5 minutes", "2400 steps"))  # two hours
    attempt = put_on(here, run, "local")
    here.now += 4 * HOUR + 12 * MINUTE
    trains(here, attempt, step=200, total=4800, pace=3.0)
    save(here, run, 200)
    assert asked(here).moves == [], "3 h 50 min of work in 5 h 48 min: two hours more do not fit in"


def test_a_deadline_that_nothing_can_keep_is_said_to_be_one(here: World) -> None:
    queued(here, SPEC.replace("deadline: 10h", "deadline: 3h"))
    assert directive(here)[1] == (
        "the deadline can't be kept: 4 h of work in 3 h, a move costs 4 min, a loss 5 min of work: on-demand "
        "pool local comes closest"
    )


def test_when_both_are_full_it_takes_what_comes(here: World) -> None:
    pool(here, "cheap", slots=0)
    pool(here, "local", slots=0)
    queued(here)
    assert asked(here) == Found()


def test_its_own_pace_counts_as_soon_as_it_is_known(here: World) -> None:
    """Slower than was thought: at the last moment it leaves spot, if it has saved."""
    run = queued(here)
    attempt = put_on(here, run, "cheap")
    here.now += 5 * HOUR
    trains(here, attempt, step=1000, total=1960, pace=18.0)  # 4 h 48 min are left, in 5 h
    assert asked(here).moves == []
    save(here, run, 990)
    assert asked(here).moves == []
    here.now += 6 * MINUTE
    trains(here, attempt, step=1000, total=1960, pace=18.0)
    [move] = asked(here).moves
    assert move.attempt_id == attempt
    assert move.why == (
        "spot can't make the deadline: 4 h 48 min of work in 4 h 54 min, a move costs 60 s, "
        "a loss 3 min of work: on-demand pool local from here on"
    )


def test_nobody_is_moved_twice(here: World) -> None:
    run = queued(here)
    attempt = put_on(here, run, "cheap")
    save(here, run, 10)
    here.now += 9 * HOUR
    trains(here, attempt, step=1000, total=1195, pace=18.0)
    assert [move.attempt_id for move in asked(here).moves] == [attempt]
    with here.context.database.write() as connection:
        phases.ask_preempt(connection, attempt, until=here.now + 60, by="system", why="so", at=here.now)
    assert asked(here).moves == []


def test_on_demand_is_left_for_spot_when_there_is_time_again(here: World) -> None:
    run = queued(here, SPEC.replace("deadline: 10h", "deadline: 30h"))
    attempt = put_on(here, run, "local")
    save(here, run, 10)
    here.now += 5 * MINUTE
    trains(here, attempt, step=100, total=5000, pace=3.0)
    assert asked(here).moves == [], "it has only just come"
    here.now += 10 * MINUTE
    trains(here, attempt, step=300, total=5000, pace=3.0)
    [move] = asked(here).moves
    assert move.why.startswith("spot is the cheapest way to its deadline: 3 h 55 min of work in")


def test_a_changeover_is_as_long_as_the_last_ones_were(here: World) -> None:
    """Three minutes to the loop, and 100 steps of six seconds again."""
    run = queued(here)
    for loop, resumed, last in ((180, None, 500), (180, 400, 600)):
        attempt = put_on(here, run, "cheap")
        with here.context.database.write() as connection:
            phases.update_attempt(
                connection, attempt, loop_at=here.now + loop, resumed_from=resumed, last_step=last, state="preempted",
                reason="preempted", ended_at=here.now + HOUR,
                progress={"step": last, "total": 2400, "resumed_step": resumed or 0, "loop_started_at": here.now,
                          "progress_at": here.now + (last - (resumed or 0)) * 6.0},
            )  # fmt: skip
        here.now += HOUR
        with here.context.database.write() as connection:
            phase = phases.of_runs(connection, [run])[run][0]
            phases.move(connection, phase.id, PhaseState.PENDING, ready_at=here.now)
    save(here, run, 600)
    here.now = 1_000_000.0 + 6 * HOUR + 45 * MINUTE
    pools_, why, _ = directive(here)
    assert pools_ == ("local", "cheap")
    assert "3 h of work in 3 h 15 min, a move costs 13 min" in why


def test_a_pool_that_takes_its_slots_back_all_the_time_is_not_for_a_deadline(here: World) -> None:
    """Every minute, where a move costs four: it is waited for until it has become steadier, or until time is short."""
    here.now += 6 * HOUR
    run = queued(here, SPEC.replace("10h", "5h 30 min"))
    began = here.now
    with here.context.database.write() as connection:
        phase = phases.of_runs(connection, [run])[run][0]
        for number in range(1, 60):
            phases.add_attempt(
                connection, id=f"a{number}", run_id=run, phase_id=phase.id, number=number, stage="training",
                pool="cheap", slots=[0], price=1.0, token_hash=f"t{number}", started_at=began - number * 60,
            )  # fmt: skip
            phases.end_attempt(
                connection,
                f"a{number}",
                AttemptState.PREEMPTED,
                reason="preempted",
                ended_at=began - number * 60 + 50,
            )
    here.context.hub.ends += 1
    assert directive(here) == (
        (),
        "waits: the spot that is there goes too soon to be worth a move of 4 min: 4 h of work in 5 h 30 min",
        False,
    )
    here.now += 70 * MINUTE
    assert directive(here)[0] == ("cheap",), "it has stayed for more than an hour now"
    with here.context.database.write() as connection:
        phases.update_attempt(connection, "a1", ended_at=here.now - 20)
    here.context.hub.ends += 1
    assert directive(here)[0] == ()
    here.now += 8 * MINUTE
    assert directive(here)[::2] == (("local", "cheap"), True)


def test_many_at_once_are_not_waited_for(here: World) -> None:
    """A look makes few policies anew; the others are answered by arithmetic until their turn comes."""
    pool(here, "cheap", slots=8)
    for _ in range(8):
        queued(here)
    assert {said.pools for said in asked(here).directives.values()} == {("cheap",)}
    assert len(asked(here).directives) == 8


def told(here: World, run_id: str, kind: str) -> list[str]:
    with here.context.database.read() as connection:
        rows = events.of_run(connection, run_id)
    return [row.text for row in rows if row.kind == kind]


def test_a_deadline_that_spot_can_not_keep_is_kept_by_on_demand(here: World) -> None:
    """Through the whole scheduler: spot, lost; waited for; then on-demand, in time, each with its reasons."""
    run = here.submit(SPEC).id
    here.tick()
    first = here.attempt(run)
    assert first.pool == "cheap"
    here.now += HOUR
    with here.context.database.write() as connection:
        phases.update_attempt(
            connection, first.id, loop_at=first.started_at + 60, last_step=1000,
            progress={"step": 1000, "total": 4000, "loop_started_at": first.started_at + 60, "progress_at": here.now},
        )  # fmt: skip
    save(here, run, 990)
    pool(here, "cheap", slots=0)
    ingest.store(here.context, here.attempt(run), [Data("runner", 0, ended("preempted", last_step=1000))])
    here.engine.says[first.id] = JobState.ENDED
    here.tick()
    assert here.run_state(run) == "queued"
    with here.context.database.read() as connection:
        waits = views.run_view(here.context, connection, runs.get(connection, run)).queue
    assert waits is not None
    assert waits.waits_for.startswith("waits for spot, which costs less: 2 h 58 min of work in 9 h")
    here.now += 5.5 * HOUR
    for _ in range(30):
        here.now += 2 * MINUTE
        here.tick()
        if here.run_state(run) != "queued":
            break
    assert here.attempt(run).pool == "local"
    assert here.now + 2.97 * HOUR + 2 * MINUTE < 1_000_000.0 + 10 * HOUR, "it is late"
    [why] = told(here, run, "escalated")
    assert "on-demand pool local" in why
    assert any("pool local" in text for text in told(here, run, "placed"))


def test_an_attempt_that_is_too_slow_for_spot_is_asked_to_leave_in_time(here: World) -> None:
    run = here.submit(SPEC).id
    here.tick()
    attempt = here.attempt(run)
    with here.context.database.write() as connection:
        phases.update_attempt(connection, attempt.id, loop_at=here.now + 60)
    save(here, run, 990)
    here.now += 5 * HOUR + 6 * MINUTE
    trains(here, attempt.id, step=1000, total=1960, pace=18.0)
    here.tick()
    [asked_to] = told(here, run, "preempt_requested")
    assert "spot can't make the deadline: 4 h 48 min of work in 4 h 54 min" in asked_to
    assert here.attempt(run).preempt_at is not None


def test_estimates_that_grow_are_followed_few_at_a_time(here: World) -> None:
    pool(here, "cheap", slots=8)
    found = [queued(here, SPEC.replace("deadline: 10h", "deadline: 30h")) for _ in range(8)]
    for _ in range(3):
        asked(here)
    known = list(here.deadlines._policies.values())  # type: ignore[attr-defined]
    assert len(known) == len(found)
    with here.context.database.write() as connection:
        for run in found:
            spec = runs.get(connection, run).spec
            runs.update(connection, run, spec=spec.replace("work: 4h", "work: 8h"))
    made = []
    for _ in range(3):
        asked(here)
        made.append(sum(1 for each in known if each._outlooks))
    assert made == [3, 6, 8], "the others wait for their turn"


def test_what_has_done_all_its_steps_starts_again_for_what_comes_behind_them(here: World) -> None:
    run = queued(here)
    with here.context.database.write() as connection:
        phases.add_attempt(
            connection, id="a1", run_id=run, phase_id=phases.of_runs(connection, [run])[run][0].id, number=1,
            stage="training", pool="cheap", slots=[0], price=1.0, token_hash="t", started_at=here.now,
            progress={"step": 100, "total": 100, "loop_started_at": here.now - 200, "progress_at": here.now},
        )  # fmt: skip
        phases.end_attempt(connection, "a1", AttemptState.LOST, reason="host_lost", ended_at=here.now)
    save(here, run, 100)
    assert directive(here)[0] == ("cheap",)


def test_a_host_that_is_excluded_is_no_way_to_keep_a_deadline(here: World) -> None:
    run = queued(here)
    attempt = put_on(here, run, "cheap")
    save(here, run, 10)
    here.now += 9 * HOUR
    trains(here, attempt, step=1000, total=1195, pace=18.0)
    here.context.hub.shut = {("local", ""): "by somebody"}
    assert asked(here).moves == []
    here.context.hub.shut = {}
    assert [move.pool for move in asked(here).moves] == ["local"]


def test_what_would_be_lost_counts(here: World) -> None:
    """An hour to spare, and nearly as much of it unsaved: the last moment at which a loss can be made up for."""
    run = queued(here, SPEC.replace("4h\n", "9h\n").replace("5 minutes", "2 hours"))
    attempt = put_on(here, run, "cheap")
    save(here, run, 10)
    here.now += HOUR
    trains(here, attempt, step=210, total=1810, pace=18.0)  # 8 of 9 hours are left, an hour of work is unsaved
    [move] = asked(here).moves
    assert "8 h of work in 9 h, a move costs 60 s, a loss 60 min of work" in move.why.replace(
        "1 h of work:", "60 min of work:"
    )
    save(here, run, 205)
    assert asked(here).moves == []


def test_one_slot_is_not_promised_to_two(here: World) -> None:
    pool(here, "local", slots=1)
    for _ in range(2):
        queued(here)
    here.now += 5 * HOUR + 50 * MINUTE
    firsts = [said.pools[0] for said in asked(here).directives.values() if said.pools]
    assert sorted(firsts) == ["cheap", "local"]


def test_one_slot_is_not_promised_to_two_that_run(here: World) -> None:
    """The first is on its way there for many looks; the second stays on spot, which is better than nothing."""
    pool(here, "local", slots=1)
    first, second = [here.submit(SPEC).id for _ in range(2)]
    here.tick()
    for run in (first, second):
        with here.context.database.write() as connection:
            phases.update_attempt(connection, here.attempt(run).id, loop_at=here.now + 60)
        save(here, run, 990)
    here.now += 5 * HOUR + 6 * MINUTE
    for _ in range(3):
        for run in (first, second):
            trains(here, here.attempt(run).id, step=1000, total=1960, pace=18.0)
        here.tick()
        here.now += 5
    assert [len(told(here, run, "preempt_requested")) for run in (first, second)] == [1, 0]
    ingest.store(here.context, here.attempt(first), [Data("runner", 0, ended("preempted", last_step=1000))])
    here.tick()
    assert [here.attempt(run).pool for run in (first, second)] == ["local", "cheap"]
    assert told(here, second, "preempt_requested") == []


def test_a_clock_that_was_set_back_gives_no_time_for_a_changeover(here: World) -> None:
    run = queued(here)
    attempt = put_on(here, run, "cheap")
    with here.context.database.write() as connection:
        phases.update_attempt(connection, attempt, loop_at=here.now - 60, state="preempted", ended_at=here.now + 60)
        [phase] = phases.of_runs(connection, [run])[run]
        phases.move(connection, phase.id, PhaseState.PENDING, ready_at=here.now)
    assert directive(here)[0] == ("cheap",)


def test_who_starts_anew_has_nothing_to_go_back_to(here: World) -> None:
    run = queued(here)
    attempt = put_on(here, run, "cheap")
    save(here, run, 10)
    here.now += 9 * HOUR
    with here.context.database.write() as connection:
        phases.update_attempt(connection, attempt, fresh=True)
    trains(here, attempt, step=1000, total=1195, pace=18.0)
    assert asked(here).moves == []


def test_a_rehearsed_loss_is_no_loss_of_the_pool(here: World) -> None:
    here.now += 6 * HOUR
    run = queued(here)
    with here.context.database.write() as connection:
        phase = phases.of_runs(connection, [run])[run][0]
        for number in range(1, 40):
            phases.add_attempt(
                connection, id=f"a{number}", run_id=run, phase_id=phase.id, number=number, stage="training",
                pool="cheap", slots=[0], price=1.0, token_hash=f"t{number}", started_at=here.now - number * 60,
            )  # fmt: skip
            phases.end_attempt(
                connection, f"a{number}", AttemptState.PREEMPTED, reason="preempted", ended_at=here.now - number * 60,
                preempt_by="somebody",
            )  # fmt: skip
    here.context.hub.ends += 1
    assert directive(here)[0] == ("cheap",)


def test_of_many_attempts_the_newest_are_read_and_the_one_that_lives(here: World) -> None:
    run = queued(here)
    for number in range(1, 41):
        attempt = put_on(here, run, "cheap", loop=number % 2 == 0)
        with here.context.database.write() as connection:
            phases.end_attempt(connection, attempt, AttemptState.PREEMPTED, reason="preempted", ended_at=here.now)
    put_on(here, run, "cheap", loop=False)
    with here.context.database.read() as connection:
        found = deadlines.attempts_of_runs(connection, [run], newest=5)
    assert [row.number for row in found[run]] == [34, 36, 38, 40, 41]
    reads = []
    with here.context.database.read() as connection:
        sa.event.listen(connection, "before_cursor_execute", lambda *said: reads.append(said[2]))
        there = views.pool_facts(connection, placing.live(connection))
        here.deadlines.advise(connection, here.now, there)  # type: ignore[attr-defined]
    assert not [read for read in reads if "attempts.progress" in read and "rank" not in read]


def test_a_web_of_phases_is_looked_through_once(here: World) -> None:
    layers = [[f"p{layer}-{each}" for each in range(4)] for layer in range(24)]
    lines = ["name: x", "deadline: 100h", "capacity: {changeover: 1 s}", "phases:"]
    for above, names in zip([["first"], *layers], [["first"], *layers][1:], strict=False):
        lines += [f"- {{name: {name}, command: a, work: 1h, needs: [{', '.join(above)}]}}" for name in names]
    lines.insert(4, "- {name: first, command: a, work: 1h, checkpoint: {every: 5 minutes}}")
    queued(here, "\n".join(lines) + "\n")
    began = time.monotonic()
    assert "1 h of work in 76 h" in directive(here)[1]
    assert time.monotonic() - began < 20


def test_one_run_that_can_not_be_read_is_not_the_others_trouble(here: World) -> None:
    bad, _ = queued(here), queued(here)
    with here.context.database.write() as connection:
        runs.update(connection, bad, spec="name: [")
    assert directive(here)[0] == ("cheap",)
