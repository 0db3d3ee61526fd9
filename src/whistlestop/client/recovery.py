"""From a loss to training again: what one phase of a run has lost, and how long it took to be further than before."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whistlestop.domain.errors import ServerUnreachable

if TYPE_CHECKING:
    from whistlestop.client.client import Client
    from whistlestop.wire.api import AttemptView, PhaseView, RunView

LOOK_EVERY = 0.05  # seconds; a runner tells its step five times a second
PATIENCE = 300.0  # seconds without a server
OVER = ("completed", "failed", "killed", "waiting")


@dataclass(frozen=True)
class Recovery:
    phase: str
    attempt: int  # the one that was lost
    pool: str
    reason: str  # how that one ended
    recovered: bool = False  # it is further than before, or done; False: it ended, or nobody waited any longer
    next_attempt: int | None = None  # None: there was no need for one, or none came
    next_pool: str | None = None
    last_step: int = 0  # before the loss
    resumed_from: int | None = None  # None: from the start
    redone: int = 0  # steps
    redone_s: float = 0.0  # from its first step until it was where it had been
    # Seconds from the loss; None: it did not come so far.
    ended_s: float | None = None  # until it was proven
    placed_s: float | None = None  # until the next attempt had its slots
    started_s: float | None = None  # until its program was started
    stepped_s: float | None = None  # until its first step
    seconds: float = 0.0  # from the loss to the first step that it had never made before
    status: str = ""  # the run's, at the end of the wait


def wait_for_recovery(
    client: "Client", run: str, phase: str, attempt: int, *, within: float | None = None, since: float | None = None
) -> Recovery:
    """`since`: when it was lost, by time.monotonic(); else now. A server that is away meanwhile is waited for."""
    began = since if since is not None else time.monotonic()
    heard, passed = began, dict[str, float]()  # the stations of the way back, each when it was first seen
    while True:
        now = time.monotonic()
        try:
            view = client.run(run)
        except ServerUnreachable:
            if now - heard > PATIENCE:
                raise
        else:
            heard, now = now, time.monotonic()
            shown = next(each for each in view.phases if each.name == phase)
            found = _look(view, shown, attempt)
            for station in _stations(shown, found):
                passed.setdefault(station, now - began)
            late = within is not None and now - began > within
            if found.recovered or view.status in OVER or shown.status in OVER or late:
                seconds, stepped = now - began, passed.get("stepped")
                return replace(
                    found,
                    ended_s=passed.get("ended"),
                    placed_s=passed.get("placed"),
                    started_s=passed.get("started"),
                    stepped_s=stepped,
                    redone_s=seconds - stepped if stepped is not None and found.redone else 0.0,
                    seconds=seconds,
                )
        time.sleep(LOOK_EVERY)


def _stations(phase: "PhaseView", found: Recovery) -> Iterator[str]:
    newest = phase.attempts[-1]
    if newest.number > found.attempt:
        yield from ("ended", "placed")
        if newest.up:
            yield "started"
            if phase.progress.step > (newest.resumed_from or 0):
                yield "stepped"
    elif newest.ended_at is not None:
        yield "ended"


def _look(view: "RunView", phase: "PhaseView", attempt: int) -> Recovery:
    lost = next(each for each in phase.attempts if each.number == attempt)
    newest = phase.attempts[-1]
    found = Recovery(phase.name, attempt, lost.pool, lost.text or lost.reason or "", status=view.status)
    if newest.number == attempt:
        return replace(found, last_step=lost.last_step or 0, recovered=phase.status == "completed")
    last = max(each.last_step or 0 for each in phase.attempts[:-1])
    return replace(
        found,
        recovered=_is_further(phase, newest, last),
        next_attempt=newest.number,
        next_pool=newest.pool,
        last_step=last,
        resumed_from=newest.resumed_from,
        redone=max(0, last - (newest.resumed_from or 0)),
    )


def _is_further(phase: "PhaseView", newest: "AttemptView", last: int) -> bool:
    """One that counts no steps, or had made none, is as far as can be told once it has been started."""
    if phase.status == "completed":
        return True
    return newest.up and (not last or phase.progress.step > last)  # steps are heard of before where it began
