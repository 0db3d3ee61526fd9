"""What every engine promises, as tests. An engine's own test module imports them all and gives a `kit` fixture."""

import os
import signal
import threading

from runner_kit import Kit, until

from whistlestop.engines.base import JobId, JobState
from whistlestop.wire.frames import Order


def test_a_launched_attempt_runs_and_ends_in_good_order(kit: Kit) -> None:
    job = kit.launch("/bin/sh", "-c", "echo hello; exit 0")
    assert kit.ended()["reason"] == "finished"
    kit.wait_done(job)
    assert kit.peer.texts() == ["hello"]


def test_an_attempt_that_was_never_launched_is_unknown(kit: Kit) -> None:
    assert kit.state(JobId("a-never")) is JobState.UNKNOWN


def test_many_jobs_are_polled_in_one_question(kit: Kit) -> None:
    jobs = [kit.launch("sleep", "1000") for _ in range(3)]
    until(lambda: all(kit.state(job) is JobState.RUNNING for job in jobs), "all to run")
    answer = kit.engine.poll([*jobs, JobId("a-never")])
    assert [answer[job].state for job in jobs] == [JobState.RUNNING] * 3
    assert answer[JobId("a-never")].state is JobState.UNKNOWN


def test_launching_again_while_it_lives_changes_nothing(kit: Kit) -> None:
    job = kit.launch("sleep", "1000")
    until(lambda: kit.alive(job), "the program")
    kit.engine.launch(kit.describe("sleep", "2000", attempt_id=job), {})
    assert len(kit.peer.hellos) <= 1
    assert len(kit.alive(job)) == 1


def test_launching_again_after_its_end_changes_nothing(kit: Kit) -> None:
    job = kit.launch("true")
    kit.wait_done(job)
    connected = len(kit.peer.hellos)
    kit.engine.launch(kit.describe("sleep", "1000", attempt_id=job), {})
    assert kit.state(job) is JobState.ENDED
    assert len(kit.peer.hellos) == connected


def test_racing_launches_start_one_runner(kit: Kit) -> None:
    wanted = kit.describe("/bin/sh", "-c", "echo once; sleep 1000")
    threads = [threading.Thread(target=kit.engine.launch, args=(wanted, {})) for _ in range(8)]
    kit.jobs.append(JobId(wanted.attempt_id))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: kit.peer.texts() == ["once"], "the program")
    assert len({hello.pid for hello in kit.peer.hellos}) == 1


def test_cancel_ends_the_runner_and_everything_below_it(kit: Kit) -> None:
    job = kit.launch("/bin/sh", "-c", "setsid sleep 1000 & sleep 1000 & echo up; sleep 1000")
    until(lambda: "up" in kit.peer.texts(), "the program")
    kit.engine.cancel(job)
    assert kit.alive(job) == []
    assert kit.state(job) is JobState.DEAD


def test_cancelling_what_is_gone_is_not_an_error(kit: Kit) -> None:
    job = kit.launch("true")
    kit.wait_done(job)
    kit.engine.cancel(job)
    kit.engine.cancel(JobId("a-never"))
    assert kit.state(job) is JobState.ENDED


def test_a_dead_runner_is_salvaged_and_its_end_is_reported(kit: Kit) -> None:
    job = kit.launch("/bin/sh", "-c", "setsid sleep 1000 & echo up; sleep 1000")
    until(lambda: "up" in kit.peer.texts(), "the program")
    kit.engine.cancel(job)
    kit.engine.salvage(job)
    if not kit.engine.can.salvage:
        assert kit.state(job) is JobState.DEAD
        return
    assert kit.ended()["reason"] == "runner_lost"
    kit.wait_done(job)


def test_salvage_does_nothing_while_a_runner_lives(kit: Kit) -> None:
    job = kit.launch("sleep", "1000")
    until(lambda: "program_started" in kit.peer.kinds(), "the program")
    kit.engine.salvage(job)
    kit.peer.send(Order(seq=1, stop=3, actor="ann"))
    assert kit.ended()["reason"] == "killed"
    assert len({hello.pid for hello in kit.peer.hellos}) == 1


def test_forgetting_removes_what_was_kept(kit: Kit) -> None:
    job = kit.launch("true")
    kit.wait_done(job)
    gone = (JobState.UNKNOWN,) if kit.engine.can.salvage else (JobState.UNKNOWN, JobState.ENDED)  # by itself, later
    until(lambda: (kit.engine.forget(job), kit.state(job))[1] in gone, "it to be forgotten")


def test_a_runner_that_is_told_that_its_capacity_goes_leaves_in_good_order(kit: Kit) -> None:
    job = kit.launch("sleep", "1000")
    until(lambda: "program_started" in kit.peer.kinds(), "the program")
    os.kill(kit.runner_pid(job), signal.SIGTERM)
    assert kit.ended()["reason"] == "preempted"
    kit.wait_done(job)


def test_a_new_engine_finds_what_the_one_before_has_launched(kit: Kit) -> None:
    job = kit.launch("sleep", "1000")
    until(lambda: kit.alive(job), "the program")
    after = kit.fresh()
    assert after.poll([job])[job].state is JobState.RUNNING
    after.launch(kit.describe("sleep", "2000", attempt_id=job), {})
    assert len({hello.pid for hello in kit.peer.hellos}) <= 1
    after.cancel(job)
    assert kit.alive(job) == []
