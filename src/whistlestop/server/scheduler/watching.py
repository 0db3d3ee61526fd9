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
AGAIN = 1.0  # and at one that gives cause with every batch: a NaN stays one
TICK = 1.0  # how often it is asked who is due
SHARE = 4.0  # of a look that nobody has asked for: for so many times its length nothing but what is urgent is done


class Watching:
    def __init__(self, context: Context, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._context, self._clock = context, clock
        self._wake = threading.Condition()
        self._suspected: set[str] = set()
        self._looked: dict[str, float] = {}  # run -> when; those that run
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

    def suspect(self, run_id: str) -> None:
        with self._wake:
            self._suspected.add(run_id)
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
            for run_id in sorted(urgent):
                self._look(run_id)
            if self._clock() - asked_at >= TICK:
                asked_at = self._clock()
                self._round()

    def _ready(self, now: float) -> set[str]:
        return {run_id for run_id in self._suspected if now - self._looked.get(run_id, -AGAIN) >= AGAIN}

    def _until_ready(self) -> list[float]:
        now = self._clock()
        return [max(0.0, self._looked[each] + AGAIN - now) for each in self._suspected if each in self._looked]

    def _round(self) -> None:
        """The ends that nobody has looked at, and of those that run the one that has waited longest, if it is due."""
        try:
            ended, running = diagnosing.due(self._context)
        except Exception:
            log.exception("runs could not be looked for; it is tried again")
            return
        for run_id in ended:
            self._look(run_id)
        now = self._clock()
        with self._wake:
            self._looked = {run_id: self._looked.get(run_id, now) for run_id in running}
            waiting = sorted(self._looked, key=lambda run_id: self._looked[run_id])
        for run_id in waiting:
            if now - self._looked[run_id] < EVERY or self._clock() < self._rest_until:
                return
            self._rest_until = self._clock() + SHARE * self._look(run_id)
            with self._wake:
                if self._suspected or self._stopping:
                    return

    def _look(self, run_id: str) -> float:
        began = self._clock()
        try:
            diagnosing.look(self._context, run_id)
        except Exception:  # one run's trouble is not the others', and it must not be held for ours
            log.exception("run %s could not be judged", run_id)
            try:
                diagnosing.release(self._context, run_id)
            except Exception:
                log.exception("run %s is still held; it is tried again", run_id)
        with self._wake:
            self._looked[run_id] = self._clock()
        return self._clock() - began
