"""An engine that takes its time: nobody waits for it, and nothing is lost on the way to it."""

import threading
from collections.abc import Mapping

from whistlestop.domain.errors import Refused
from whistlestop.domain.reasons import EndReason
from whistlestop.engines.base import JobId, JobState
from whistlestop.server.scheduler.patient import Patient
from whistlestop.testing.wait import until
from whistlestop.testing.world import Engine
from whistlestop.wire.launch import Launch


class Slow(Engine):
    """Takes a launch only when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.allowed = threading.Event(), threading.Event()

    def launch(self, launch: Launch, secrets: Mapping[str, str]) -> JobId:
        self.asked.set()
        self.allowed.wait(60)
        return super().launch(launch, secrets)


def test_what_the_cluster_refuses_stays_refused_whatever_it_is_asked() -> None:
    engine, told = Engine(), list[str]()
    engine.broken = Refused("no such partition")
    patient = Patient(engine, told.append)
    job = patient.launch(launch_of("a-1"), {})
    until(lambda: patient.poll([job])[job].state is JobState.DEAD, what="the refusal")
    engine.says["a-2"] = JobState.RUNNING
    until(lambda: JobId("a-2") in patient.poll([job, JobId("a-2")]), what="another one to be polled")
    said = patient.poll([job])[job]
    assert (said.state, said.text, said.reason) == (JobState.DEAD, "no such partition", EndReason.LAUNCH_FAILED)
    assert told[0] == job


def test_what_is_cancelled_while_it_is_handed_over_does_not_stay_there() -> None:
    engine = Slow()
    patient = Patient(engine, lambda job: None)
    job = patient.launch(launch_of("a-1"), {})
    assert engine.asked.wait(60)
    patient.cancel(job)
    assert engine.cancelled == [job]
    engine.allowed.set()
    until(lambda: engine.cancelled == [job, job], what="what came after all to be cancelled")


def test_what_was_forgotten_is_not_asked_for_again_by_who_has_not_heard_of_it_yet() -> None:
    engine = Engine()
    patient = Patient(engine, lambda job: None)
    engine.says |= {"a-1": JobState.ENDED, "a-2": JobState.RUNNING}
    both = [JobId("a-1"), JobId("a-2")]
    until(lambda: len(patient.poll(both)) == 2, what="both to be polled")
    patient.forget(both[0])
    asked: list[set[str]] = []
    engine.poll = lambda jobs: asked.append(set(jobs)) or Engine.poll(engine, jobs)  # type: ignore[method-assign,func-returns-value]
    until(lambda: bool(patient.poll(both)) and asked, what="the next poll")
    assert patient.poll(both)[both[0]].state is JobState.UNKNOWN
    assert asked[-1] == {"a-2"}


def launch_of(attempt: str) -> Launch:
    return Launch(
        attempt_id=attempt,
        attempt_number=1,
        run_id="r-1",
        run_name="one",
        phase="train",
        kind="train",
        command=["true"],
        env={},
        directory="/nowhere",
        workdir="/nowhere",
        checkpoints="/nowhere",
        slots=[0],
        ladder={},
        server="ws://127.0.0.1:1/api/v1/runner",
        token="t",
    )
