"""What the page knows of its run. Fed with what the stream says; touched by one thread only."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from whistlestop.cli import words
from whistlestop.wire.api import AtRiskView, EventView, LogLineView, PhaseView, ProgressView, RunView
from whistlestop.wire.timeline import PhaseTimelineView, TimelineView


@dataclass(frozen=True)
class Progressed:
    phase: str
    progress: ProgressView
    eta_s: float | None


@dataclass(frozen=True)
class Fresh:
    """New points of some metric have arrived."""


@dataclass(frozen=True)
class Connection:
    stands: bool


@dataclass(frozen=True)
class Over:
    """The stream has ended: with the run, or because it was deleted (None)."""

    run: RunView | None


@dataclass(frozen=True)
class Failed:
    error: Exception


Said = RunView | LogLineView | EventView | Progressed | Fresh | Connection | TimelineView | Over | Failed


class Known:
    def __init__(self, run: RunView, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self.timeline: dict[str, PhaseTimelineView] = {}
        self.lost_at: float | None = None  # by the clock; None: the connection stands
        self.over = run.status in words.ENDED
        self._clock = clock
        self._told_at = clock()

    def take_run(self, run: RunView) -> None:
        self.run, self._told_at = run, self._clock()

    def take_progress(self, said: Progressed) -> None:
        phases = [
            phase.model_copy(
                update={"progress": said.progress, "epoch": said.progress.epoch, "elapsed_s": elapsed, "at_risk": risk}
            )
            if phase.name == said.phase
            else phase.model_copy(update={"elapsed_s": elapsed, "at_risk": risk})
            for phase, elapsed, risk in [
                (phase, self.phase_elapsed(phase.name), self.at_risk(phase)) for phase in self.run.phases
            ]
        ]
        # Elapsed time goes on from when it was told, so a new progress must not take it back.
        changes = {"phases": phases, "eta_s": said.eta_s, "elapsed_s": self.elapsed()}
        self.run = self.run.model_copy(update=changes)
        self._told_at = self._clock()

    def take_timeline(self, timeline: TimelineView) -> None:
        self.timeline = {phase.phase: phase for phase in timeline.phases}

    def take_connection(self, stands: bool) -> None:
        if stands:
            self.lost_at = None
        elif self.lost_at is None:
            self.lost_at = self._clock()

    @property
    def lost_for(self) -> float | None:
        return None if self.lost_at is None else self._clock() - self.lost_at

    def elapsed(self) -> float:
        going = self.run.status in ("starting", "running")
        return self.run.elapsed_s + (self._since_told() if going else 0.0)

    def phase_elapsed(self, name: str) -> float:
        phase = next(phase for phase in self.run.phases if phase.name == name)
        alive = any(attempt.status == "started" for attempt in phase.attempts)
        return phase.elapsed_s + (self._since_told() if alive else 0.0)

    def at_risk(self, phase: PhaseView) -> AtRiskView | None:
        if phase.at_risk is None:
            return None
        return words.risk_later(phase.at_risk, phase.progress.step, self._since_told())

    def time_left(self) -> float | None:
        return None if self.run.eta_s is None else max(0.0, self.run.eta_s - self._since_told())

    def _since_told(self) -> float:
        """A lost server can't say whether the run still goes: its times stand still until it can."""
        until = self._clock() if self.lost_at is None else self.lost_at
        return max(0.0, until - self._told_at)
