"""Attempts on a cluster: nobody can look at their hosts, and their runners end by themselves when they reach nobody."""

import asyncio

import pytest

from whistlestop.domain.reasons import EndReason
from whistlestop.engines.base import Can, JobState, JobStatus, Notice
from whistlestop.server.services import ingest, preempting, verbs
from whistlestop.server.services.hub import node_topic
from whistlestop.server.store import events, nodes, phases
from whistlestop.testing.wait import until
from whistlestop.testing.world import ME, World
from whistlestop.wire.api import KillBody, PauseBody

LEASE = 30.0


@pytest.fixture
def cluster(here: World) -> World:
    here.engine.can = Can(prove_end=True, salvage=False, lease=LEASE)
    here.now += 10_000  # since the server came up
    return here


def launched(here: World, *, seen: bool = True) -> str:
    run = here.submit().id
    here.settle()
    if seen:
        with here.context.database.write() as connection:
            phases.update_attempt(connection, here.attempt(run).id, seen_at=here.now)
        here.context.hub.heard(here.attempt(run).id, 0, here.now)
    return run


def reason(here: World, run: str) -> str | None:
    with here.context.database.read() as connection:
        found: str | None = phases.attempts_of_runs(connection, [run])[run][0].reason
    return found


@pytest.mark.parametrize(("state", "why"), [(JobState.LOST, "host_lost"), (JobState.UNKNOWN, "runner_lost")])
def test_what_is_lost_or_forgotten_ends_when_its_lease_is_over(cluster: World, state: JobState, why: str) -> None:
    run = launched(cluster)
    cluster.engine.says[cluster.attempt(run).id] = state
    cluster.now += LEASE + 4
    cluster.tick()
    assert reason(cluster, run) is None
    cluster.now += 2
    cluster.tick()
    assert reason(cluster, run) == why


def test_a_runner_that_only_the_cluster_could_hear_has_its_lease_from_the_cluster(cluster: World) -> None:
    run = launched(cluster)
    cluster.now += 3600  # the link is cut; the cluster counts on it all the time
    cluster.tick()
    assert reason(cluster, run) is None
    cluster.engine.says[cluster.attempt(run).id] = JobState.LOST
    cluster.now += LEASE
    cluster.tick()
    assert reason(cluster, run) is None, "it may have asked the cluster just before that took it for lost"
    cluster.now += 6
    cluster.tick()
    assert reason(cluster, run) == "host_lost"


def test_one_lost_node_of_several_is_ended_though_the_others_live(cluster: World) -> None:
    run = cluster.submit("name: x\ncommand: 'true'\nnodes: 2\n").id
    cluster.settle()
    attempt = cluster.attempt(run).id
    with cluster.context.database.write() as connection:
        for node in (0, 1):
            nodes.seen(connection, attempt, node, host=f"n{node}", at=cluster.now)
    cluster.engine.says[attempt] = JobStatus(JobState.RUNNING, nodes=(JobState.RUNNING, JobState.LOST))
    cluster.now += LEASE + 4
    cluster.tick()
    assert ended(cluster, attempt) == {}
    cluster.now += 2
    cluster.tick()
    assert ended(cluster, attempt) == {1: "host_lost"}
    assert "node 1 has ended" in ingest.order(cluster.context, attempt).leave


def ended(here: World, attempt: str) -> dict[int, str]:
    with here.context.database.read() as connection:
        return {row.node: row.reason for row in nodes.ended(connection, attempt)}


def test_what_a_newer_start_says_does_not_end_a_runner_that_talks_to_us(cluster: World) -> None:
    run = launched(cluster)
    attempt = cluster.attempt(run).id

    async def connected() -> None:
        with cluster.context.hub.listen(attempt, node_topic(attempt, 0)):
            cluster.passes.jobs.could_not_start(attempt, 0, "no room on its disk", unfit=False)
            cluster.engine.says[attempt] = JobState.ENDED
            cluster.now += 3600
            cluster.tick()

    asyncio.run(connected())
    assert reason(cluster, run) is None


def test_an_engine_that_proves_its_word_needs_no_lease(here: World) -> None:
    run = launched(here)
    here.engine.says[here.attempt(run).id] = JobState.UNKNOWN
    here.tick()
    assert reason(here, run) == "runner_lost"


