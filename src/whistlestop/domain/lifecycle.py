"""What follows from the facts of one run: a pure function from what is known to what has to change.

The scheduler, the property tests and (later) the simulator all call the same `decide`. It never starts anything:
placing phases on capacity is in capacity/. Here ended attempts become phase states, and phase states the run's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from whistlestop.domain.credits import BUDGET_OF
from whistlestop.domain.guarding import is_guards
from whistlestop.domain.reasons import OUTCOMES, EndReason, Retry, fingerprint
from whistlestop.domain.states import PHASE_ENDED, RUN_ENDED, AttemptState, PhaseState, RunState
from whistlestop.domain.stops import Stop

FAULT_LIMIT = 10  # times in a row that our own parts may fail without a new step before the run fails
BACKOFF = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)  # seconds before the next attempt, by failures in a row

# None of them is the program's fault, but each may be for ever.
OWN_FAULTS = frozenset({EndReason.RUNNER_LOST, EndReason.LAUNCH_FAILED, EndReason.BEHIND})
_LONGEST_WAIT = len(BACKOFF)  # faults in a row from which on it is waited no longer


@dataclass(frozen=True)
class AttemptFacts:
    id: str
    number: int  # rises over the run
    state: AttemptState
    up: bool = False  # its program has started
    reason: EndReason | None = None
    text: str = ""
    last_step: int = 0
    exit_code: int | None = None
    signal: str | None = None
    in_vain: int = 0  # attempts in a row, with this one, that lost their capacity before they made a step


@dataclass(frozen=True)
class Verdict:
    """What a guard has decided about the end of an attempt. It comes before the spec's retries."""

    attempt: int
    fails: bool  # False: it starts again, and that costs no retry
    text: str


@dataclass(frozen=True)
class PhaseFacts:
    id: str
    name: str
    state: PhaseState
    needs: tuple[str, ...] = ()
    retries: int = 0
    reason: str | None = None  # why it is where it is
    errors_used: int = 0
    faults: int = 0  # of our own, in a row
    fault_step: int = 0  # how far it was at the last fault
    attempt: AttemptFacts | None = None  # the newest one
    waits: bool = False  # it is marked as one that waits for capacity
    trains: bool = True  # it can save; a task can't
    saved_step: int | None = None  # of its newest checkpoint
    failure: str | None = None  # what its last error looked like, ...
    failure_step: int | None = None  # ... and its newest checkpoint then
    held: bool = False  # its last attempt ended badly, and its guards have not been asked yet
    verdict: Verdict | None = None


@dataclass(frozen=True)
class RunFacts:
    id: str
    state: RunState
    phases: tuple[PhaseFacts, ...]
    request: Stop = Stop.NONE  # PAUSE or KILL; a phase's FINISH is beside the phase
    request_by: str = ""
    attention: str | None = None
    reason: str | None = None
    recovering: bool = False


@dataclass(frozen=True)
class PhaseChange:
    phase: PhaseFacts
    state: PhaseState
    reason: str
    not_before: float = 0.0


@dataclass(frozen=True)
class RunChange:
    state: RunState
    reason: str | None
    recovering: bool = False
    attention: str | None = None


def decide(run: RunFacts, now: float) -> list[PhaseChange | RunChange]:
    """Every change that the facts ask for. Applying them and deciding again gives nothing more."""
    if run.state in RUN_ENDED:
        return []
    if run.request is not Stop.KILL and any(phase.held for phase in run.phases):
        return []  # for the moment that judging takes: a guard may say that it is not tried again
    changes: list[PhaseChange | RunChange] = []
    attention = run.attention
    phases: list[PhaseFacts] = []
    for phase in run.phases:
        change, asks = _settle(phase, run.request, now)
        attention = asks or attention
        phases.append(change.phase if change else phase)
        if change:
            changes.append(change)
    for change in _follow(phases, run.request):
        changes.append(change)
        phases = [change.phase if phase.id == change.phase.id else phase for phase in phases]
    after = _run_state(run, phases, attention)
    if after is not None:
        changes.append(after)
    return changes


def after(run: RunFacts, changes: Sequence[PhaseChange | RunChange]) -> RunFacts:
    """The run as it is when they are applied."""
    for change in changes:
        if isinstance(change, PhaseChange):
            others = (change.phase if phase.id == change.phase.id else phase for phase in run.phases)
            run = replace(run, phases=tuple(others))
        else:
            run = replace(
                run,
                state=change.state,
                reason=change.reason,
                recovering=change.recovering,
                attention=change.attention,
            )
    return run


def live(phase: PhaseFacts) -> bool:
    return phase.attempt is not None and phase.attempt.state is AttemptState.STARTED


