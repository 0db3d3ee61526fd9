"""decide(): examples, and a machine that throws random requests and events at it."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from whistlestop.domain import states
from whistlestop.domain.lifecycle import (
    AttemptFacts,
    PhaseChange,
    PhaseFacts,
    RunChange,
    RunFacts,
    Verdict,
    decide,
    live,
    ready,
)
from whistlestop.domain.reasons import OUTCOMES, EndReason, fingerprint
from whistlestop.domain.states import (
    PHASE_ENDED,
    PHASE_TRANSITIONS,
    RUN_ENDED,
    RUN_TRANSITIONS,
    AttemptState,
    PhaseState,
    RunState,
)
from whistlestop.domain.stops import Stop
from whistlestop.runner.exit import Ending, evidence


def attempt(reason: EndReason | None = None, *, number: int = 1, up: bool = True, step: int = 0) -> AttemptFacts:
    state = AttemptState.STARTED if reason is None else OUTCOMES[reason].state
    return AttemptFacts(f"a{number}", number, state, up=up, reason=reason, last_step=step)


def run_with(*phases: PhaseFacts, state: RunState = RunState.RUNNING, request: Stop = Stop.NONE) -> RunFacts:
    return RunFacts("r", state, phases, request=request)


def running(reason: EndReason | None, **extra: object) -> PhaseFacts:
    return PhaseFacts("p0", "train", PhaseState.RUNNING, attempt=attempt(reason), **extra)  # type: ignore[arg-type]


def after(run: RunFacts, now: float = 0.0) -> tuple[dict[str, PhaseState], RunChange | None]:
    changes = decide(run, now)
    phases = {change.phase.name: change.state for change in changes if isinstance(change, PhaseChange)}
    return phases, next((change for change in changes if isinstance(change, RunChange)), None)


def test_a_finished_attempt_completes_its_phase_and_the_run() -> None:
    phases, change = after(run_with(running(EndReason.FINISHED)))
    assert phases == {"train": PhaseState.COMPLETED}
    assert change is not None
    assert change.state is RunState.COMPLETED


def test_an_error_uses_the_budget_and_then_fails() -> None:
    phases, change = after(run_with(running(EndReason.CODE_RAISED, retries=1)))
    assert phases == {"train": PhaseState.PENDING}
    assert change is not None
    assert change.recovering
    phases, change = after(run_with(running(EndReason.CODE_RAISED, retries=1, errors_used=1)))
    assert phases == {"train": PhaseState.FAILED}
    assert change is not None
    assert change.state is RunState.FAILED


def failing(text: str = "exit code 1; its last error line: ValueError: 0x7f21 at 12345", **extra: Any) -> PhaseFacts:
    phase = running(EndReason.CODE_RAISED, retries=9, **extra)
    assert phase.attempt is not None
    return replace(phase, attempt=replace(phase.attempt, text=text, exit_code=1, last_step=7))


def test_the_same_failure_twice_without_a_new_checkpoint_ends_it_although_retries_are_left() -> None:
    first = decide(run_with(failing(saved_step=5)), 0.0)[0]
    assert isinstance(first, PhaseChange)
    assert (first.state, first.phase.errors_used, first.phase.failure_step) == (PhaseState.PENDING, 1, 5)
    seen = {"failure": first.phase.failure, "failure_step": 5, "errors_used": 1}
    again = failing("exit code 1; its last error line: ValueError: 0x99aa at 67890", saved_step=5, **seen)
    second = decide(run_with(again), 0.0)[0]
    assert isinstance(second, PhaseChange)
    assert second.state is PhaseState.FAILED
    assert second.reason.startswith("failed twice in the same way at step 7 without a new checkpoint: exit code 1;")
    for other in (
        failing(saved_step=6, **seen),  # it had got further
        failing("exit code 1; its last error line: KeyError: 'x'", saved_step=5, **seen),
        failing(saved_step=5, trains=False, **seen),  # a task can't save: its retries are all there is
    ):
        assert after(run_with(other))[0] == {"train": PhaseState.PENDING}


def test_the_words_of_an_end_name_the_error_as_the_fingerprint_looks_for_it() -> None:
    said = evidence(Ending(exit_code=1), EndReason.CODE_RAISED, exception="ValueError: no")
    assert fingerprint(EndReason.CODE_RAISED, 1, None, said) == "code_raised 1 ValueError: no"


def test_lost_capacity_costs_no_budget() -> None:
    changes = decide(run_with(running(EndReason.PREEMPTED, retries=0)), 0.0)
    assert isinstance(changes[0], PhaseChange)
    assert changes[0].state is PhaseState.PENDING
    assert changes[0].phase.errors_used == 0


def test_who_is_preempted_again_and_again_without_a_step_comes_back_later_each_time_but_always() -> None:
    phase, waits = running(EndReason.PREEMPTED, faults=9), []
    assert phase.attempt is not None
    for in_vain in range(30):
        change = decide(run_with(replace(phase, attempt=replace(phase.attempt, in_vain=in_vain))), 100.0)[0]
        assert isinstance(change, PhaseChange)
        assert change.state is PhaseState.PENDING
        assert change.phase.faults == 9, "that is no fault of ours, nor does it take one back"
        waits.append(change.not_before - 100.0)
    assert waits[:8] == [0, 0, 1, 2, 5, 15, 30, 60]
    assert waits[-1] == 60


def test_nobody_says_of_a_task_that_it_came_to_no_step() -> None:
    for trains in (True, False):
        phase = running(EndReason.PREEMPTED, trains=trains)
        assert phase.attempt is not None
        [change, _] = decide(run_with(replace(phase, attempt=replace(phase.attempt, in_vain=2))), 0.0)
        since = ", since it came to no step there" if trains else ""
        assert change.reason == f"the capacity was reclaimed; it goes on elsewhere in 1 s{since}"


def test_what_a_budget_has_paused_says_so() -> None:
    run = run_with(running(EndReason.PAUSED), request=Stop.PAUSE)
    for by, reason in (
        ("me", "paused on request"),
        ("the budget of project lab", "paused: the budget of project lab is used up"),
    ):
        change = after(replace(run, request_by=by))[1]
        assert change is not None
        assert (change.state, change.reason) == (RunState.WAITING, reason)


def test_our_own_faults_without_progress_end_after_a_while() -> None:
    phase = running(EndReason.RUNNER_LOST, faults=9)
    assert after(run_with(phase))[0] == {"train": PhaseState.FAILED}
    moved = replace(phase, attempt=attempt(EndReason.RUNNER_LOST, step=500))
    assert after(run_with(moved))[0] == {"train": PhaseState.PENDING}


def test_storage_that_is_away_is_waited_for_longer_each_time_and_for_as_long_as_it_takes() -> None:
    phase, waits = running(EndReason.STORAGE_AWAY, retries=0), []
    for now in range(100):
        change = decide(run_with(phase), float(now))[0]
        assert isinstance(change, PhaseChange)
        assert change.state is PhaseState.PENDING
        waits.append(change.not_before - now)
        phase = replace(phase, faults=change.phase.faults, errors_used=change.phase.errors_used)
    assert waits[:7] == [1, 2, 5, 15, 30, 60, 60]
    assert waits[-1] == 60
    assert phase.errors_used == 0
    died = replace(phase, attempt=attempt(EndReason.RUNNER_LOST))
    assert after(run_with(died))[0] == {"train": PhaseState.PENDING}, "an outage is no fault of ours"


def test_a_new_step_ends_what_failed_in_a_row_before_it() -> None:
    went_on = replace(running(EndReason.PREEMPTED, faults=6), attempt=attempt(EndReason.PREEMPTED, step=7))
    change = decide(run_with(went_on), 0.0)[0]
    assert isinstance(change, PhaseChange)
    assert (change.phase.faults, change.phase.fault_step) == (0, 7)


def test_a_storage_that_never_worked_fails_the_run_at_once() -> None:
    phases, change = after(run_with(running(EndReason.STORAGE_UNFIT, retries=5)))
    assert phases == {"train": PhaseState.FAILED}
    assert change is not None
    assert "can't be kept" in (change.reason or "")


def test_a_kill_wins_over_a_program_that_finished_in_the_same_moment() -> None:
    phases, change = after(run_with(running(EndReason.FINISHED), request=Stop.KILL))
    assert phases == {"train": PhaseState.COMPLETED}
    assert change is not None
    assert change.state is RunState.KILLED


def test_a_kill_is_not_shown_before_the_attempt_is_gone() -> None:
    _, change = after(run_with(running(None), request=Stop.KILL))
    assert change is not None
    assert change.state is RunState.RUNNING


def test_checkpoints_that_do_not_load_ask_for_a_person() -> None:
    phases, change = after(run_with(running(EndReason.CHECKPOINT_UNUSABLE)))
    assert phases == {"train": PhaseState.PENDING}
    assert change is not None
    assert change.state is RunState.WAITING
    assert change.attention


def test_phases_behind_a_failed_one_are_skipped() -> None:
    behind = PhaseFacts("p1", "report", PhaseState.PENDING, needs=("train",))
    phases, change = after(run_with(running(EndReason.CODE_RAISED), behind))
    assert phases == {"train": PhaseState.FAILED, "report": PhaseState.SKIPPED}
    assert change is not None
    assert change.state is RunState.FAILED


class Lifecycle(RuleBasedStateMachine):
    """Random requests and ends; every change must be in the tables, and the rules of the design must hold."""

    @initialize(count=st.integers(1, 4), retries=st.integers(0, 2), chain=st.booleans())
    def start(self, count: int, retries: int, chain: bool) -> None:
        phases = tuple(
            PhaseFacts(
                f"p{index}",
                f"n{index}",
                PhaseState.PENDING,
                needs=(f"n{index - 1}",) if chain and index else (),
                retries=retries,
            )
            for index in range(count)
        )
        self.run = RunFacts("r", RunState.QUEUED, phases)
        self.number = 0
        self.now = 0.0
        self.asked = Stop.NONE

    def settle(self) -> None:
        for _ in range(2):  # the second time there is nothing left to do
            changes = decide(self.run, self.now)
            for change in changes:
                if isinstance(change, PhaseChange):
                    before = next(phase for phase in self.run.phases if phase.id == change.phase.id)
                    states.check(PHASE_TRANSITIONS, before.state, change.state)
                    phases = tuple(change.phase if phase.id == change.phase.id else phase for phase in self.run.phases)
                    self.run = replace(self.run, phases=phases)
                else:
                    if change.state is not self.run.state:
                        states.check(RUN_TRANSITIONS, self.run.state, change.state)
                    self.run = replace(
                        self.run,
                        state=change.state,
                        reason=change.reason,
                        recovering=change.recovering,
                        attention=change.attention,
                    )
        assert decide(self.run, self.now) == []

    def put(self, phase: PhaseFacts) -> None:
        phases = tuple(phase if other.id == phase.id else other for other in self.run.phases)
        self.run = replace(self.run, phases=phases)

    @precondition(lambda self: ready(self.run))
    @rule(data=st.data())
    def place(self, data: st.DataObject) -> None:
        phase = data.draw(st.sampled_from(ready(self.run)))
        self.number += 1
        began = AttemptFacts(f"a{self.number}", self.number, AttemptState.STARTED)
        self.put(replace(phase, state=PhaseState.RUNNING, attempt=began))
        self.settle()

    @precondition(lambda self: any(live(phase) for phase in self.run.phases))
    @rule(data=st.data(), reason=st.sampled_from(list(EndReason)), step=st.integers(0, 100))
    def end(self, data: st.DataObject, reason: EndReason, step: int) -> None:
        phase = data.draw(st.sampled_from([phase for phase in self.run.phases if live(phase)]))
        assert phase.attempt is not None
        gone = replace(phase.attempt, state=OUTCOMES[reason].state, reason=reason, last_step=step)
        self.put(replace(phase, attempt=gone))
        self.settle()

    @precondition(lambda self: any(live(phase) for phase in self.run.phases))
    @rule(data=st.data())
    def come_up(self, data: st.DataObject) -> None:
        phase = data.draw(st.sampled_from([phase for phase in self.run.phases if live(phase)]))
        assert phase.attempt is not None
        self.put(replace(phase, attempt=replace(phase.attempt, up=True)))
        self.settle()

    @precondition(lambda self: self.run.state not in RUN_ENDED)
    @rule(level=st.sampled_from([Stop.PAUSE, Stop.KILL]))
    def ask(self, level: Stop) -> None:
        self.run = replace(self.run, request=max(self.run.request, level))
        self.asked = max(self.asked, level)
        self.settle()

    @precondition(lambda self: self.run.state is RunState.WAITING and self.run.request is not Stop.KILL)
    @rule()
    def resume(self) -> None:
        self.run = replace(self.run, request=Stop.NONE, attention=None)
        self.settle()

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.settle()

    @invariant()
    def an_ended_run_has_nothing_alive_and_nothing_left_to_do(self) -> None:
        if self.run.state in RUN_ENDED:
            assert not any(live(phase) for phase in self.run.phases)
            assert all(phase.state in PHASE_ENDED for phase in self.run.phases)
            assert ready(self.run) == []

    @invariant()
    def a_kill_ends_as_killed_and_as_nothing_else(self) -> None:
        if self.asked is Stop.KILL and self.run.state in RUN_ENDED:
            assert self.run.state is RunState.KILLED

    @invariant()
    def nobody_is_killed_without_having_been_asked_to(self) -> None:
        assert self.run.state is not RunState.KILLED or self.asked is Stop.KILL

    @invariant()
    def a_killed_run_that_lives_is_only_waiting_for_its_attempts(self) -> None:
        if self.run.request is Stop.KILL and not any(live(phase) for phase in self.run.phases):
            assert self.run.state is RunState.KILLED

    @invariant()
    def a_paused_run_starts_nothing(self) -> None:
        if self.run.request is Stop.PAUSE:
            assert ready(self.run) == []


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)


def test_a_phase_is_held_until_its_guards_were_asked_and_a_kill_waits_for_nobody() -> None:
    held = running(EndReason.CODE_RAISED, retries=3, held=True)
    assert decide(run_with(held), 0.0) == []
    phases, change = after(run_with(held, request=Stop.KILL))
    assert phases == {"train": PhaseState.KILLED}
    assert change is not None
    assert change.state is RunState.KILLED


def test_a_guards_verdict_comes_before_the_retries_and_costs_none() -> None:
    fails = running(EndReason.OUT_OF_MEMORY, retries=3, verdict=Verdict(1, fails=True, text="the guard said so"))
    phases, change = after(run_with(fails))
    assert phases == {"train": PhaseState.FAILED}
    assert change is not None
    assert change.reason == "phase train: the guard said so"
    again = running(EndReason.CODE_RAISED, retries=0, verdict=Verdict(1, fails=False, text="once more"))
    (first, _) = decide(run_with(again), 0.0)
    assert isinstance(first, PhaseChange)
    assert (first.state, first.phase.errors_used) == (PhaseState.PENDING, 0)


def test_a_verdict_is_about_one_attempt_and_never_about_what_a_person_has_to_look_at() -> None:
    old = running(EndReason.CODE_RAISED, verdict=Verdict(7, fails=False, text="once more"))
    assert after(run_with(old))[0] == {"train": PhaseState.FAILED}
    done = running(EndReason.FINISHED, verdict=Verdict(1, fails=True, text="no"))
    assert after(run_with(done))[0] == {"train": PhaseState.COMPLETED}
    asks = running(EndReason.CHECKPOINT_UNUSABLE, verdict=Verdict(1, fails=False, text="once more"))
    _, change = after(run_with(asks))
    assert change is not None
    assert change.state is RunState.WAITING


def test_what_a_guard_kills_or_pauses_says_so() -> None:
    killed = replace(run_with(running(EndReason.KILLED), request=Stop.KILL), request_by="guard: stuck")
    assert after(killed)[1] == RunChange(RunState.KILLED, "killed by guard: stuck")
    paused = replace(run_with(running(EndReason.PAUSED), request=Stop.PAUSE), request_by="guard: non_finite")
    assert after(paused)[1] == RunChange(RunState.WAITING, "paused by guard: non_finite")
