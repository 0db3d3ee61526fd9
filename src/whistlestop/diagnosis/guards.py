"""Which guards act upon what was found: a pure function. Who calls it records each action before anything else, and
gives it back as history."""

from collections.abc import Sequence
from dataclasses import dataclass

from whistlestop.diagnosis.evidence import Evidence
from whistlestop.diagnosis.findings import Cause
from whistlestop.wire.spec import Do, GuardSpec

_HARDEST_LAST = tuple(Do)


@dataclass(frozen=True)
class Open:
    """A finding as it is kept: it holds at present."""

    id: int
    cause: str
    confidence: float
    says: str
    since: float  # unix seconds
    attempt: int
    step: int | None = None  # where it began


@dataclass(frozen=True)
class Act:
    """What a guard has done, or in dry mode would have done."""

    guard: int  # its place in the list
    finding: int
    do: Do


@dataclass(frozen=True)
class Scene:
    attempt: int  # the phase's newest
    live: bool = False  # its program runs
    ended: bool = False  # it has ended badly, and what follows from that is not decided yet
    ending: bool = False  # somebody has asked for its end, or its capacity goes


@dataclass(frozen=True)
class Action:
    guard: int
    finding: Open
    do: Do
    dry: bool = False
    spent: bool = False  # the guard has acted as often as it may: this is what comes instead


def decide(
    guards: Sequence[GuardSpec], findings: Sequence[Open], history: Sequence[Act], scene: Scene, now: float
) -> tuple[Action, ...]:
    """At most one that ends something, the hardest; and what is only said. Each guard acts once upon a finding."""
    if not (scene.live or scene.ended):
        return ()
    done = {(act.guard, act.finding) for act in history}
    wanted = [
        _action(index, guard, finding, history, scene)
        for index, guard in enumerate(guards)
        for finding in findings
        if (index, finding.id) not in done and _applies(guard, finding, scene, now)
    ]
    said = [each for each in wanted if each.dry or each.do is Do.NOTIFY]
    acting = [] if scene.ending else [each for each in wanted if not (each.dry or each.do is Do.NOTIFY)]
    hardest = max(acting, key=lambda each: _HARDEST_LAST.index(each.do), default=None)
    return (*said, *([hardest] if hardest is not None else []))


def _applies(guard: GuardSpec, finding: Open, scene: Scene, now: float) -> bool:
    return (
        finding.cause in guard.when
        and finding.attempt == scene.attempt  # what an earlier one came to is over
        and finding.confidence >= guard.confidence
        and now - finding.since >= guard.holds.total_seconds()
    )


def safe_until(evidence: Evidence, cause: str, step: int) -> int:
    """The newest step of which a checkpoint is surely healthy, where something was first seen at `step`. Metrics that
    are logged now and then tell of a NaN long after it came: it is their last good value that says what was well."""
    if cause != Cause.NON_FINITE:
        return step - 1
    odd = [series for series in evidence.series if series.odd is not None and series.odd.step == step]
    good = [max((at for at in series.steps if at < step), default=-1) for series in odd]
    return max(good, default=step - 1)


def _action(index: int, guard: GuardSpec, finding: Open, history: Sequence[Act], scene: Scene) -> Action:
    """A run that was rolled back too often has a healthy result to keep; one that had to be started again too often
    has none but its checkpoints, and those a failed run keeps too."""
    made = sum(act.guard == index and act.do is guard.do for act in history)
    if guard.repeats and made >= guard.times:
        instead = Do.STOP if guard.do is Do.ROLL_BACK and scene.live else Do.FAIL
        return Action(index, finding, instead, guard.dry, spent=True)
    return Action(index, finding, guard.do, guard.dry)