def ready(run: RunFacts) -> list[PhaseFacts]:
    """Phases that could start if there were room (their back-off aside)."""
    if run.state in RUN_ENDED or run.request is not Stop.NONE or run.attention:
        return []
    if any(phase.state is PhaseState.FAILED for phase in run.phases):
        return []
    done = {phase.name for phase in run.phases if phase.state is PhaseState.COMPLETED}
    return [
        phase
        for phase in run.phases
        if phase.state is PhaseState.PENDING and not live(phase) and done.issuperset(phase.needs)
    ]


def _settle(phase: PhaseFacts, request: Stop, now: float) -> tuple[PhaseChange | None, str | None]:
    """A running phase whose attempt has ended takes that attempt's outcome."""
    attempt = phase.attempt
    if phase.state is not PhaseState.RUNNING or attempt is None or attempt.reason is None:
        return None, None
    if attempt.state is AttemptState.STARTED:
        return None, None
    if attempt.last_step > phase.fault_step:  # what failed before is over
        phase = replace(phase, faults=0, fault_step=attempt.last_step)
    outcome = OUTCOMES[attempt.reason]
    says = attempt.text or outcome.says
    if outcome.completes:
        return _to(phase, PhaseState.COMPLETED, says), None
    if request is Stop.KILL or attempt.reason is EndReason.KILLED:
        return _to(phase, PhaseState.KILLED, says), None
    if attempt.reason is EndReason.PAUSED:
        return _to(phase, PhaseState.PENDING, says), None
    if (judged := _judged(phase, attempt, outcome.retry)) is not None:
        return judged, None
    match outcome.retry:
        case Retry.NEVER:
            return _to(phase, PhaseState.FAILED, says), None
        case Retry.ATTENTION:
            return _to(phase, PhaseState.PENDING, says), f"phase {phase.name}: {says}"
        case Retry.BUDGET:
            looks = _looks(attempt)
            if phase.trains and phase.failure == looks and phase.failure_step == phase.saved_step and phase.retries:
                at = f"at step {attempt.last_step}" if attempt.last_step else "before its first step"
                why = f"failed twice in the same way {at} without a new checkpoint: {says}"
                return _to(phase, PhaseState.FAILED, why), None
            if phase.errors_used >= phase.retries:
                return _to(phase, PhaseState.FAILED, says), None
            wait = BACKOFF[min(phase.errors_used, len(BACKOFF) - 1)]
            counted = replace(phase, errors_used=phase.errors_used + 1, failure=looks, failure_step=phase.saved_step)
            why = f"{says}; retry {counted.errors_used} of {phase.retries} in {wait:g} s"
            return _to(counted, PhaseState.PENDING, why, now + wait), None
        case Retry.ALWAYS:
            return _recover(phase, attempt, says, now), None
    assert_never(outcome.retry)


def _judged(phase: PhaseFacts, attempt: AttemptFacts, retry: Retry) -> PhaseChange | None:
    """As a guard has it. What would end the same way once more is not tried again for its sake, and where a person has
    to look, a person looks."""
    verdict = phase.verdict
    if verdict is None or verdict.attempt != attempt.number or retry is Retry.ATTENTION:
        return None
    if verdict.fails:
        return _to(phase, PhaseState.FAILED, verdict.text)
    return _to(phase, PhaseState.PENDING, verdict.text) if retry is not Retry.NEVER else None


def _looks(attempt: AttemptFacts) -> str:
    assert attempt.reason is not None
    return fingerprint(attempt.reason, attempt.exit_code, attempt.signal, attempt.text)


def _recover(phase: PhaseFacts, attempt: AttemptFacts, says: str, now: float) -> PhaseChange:
    if attempt.reason is EndReason.STORAGE_AWAY:
        return _wait_for_storage(phase, says, now)
    if attempt.reason is EndReason.CHECKPOINT_DAMAGED:
        return _to(phase, PhaseState.PENDING, says)
    if attempt.reason is EndReason.GUARDED:
        return _to(phase, PhaseState.PENDING, f"{says}; it starts again")
    if attempt.reason not in OWN_FAULTS:
        return _go_on(phase, attempt, says, now)
    faults = phase.faults + 1
    counted = replace(phase, faults=faults)
    if faults >= FAULT_LIMIT:
        return _to(counted, PhaseState.FAILED, f"{says}; {faults} times in a row without a new step")
    wait = 0.0 if faults == 1 else BACKOFF[min(faults - 2, len(BACKOFF) - 1)]
    return _to(counted, PhaseState.PENDING, f"{says}; it starts again", now + wait)


