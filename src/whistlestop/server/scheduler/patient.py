"""An engine that is reached over a network, and may take its time: nobody waits for it. What is asked of it is done in
threads of its own; what it says is as of its last answer.

Launches come one after the other, and so do polls, in two lanes. What has to do with a single run's nodes, which may
not answer, is in neither: it takes as long as it takes, and no other run waits for it.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import cast

from whistlestop.domain.errors import EngineUnreachable
from whistlestop.domain.reasons import EndReason
from whistlestop.engines.base import Can, Cluster, Engine, JobId, JobState, JobStatus, Offering, Telling
from whistlestop.server.scheduler.aside import Aside
from whistlestop.server.scheduler.lane import Lane
from whistlestop.wire.launch import Launch

log = logging.getLogger(__name__)
AGAIN = 5.0  # seconds until a launch is tried again that could not be handed over
REMEMBERED = 600.0  # seconds for which one that was forgotten is known to be so
_Asked = tuple[Launch, Mapping[str, str]]
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
        self._launching: dict[JobId, _Asked] = {}
        self._launches: Counter[JobId] = Counter()  # of a job: what was asked before the last one says nothing of it
        self._lock = threading.Lock()
        self._launch_lane, self._poll_lane, self._aside = Lane("launches"), Lane("polls"), Aside()

    def launch(self, launch: Launch, secrets: Mapping[str, str]) -> JobId:
        job = JobId(launch.attempt_id)
        with self._lock:
            self._launching[job] = (launch, secrets)
            self._launches[job] += 1
            self._refused.discard(job)
            self._forgotten.pop(job, None)
            self._known[job] = JobStatus(JobState.PENDING, "it is being handed over")
        self._launch_lane.soon(lambda: self._launch(job))
        return job

    def poll(self, jobs: Collection[JobId]) -> Mapping[JobId, JobStatus]:
        """Jobs of which nobody knows anything yet are left out."""
        with self._lock:
            self._asked |= set(jobs) - self._forgotten.keys()
            stale = self._clock() - self._answered_at > FRESH
            gone = dict.fromkeys(self._forgotten.keys() & set(jobs), JobStatus(JobState.UNKNOWN))
            found = {job: self._known[job] for job in jobs if job in self._known} | gone
        if stale:
            self._poll_lane.soon(self._poll)
        return found

    def look(self, jobs: Collection[str] = ()) -> None:
        """The engine has heard that something is new."""
        with self._lock:
            self._asked |= {JobId(job) for job in jobs if JobId(job) in self._known}
        self._poll_lane.soon(self._poll)

    def cancel(self, job: JobId) -> None:
        """Whoever calls this has a thread of its own."""
        with self._lock:
            waits = self._launching.pop(job, None) is not None
        try:
            self._engine.cancel(job)
        except EngineUnreachable as error:
            if not waits:
                raise
            log.warning("%s", error.text)
        if waits:  # it was not handed over, or nobody knows: should it turn up all the same, the server sends it away
            self._say(job, JobStatus(JobState.UNKNOWN))
        self._poll_lane.soon(self._poll)

    def cluster(self) -> Cluster:
        """Whoever calls this has a thread of its own."""
        return cast(Telling, self._engine).cluster()

    def offers(self) -> int:
        """Whoever calls this has a thread of its own."""
        return cast(Offering, self._engine).offers()

    def salvage(self, job: JobId) -> None:
        self._aside.soon(f"salvage {job}", lambda: self._engine.salvage(job))

    def forget(self, job: JobId) -> None:
        now = self._clock()
        with self._lock:
            self._known.pop(job, None)
            self._asked.discard(job)
            self._launching.pop(job, None)
            self._launches.pop(job, None)
            self._refused.discard(job)
            self._forgotten = {each: at for each, at in self._forgotten.items() if now - at < REMEMBERED}
            self._forgotten[job] = now
        self._engine.forget(job)

    def _launch(self, job: JobId) -> None:
        with self._lock:
            asked = self._launching.get(job)
        if asked is None:
            return
        try:
            self._engine.launch(*asked)
        except EngineUnreachable as error:
            self._say(job, JobStatus(JobState.PENDING, f"{error.text} It is tried again."))
            again = threading.Timer(AGAIN, lambda: self._launch_lane.soon(lambda: self._launch(job)))
            again.daemon = True
            again.start()
        except Exception as error:
            text = getattr(error, "text", "") or str(error)
            with self._lock:
                self._handed_over(job, asked)
                self._refused.add(job)
            self._say(job, JobStatus(JobState.DEAD, text, reason=EndReason.LAUNCH_FAILED))
        else:
            with self._lock:
                wanted = self._handed_over(job, asked)
            if not wanted:  # it was cancelled while it was handed over
                self._aside.soon(f"cancel {job}", lambda: self._engine.cancel(job))
            self._poll_lane.soon(self._poll)

    def _handed_over(self, job: JobId, asked: _Asked) -> bool:
        """Whether it is still wanted. One that was asked for meanwhile is handed over in its turn."""
        if self._launching.get(job) is asked:
            del self._launching[job]
            return True
        return job in self._launching

    def _poll(self) -> None:
        with self._lock:
            jobs = list((self._asked | set(self._known)) - set(self._launching) - self._refused)
            launches = {job: self._launches[job] for job in jobs}
        if not jobs:
            return
        answer = self._engine.poll(jobs)
        with self._lock:
            self._answered_at = self._clock()
        for job, status in answer.items():
            self._say(job, status, launches[job])

    def _say(self, job: JobId, status: JobStatus, launches: int | None = None) -> None:
        """`launches`: how many of its launches there had been when it was asked."""
        with self._lock:
            if job in self._forgotten or launches not in (None, self._launches[job]):
                return
            news = self._known.get(job) != status
            self._known[job] = status
        if news:
            self._changed(job)
