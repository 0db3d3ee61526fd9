"""What a cluster says of its jobs beyond that they live: that they wait, and that their capacity goes."""

import sqlalchemy as sa

from whistlestop.engines.base import JobId, JobState, Notice
from whistlestop.server.services import hosts, ingest, launches, pools, verbs
from whistlestop.server.store import events, phases
from whistlestop.server.store.schema import attempts
from whistlestop.testing.wait import until
from whistlestop.testing.world import ME, World, unreachable
from whistlestop.wire.api import KillBody, PauseBody
from whistlestop.wire.pools import ExcludeBody, NewPool


def started(here: World, state: JobState) -> tuple[str, str]:
    run = here.submit().id
    here.settle()
    attempt = str(here.attempt(run).id)
    here.engine.says[attempt] = state
    return run, attempt


def told(here: World, run: str) -> list[str]:
    with here.context.database.read() as connection:
        return [row.text for row in events.of_run(connection, run, kinds=["notice"])]


def test_a_cluster_that_takes_a_node_back_gives_its_attempts_notice_once(here: World) -> None:
    run, attempt = started(here, JobState.RUNNING)
    here.engine.notices[attempt] = Notice(here.now + 90.0, "Ray drains node 10.0.0.7")
    here.tick()
    here.tick()
    order = ingest.order(here.context, attempt)
    assert (order.preempt_deadline, order.preempt_why) == (here.now + 90.0, "Ray drains node 10.0.0.7")
    (event,) = told(here, run)
    assert "Ray drains node 10.0.0.7" in event
    assert here.attempt(run).preempt_by == "", "nobody has asked for it: it counts as the pool's own"


def test_a_notice_without_a_time_leaves_enough_to_save(here: World) -> None:
    _, attempt = started(here, JobState.RUNNING)
    here.engine.notices[attempt] = Notice(0.0, "Ray drains node 10.0.0.7")
    here.tick()
    assert ingest.order(here.context, attempt).preempt_deadline > here.now + 60.0


def test_a_cluster_is_told_which_hosts_to_leave_out(here: World) -> None:
    _, attempt = started(here, JobState.RUNNING)
    pools.add(here.context, NewPool(name="ray", slots=8, ray={"address": "10.0.0.1:6379"}))
    with here.context.database.write() as connection:
        phases.update_attempt(connection, attempt, pool="ray", host="10.0.0.7")
    hosts.exclude(here.context, "ray", "10.0.0.7", ExcludeBody(for_s=60.0), ME)
    with here.context.database.read() as connection:
        assert [each.excluded for each in hosts.views(here.context, connection) if each.name == "10.0.0.7"] == [True]
    avoid = launches.build(here.context, attempt, "token", "http://127.0.0.1:1")[0].avoid
    here.now += 61.0
    later = launches.build(here.context, attempt, "token", "http://127.0.0.1:1")[0].avoid
    assert (avoid, later) == (["10.0.0.7"], [])


def test_what_waits_in_a_cluster_is_withdrawn_as_soon_as_it_is_killed(here: World) -> None:
    run, attempt = started(here, JobState.PENDING)
    verbs.kill(here.context, run, KillBody(), ME)
    here.passes.jobs.withdraw([run])
    until(lambda: here.engine.cancelled == [attempt], what="it to be withdrawn")
    here.engine.says[attempt] = JobState.UNKNOWN
    here.tick()
    assert here.run_state(run) == "killed"


def test_what_waits_in_a_cluster_is_withdrawn_as_soon_as_it_is_paused(here: World) -> None:
    run, attempt = started(here, JobState.PENDING)
    verbs.pause(here.context, run, PauseBody(), ME)
    here.passes.jobs.withdraw([run])
    until(lambda: here.engine.cancelled == [attempt], what="it to be withdrawn")
    here.engine.says[attempt] = JobState.UNKNOWN
    here.tick()
    assert here.run_state(run) == "waiting"


def test_one_that_has_begun_is_not_withdrawn_but_asked(here: World) -> None:
    run, attempt = started(here, JobState.PENDING)
    with here.context.database.write() as connection:
        connection.execute(sa.update(attempts).values(seen_at=here.now))
    verbs.kill(here.context, run, KillBody(), ME)
    here.passes.jobs.withdraw([run])
    here.tick()
    assert here.engine.cancelled == []
    assert ingest.order(here.context, attempt).stop > 0


def test_a_cluster_that_is_away_keeps_no_other_one_from_forgetting(here: World) -> None:
    """However much of its own waits to be forgotten."""
    _, attempt = started(here, JobState.RUNNING)
    with here.context.database.write() as connection:
        row = connection.execute(sa.select(attempts).where(attempts.c.id == attempt)).mappings().one()
        away = {**row, "pool": "away", "state": "completed", "ended_at": here.now - 1}
        for number in range(250):
            own = {"id": f"a-{number:04}", "number": 100 + number, "token_hash": str(number)}
            connection.execute(attempts.insert().values({**away, **own}))
        ours = {**row, "id": "a-ours", "number": 99, "token_hash": "ours", "state": "completed", "ended_at": here.now}
        connection.execute(attempts.insert().values(ours))
        found = {each.id for each in phases.unforgotten(connection)}
        assert "a-ours" in found
        assert len(found) == 201
        assert attempt not in found


def test_attempts_that_can_t_be_forgotten_keep_no_others_from_it(here: World) -> None:
    """Of one cluster: a node of it does not answer, the others do."""
    stuck, asked = {"a-1", "a-2", "a-3"}, list[str]()

    def forget(job: str) -> None:
        asked.append(job)
        if job in stuck:
            raise unreachable()

    here.engine.forget = forget  # type: ignore[method-assign,assignment]
    jobs = [JobId(f"a-{number}") for number in (1, 2, 3, 4)]
    here.passes.jobs._forget_now(here.engine, jobs, {})
    assert asked == ["a-1", "a-2", "a-3"]
    here.passes.jobs._forget_now(here.engine, jobs, {})
    assert asked[3:5] == ["a-4", "a-1"]