def _go_on(phase: PhaseFacts, attempt: AttemptFacts, says: str, now: float) -> PhaseChange:
    """Elsewhere, as often as it takes. If it comes to no step again and again, later each time: the notice that ended
    it may still stand. It counts against nothing."""
    wait = 0.0 if attempt.in_vain < 2 else BACKOFF[min(attempt.in_vain - 2, len(BACKOFF) - 1)]
    since = ", since it came to no step there" if phase.trains else ""
    later = f" in {wait:g} s{since}" if wait else ""
    return _to(phase, PhaseState.PENDING, f"{says}; it goes on elsewhere{later}", now + wait)


def _wait_for_storage(phase: PhaseFacts, says: str, now: float) -> PhaseChange:
    """For as long as it takes: nobody can do anything else about it. It never counts as the last fault of our own."""
    faults = min(phase.faults + 1, _LONGEST_WAIT)
    wait = BACKOFF[faults - 1]
    counted = replace(phase, faults=faults)
    return _to(counted, PhaseState.PENDING, f"{says}; it is tried again in {wait:g} s", now + wait)


def _follow(phases: Sequence[PhaseFacts], request: Stop) -> list[PhaseChange]:
    """What happens to phases that have not begun when the run is killed or a phase failed."""
    waiting = [phase for phase in phases if phase.state is PhaseState.PENDING]
    if request is Stop.KILL:
        if any(live(phase) for phase in phases):
            return []
        return [_to(phase, PhaseState.KILLED, "the run was killed") for phase in waiting]
    failed = next((phase for phase in phases if phase.state is PhaseState.FAILED), None)
    if failed is None or any(live(phase) for phase in phases):
        return []
    return [_to(phase, PhaseState.SKIPPED, f"phase {failed.name} failed") for phase in waiting]


def _run_state(run: RunFacts, phases: Sequence[PhaseFacts], attention: str | None) -> RunChange | None:
    after = _derive(run, phases, attention)
    same = (
        after.state is run.state
        and after.recovering == run.recovering
        and after.reason == run.reason
        and after.attention == run.attention
    )
    return None if same else after


def _derive(run: RunFacts, phases: Sequence[PhaseFacts], attention: str | None) -> RunChange:
    alive = [phase.attempt for phase in phases if phase.attempt is not None and live(phase)]
    if alive:
        up = any(attempt.up for attempt in alive)
        reason = {Stop.PAUSE: "pausing", Stop.KILL: "being killed"}.get(run.request)
        # Attention that one phase asks for stays while a sibling runs on.
        return RunChange(RunState.RUNNING if up else RunState.STARTING, reason, attention=attention)
    if run.request is Stop.KILL:
        return RunChange(RunState.KILLED, f"killed {_asked_by(run)}")
    if all(phase.state in PHASE_ENDED for phase in phases):
        bad = next((phase for phase in phases if phase.state is PhaseState.FAILED), None)
        if bad is None:
            return RunChange(RunState.COMPLETED, None)
        return RunChange(RunState.FAILED, f"phase {bad.name}: {_said(bad)}")
    if attention:
        return RunChange(RunState.WAITING, attention, attention=attention)
    if run.request is Stop.PAUSE:
        spent = run.request_by.startswith(BUDGET_OF)
        return RunChange(
            RunState.WAITING, f"paused: {run.request_by} is used up" if spent else f"paused {_asked_by(run)}"
        )
    lost = next((phase for phase in phases if phase.state is PhaseState.PENDING and _retried(phase)), None)
    if lost is not None:
        return RunChange(RunState.QUEUED, f"recovering: {_said(lost)}", True)
    between = any(phase.state is PhaseState.COMPLETED for phase in phases)
    return RunChange(RunState.QUEUED, "between two phases" if between and _next_is_new(phases) else None)


def _asked_by(run: RunFacts) -> str:
    return f"by {run.request_by}" if is_guards(run.request_by) else "on request"


def _retried(phase: PhaseFacts) -> bool:
    """Its last attempt ended otherwise than on request."""
    return phase.attempt is not None and phase.attempt.reason not in (None, EndReason.PAUSED)


def _next_is_new(phases: Sequence[PhaseFacts]) -> bool:
    return all(phase.attempt is None for phase in phases if phase.state is PhaseState.PENDING)


def _said(phase: PhaseFacts) -> str:
    if phase.state is PhaseState.FAILED and phase.reason:
        return phase.reason
    if phase.attempt is None or phase.attempt.reason is None:
        return "failed"
    return phase.attempt.text or OUTCOMES[phase.attempt.reason].says


def _to(phase: PhaseFacts, state: PhaseState, reason: str, not_before: float = 0.0) -> PhaseChange:
    return PhaseChange(replace(phase, state=state, reason=reason), state, reason, not_before)
