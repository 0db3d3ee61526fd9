"""An engine that is reached over a network, and may take its time: nobody waits for it. What is asked of it is done in
a thread of its own, in order; what it says is as of its last answer."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import cast

from whistlestop.domain.errors import EngineUnreachable
from whistlestop.domain.reasons import EndReason
from whistlestop.engines.base import Can, Engine, JobId, JobState, JobStatus, Offering
from whistlestop.wire.launch import Launch

log = logging.getLogger(__name__)
AGAIN = 5.0  # seconds until a launch is tried again that could not be handed over
REMEMBERED = 600.0  # seconds for which one that was forgotten is known to be so
FRESH = 0.5  # seconds for which an answer is as good as a new one


class Patient:
    """`changed` is called with a job whose status is another than it was."""

    def __init__(self, engine: Engine, changed: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic):
        self._engine, self._changed, self._clock = engine, changed, clock
        self.can: Can = engine.can
        self._known: dict[JobId, JobStatus] = {}
        self._asked: set[JobId] = set()
        self._answered_at = -FRESH
        self._refused: set[JobId] = set()  # the cluster has never heard of them, and will not
        self._forgotten: dict[JobId, float] = {}  # and when: who asks once more need not ask the cluster
        self._launching: dict[JobId, tuple[Launch, Mapping[str, str]]] = {}
        self._work: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    def launch(self, launch: Launch, secrets: Mapping[str, str]) -> JobId:
        job = JobId(launch.attempt_id)
        with self._wake:
            self._launching[job] = (launch, secrets)
            self._refused.discard(job)
            self._forgotten.pop(job, None)
            self._known[job] = JobStatus(JobState.PENDING, "it is being handed over")
        self._soon(lambda: self._launch(job))
        return job

    def poll(self, jobs: Collection[JobId]) -> Mapping[JobId, JobStatus]:
        """Jobs of which nobody knows anything yet are left out."""
        with self._wake:
            self._asked |= set(jobs) - self._forgotten.keys()
            stale = self._clock() - self._answered_at > FRESH
            gone = dict.fromkeys(self._forgotten.keys() & set(jobs), JobStatus(JobState.UNKNOWN))
            found = {job: self._known[job] for job in jobs if job in self._known} | gone
        if stale:
            self._soon(self._poll)
        return found

    def look(self, jobs: Collection[str] = ()) -> None:
        """The engine has heard that something is new."""
        with self._wake:
            self._asked |= {JobId(job) for job in jobs if JobId(job) in self._known}
        self._soon(self._poll)

    def cancel(self, job: JobId) -> None:
        """Whoever calls this has a thread of its own."""
        with self._wake:
            waits = self._launching.pop(job, None) is not None
        try:
            self._engine.cancel(job)
        except EngineUnreachable as error:
            if not waits:
                raise
            log.warning("%s", error.text)
        if waits:  # it was not handed over, or nobody knows: should it turn up all the same, the server sends it away
            self._say(job, JobStatus(JobState.UNKNOWN))
        self._soon(self._poll)

    def offers(self) -> int:
        """Whoever calls this has a thread of its own."""
        return cast(Offering, self._engine).offers()

    def salvage(self, job: JobId) -> None:
        self._soon(lambda: self._engine.salvage(job))

    def forget(self, job: JobId) -> None:
        now = self._clock()
        with self._wake:
            self._known.pop(job, None)
            self._asked.discard(job)
            self._launching.pop(job, None)
            self._refused.discard(job)
            self._forgotten = {each: at for each, at in self._forgotten.items() if now - at < REMEMBERED}
            self._forgotten[job] = now
        self._engine.forget(job)

    def _soon(self, work: Callable[[], None]) -> None:
        with self._wake:
            if work not in self._work:
                self._work.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)
                self._thread.start()
            self._wake.notify()

    def _run(self) -> None:
        said = ""
        while True:
            with self._wake:
                while not self._work:
                    self._wake.wait()
                work = self._work.popleft()
            try:
                work()
            except EngineUnreachable as error:
                if error.text != said:  # once a second, perhaps for days
                    log.warning("%s", said := error.text)
            except Exception:
                log.exception("a cluster could not be asked; it is tried again")

    def _launch(self, job: JobId) -> None:
        with self._wake:
            asked = self._launching.get(job)
        if asked is None:
            return
        try:
            self._engine.launch(*asked)
        except EngineUnreachable as error:
            self._say(job, JobStatus(JobState.PENDING, f"{error.text} It is tried again."))
            again = threading.Timer(AGAIN, lambda: self._soon(lambda: self._launch(job)))
            again.daemon = True
            again.start()
        except Exception as error:
            text = getattr(error, "text", "") or str(error)
            with self._wake:
                self._launching.pop(job, None)
                self._refused.add(job)
            self._say(job, JobStatus(JobState.DEAD, text, reason=EndReason.LAUNCH_FAILED))
        else:
            with self._wake:
                wanted = self._launching.pop(job, None) is not None
            if not wanted:  # it was cancelled while it was handed over
                self._engine.cancel(job)
            self._poll()

    def _poll(self) -> None:
        with self._wake:
            jobs = list((self._asked | set(self._known)) - set(self._launching) - self._refused)
        if not jobs:
            return
        answer = self._engine.poll(jobs)
        with self._wake:
            self._answered_at = self._clock()
        for job, status in answer.items():
            self._say(job, status)

    def _say(self, job: JobId, status: JobStatus) -> None:
        with self._wake:
            if job in self._forgotten:
                return
            news = self._known.get(job) != status
            self._known[job] = status
        if news:
            self._changed(job)
