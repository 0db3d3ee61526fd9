"""An engine that takes its time: nobody waits for it, and nothing is lost on the way to it."""

import threading
from collections.abc import Collection, Mapping

from whistlestop.domain.errors import Refused
from whistlestop.domain.reasons import EndReason
from whistlestop.engines.base import JobId, JobState, JobStatus
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
        self.allowed.wait()
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


class Stuck(Engine):
    """Salvages and cancels never come to an end: a node does not answer. Everything else is quick."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs: set[str] = set()
        self.over = threading.Event()

    def salvage(self, job: JobId) -> None:
        self._hang("salvage")

    def cancel(self, job: JobId) -> None:
        super().cancel(job)
        self._hang("cancel")

    def _hang(self, what: str) -> None:
        self.hangs.add(what)
        self.over.wait()


def test_a_salvage_that_takes_long_keeps_no_other_run_waiting() -> None:
    engine = Stuck()
    patient = Patient(engine, lambda job: None)
    patient.salvage(JobId("a-1"))
    until(lambda: "salvage" in engine.hangs, what="the salvage")
    job = patient.launch(launch_of("a-2"), {})
    until(
        lambda: patient.poll([job])[job].state is JobState.RUNNING,
        what="the other run to be launched and polled",
        within=20,
    )
    engine.over.set()


def test_a_cancel_that_takes_long_keeps_no_other_run_waiting() -> None:
    """Of one that was cancelled while it was handed over: nobody waits for that."""

    class Both(Slow, Stuck):
        pass

    engine = Both()
    patient = Patient(engine, lambda job: None)
    job = patient.launch(launch_of("a-1"), {})
    assert engine.asked.wait(60)
    first = threading.Thread(target=patient.cancel, args=(job,))
    first.start()
    until(lambda: engine.cancelled == [job], what="the first cancel")
    engine.allowed.set()
    until(lambda: engine.cancelled == [job, job], what="what came after all to be cancelled")
    other = patient.launch(launch_of("a-2"), {})
    until(lambda: patient.poll([other])[other].state is JobState.RUNNING, what="the other run", within=20)
    engine.over.set()
    first.join(60)


def test_a_launch_that_takes_long_keeps_no_other_run_from_being_polled() -> None:
    engine = Slow()
    engine.says["a-2"] = JobState.RUNNING
    patient = Patient(engine, lambda job: None)
    patient.launch(launch_of("a-1"), {})
    assert engine.asked.wait(60)
    other = JobId("a-2")
    until(lambda: other in patient.poll([other]), what="the other run to be polled", within=20)
    engine.allowed.set()


def test_what_was_asked_before_a_launch_says_nothing_of_it() -> None:
    """An answer on its way is that nothing is known of it; by then it is being launched once more."""

    class Late(Engine):
        def __init__(self) -> None:
            super().__init__()
            self.asked, self.answer = threading.Event(), threading.Event()

        def poll(self, jobs: Collection[JobId]) -> Mapping[JobId, JobStatus]:
            said = super().poll(jobs)
            if not self.launched:
                self.asked.set()
                self.answer.wait()
            return said

    engine, told = Late(), list[JobState]()
    patient = Patient(engine, lambda job: told.append(patient.poll([JobId(job)])[JobId(job)].state))
    job = JobId("a-1")
    patient.poll([job])
    assert engine.asked.wait(60)
    patient.launch(launch_of("a-1"), {})
    until(lambda: engine.launched, what="the launch", within=20)
    engine.answer.set()
    until(lambda: patient.poll([job])[job].state is JobState.RUNNING, what="the launch to be seen")
    assert JobState.UNKNOWN not in told


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