@pytest.mark.parametrize(("verb", "why"), [("kill", "killed"), ("pause", "paused")])
def test_what_waits_in_a_cluster_is_called_off_at_once_and_costs_nothing(cluster: World, verb: str, why: str) -> None:
    run = launched(cluster, seen=False)
    attempt = cluster.attempt(run)
    cluster.engine.says[attempt.id] = JobStatus(JobState.PENDING, "the nodes are busy")
    cluster.tick()
    if verb == "kill":
        verbs.kill(cluster.context, run, KillBody(), ME)
    else:
        verbs.pause(cluster.context, run, PauseBody(), ME)
    cluster.tick()
    until(lambda: attempt.id in cluster.engine.cancelled, what="its job to be cancelled")
    cluster.engine.says[attempt.id] = JobStatus(JobState.DEAD, "it was cancelled", reclaimed=True)
    cluster.tick()
    assert reason(cluster, run) == why
    ended = cluster.attempt(run)
    assert ended.ended_at == ended.started_at


def test_time_in_a_clusters_queue_is_free(cluster: World) -> None:
    run = launched(cluster, seen=False)
    cluster.engine.says[cluster.attempt(run).id] = JobStatus(JobState.PENDING, "the nodes are busy")
    for _ in range(10):
        cluster.now += 600
        cluster.tick()
    assert cluster.attempt(run).started_at == cluster.now
    with cluster.context.database.read() as connection:
        said = [row.text for row in events.of_run(connection, run) if row.kind == "pending"]
    assert said == ["attempt 1 waits in pool local: the nodes are busy"]


def test_what_a_cluster_refuses_fails_in_its_words_and_costs_nothing(cluster: World) -> None:
    run = launched(cluster, seen=False)
    attempt = cluster.attempt(run)
    refused = JobStatus(JobState.DEAD, "Slurm does not take it: invalid partition", reason=EndReason.LAUNCH_FAILED)
    cluster.engine.says[attempt.id] = refused
    cluster.now += 60
    cluster.tick()
    assert reason(cluster, run) == "launch_failed"
    with cluster.context.database.read() as connection:
        first = phases.attempts_of_runs(connection, [run])[run][0]
    assert first.text == refused.text
    assert first.ended_at == first.started_at


@pytest.mark.parametrize("state", [JobState.LOST, JobState.ENDED])
def test_what_has_to_leave_before_its_runner_was_heard_of_is_preempted_and_not_lost(
    cluster: World, state: JobState
) -> None:
    run = launched(cluster, seen=False)
    attempt = cluster.attempt(run).id
    cluster.engine.says[attempt] = JobStatus(JobState.RUNNING, notice=Notice(cluster.now + 5, "Ray drains node n1"))
    cluster.tick()
    cluster.engine.says[attempt] = state
    cluster.now += LEASE + 6
    cluster.tick()
    assert reason(cluster, run) == "preempted"


def gang(here: World) -> tuple[str, str]:
    run = here.submit("name: x\ncommand: 'true'\nnodes: 2\n").id
    here.settle()
    return run, str(here.attempt(run).id)


def test_a_node_of_several_that_has_to_leave_before_its_runner_was_heard_of_is_preempted(cluster: World) -> None:
    _, attempt = gang(cluster)
    with cluster.context.database.write() as connection:
        nodes.seen(connection, attempt, 0, host="n0", at=cluster.now)
    preempting.goes(cluster.context, attempt, until=cluster.now + 5, why="Ray drains node n1")
    cluster.engine.says[attempt] = JobStatus(JobState.LOST, nodes=(JobState.LOST, JobState.LOST))
    cluster.now += LEASE + 6
    cluster.tick()
    assert ended(cluster, attempt) == {0: "host_lost", 1: "preempted"}


def test_a_node_that_is_told_to_leave_before_it_has_booted_explains_nothing(cluster: World) -> None:
    """It is refused when it asks for its part. The end is that of the node for whose sake it was told."""
    run, attempt = gang(cluster)
    cluster.passes.jobs.could_not_start(attempt, 0, "no room on its disk", unfit=True)
    cluster.engine.says[attempt] = JobState.ENDED
    cluster.now += 3600
    cluster.tick()
    assert ended(cluster, attempt) == {0: "prepare_failed", 1: "launch_failed"}
    assert reason(cluster, run) == "prepare_failed"


def test_a_node_that_says_that_it_had_to_leave_before_it_was_there_is_preempted(cluster: World) -> None:
    run = launched(cluster, seen=False)
    attempt = cluster.attempt(run).id
    cluster.passes.jobs.could_not_start(attempt, 0, "SIGTERM came", unfit=False, left=True)
    assert reason(cluster, run) == "preempted"
