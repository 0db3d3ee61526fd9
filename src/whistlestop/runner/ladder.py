"""When a request that is not answered goes up a rung. Pure: times in, the next rung and its time out."""

from collections.abc import Mapping
from dataclasses import dataclass

from whistlestop.domain.stops import Rung, Stop

SIGNALS = {Rung.INTERRUPT: "SIGINT", Rung.TERMINATE: "SIGTERM", Rung.KILL: "SIGKILL"}


@dataclass(frozen=True)
class Times:
    """Seconds on each rung."""

    flag: float
    interrupt: float
    terminate: float
    attach: float
    kill_save: float

    @classmethod
    def of(cls, ladder: Mapping[str, float]) -> "Times":
        return cls(**{name: ladder[name] for name in ("flag", "interrupt", "terminate", "attach", "kill_save")})


@dataclass(frozen=True)
class Situation:
    """All that the decision depends on; times on one clock."""

    stop: Stop
    ordered_at: float
    started_at: float  # the program
    attached: bool
    saving: bool
    task: bool = False
    rung: Rung | None = None  # the highest one reached
    rung_at: float = 0.0


def following(now: Situation, times: Times) -> tuple[Rung, float] | None:
    """The next rung and when it is due; a time that has passed means: at once. None: nothing more to do."""
    if now.stop is Stop.NONE or now.rung is Rung.KILL:
        return None
    if now.stop is Stop.KILL:
        # A commit in flight may finish: it is the work of hours, and cutting it gains seconds.
        return Rung.KILL, now.ordered_at + (times.kill_save if now.saving else 0.0)
    if now.rung is None:
        return Rung.FLAG, now.ordered_at
    if now.rung is Rung.FLAG:
        return Rung.INTERRUPT, _interrupt_at(now, times)
    if now.rung is Rung.INTERRUPT:
        return Rung.TERMINATE, now.rung_at + times.interrupt
    return Rung.KILL, now.rung_at + times.terminate


def _interrupt_at(now: Situation, times: Times) -> float:
    if now.attached:
        return now.ordered_at + times.flag
    if now.task:  # nobody expects the SDK in a task: signals are its only way to hear of it
        return now.ordered_at
    return max(now.ordered_at, now.started_at + times.attach)
