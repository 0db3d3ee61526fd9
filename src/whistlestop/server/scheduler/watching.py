"""When runs are looked at by themselves: at once where something is suspected or an attempt has ended badly, and else
now and then. In a thread of its own: judging takes its time, and nobody waits for it but a run that has guards."""

import logging
import threading
import time
from collections.abc import Callable

from whistlestop.server.services import diagnosing
from whistlestop.server.services.context import Context

log = logging.getLogger(__name__)
EVERY = 15.0  # seconds between two looks at a run of which nothing is suspected
AGAIN = 1.0  # and at one that is suspected; twice as long each time, since a NaN is one in every batch from then on
TICK = 1.0  # how often it is asked who is due
TRIES = 3  # looks that fail before a run is let go: a database that was away for a moment is no reason
SHARE = 4.0  # of a look that nobody has asked for: for so many times its length nothing but what is urgent is done


class Watching:
    def __init__(self, context: Context, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._context, self._clock = context, clock
        self._wake = threading.Condition()
        self._suspected: set[str] = set()
        self._looked: dict[str, float] = {}  # run -> when; those that run
        self._patience: dict[str, float] = {}  # run -> seconds until it is looked at again, if it is suspected again
        self._failed: dict[str, int] = {}  # run -> looks that have failed since the last one that did not
        self._rest_until = 0.0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="diagnosis", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def suspect(self, run_id: str, anew: bool) -> None:
        with self._wake:
            self._suspected.add(run_id)
            if anew:
                self._patience.pop(run_id, None)
            self._wake.notify()

    def _run(self) -> None:
        asked_at = 0.0
        while True:
            with self._wake:
                left = asked_at + TICK - self._clock()
                if not (self._stopping or self._ready(self._clock())) and left > 0:
                    self._wake.wait(min([left, *self._until_ready()]))
                if self._stopping:
                    return
                urgent = self._ready(self._clock())
                self._suspected -= urgent
                self._patience |= {each: min(EVERY, 2 * self._patience.get(each, AGAIN)) for each in urgent}
            for run_id in sorted(urgent):
                if self._stopping:
                    return
                self._look(run_id)
            if self._clock() - asked_at >= TICK:
                asked_at = self._clock()
                self._round()

    def _ready(self, now: float) -> set[str]:
        return {run_id for run_id in self._suspected if self._due_at(run_id) <= now}

    def _until_ready(self) -> list[float]:
        return [max(0.0, self._due_at(run_id) - self._clock()) for run_id in self._suspected]

    def _due_at(self, run_id: str) -> float:
        return self._looked[run_id] + self._patience.get(run_id, AGAIN) if run_id in self._looked else 0.0

    def _round(self) -> None:
        """The ends that nobody has looked at, those first that somebody waits for; then, until it is time to ask again,
        those that run and are due, the one that has waited longest first."""
        began = self._clock()
        try:
            ended, running = diagnosing.due(self._context)
        except Exception:
            log.exception("runs could not be looked for; it is tried again")
            return
        for run_id in ended:
            self._look(run_id)
            # A thousand that ended together: one that is held since then is not to wait for all of them.
            if self._stopping or self._clock() - began >= TICK:
                break
        now = self._clock()
        with self._wake:
            self._looked = {run_id: self._looked.get(run_id, now) for run_id in running}
            self._patience = {run_id: self._patience[run_id] for run_id in running if run_id in self._patience}
            self._failed = {each: self._failed[each] for each in {*ended, *running} & self._failed.keys()}
            waiting = sorted(self._looked, key=lambda run_id: self._looked[run_id])
        for run_id in waiting:
            if now - self._looked[run_id] < EVERY or not self._rested(until=now + TICK):
                return
            self._rest_until = self._clock() + SHARE * self._look(run_id)

    def _rested(self, *, until: float) -> bool:
        """False: something else comes first."""
        with self._wake:
            while not (self._stopping or self._ready(self._clock())) and (at := self._clock()) < until:
                if at >= self._rest_until:
                    return True
                self._wake.wait(min([self._rest_until - at, until - at, *self._until_ready()]))
        return False

    def _look(self, run_id: str) -> float:
        began = self._clock()
        try:
            diagnosing.look(self._context, run_id)
            self._failed.pop(run_id, None)
        except Exception:  # one run's trouble is not the others', and it must not be held for ours
            self._failed[run_id] = self._failed.get(run_id, 0) + 1
            log.exception("run %s could not be judged (%d of %d times)", run_id, self._failed[run_id], TRIES)
            if self._failed[run_id] >= TRIES:
                self._release(run_id)
        with self._wake:
            self._looked[run_id] = self._clock()
        return self._clock() - began

    def _release(self, run_id: str) -> None:
        try:
            diagnosing.release(self._context, run_id)
            self._failed.pop(run_id, None)
        except Exception:
            log.exception("run %s is still held; it is tried again", run_id)
