"""The tables: complete, closed, and joined without a gap."""

import pytest

from whistlestop.domain import errors, states
from whistlestop.domain.errors import IllegalTransition
from whistlestop.domain.reasons import OUTCOMES, STOP_SAYS, EndReason, StopReason
from whistlestop.domain.states import (
    ATTEMPT_ENDED,
    ATTEMPT_TRANSITIONS,
    PHASE_TRANSITIONS,
    RUN_ENDED,
    RUN_TRANSITIONS,
    AttemptState,
    PhaseState,
    RunState,
)


def test_every_state_has_its_line_in_its_table() -> None:
    assert set(RUN_TRANSITIONS) == set(RunState)
    assert set(PHASE_TRANSITIONS) == set(PhaseState)
    assert set(ATTEMPT_TRANSITIONS) == set(AttemptState)


def test_what_is_terminal_follows_from_the_table() -> None:
    assert {RunState.COMPLETED, RunState.FAILED, RunState.KILLED} == RUN_ENDED
    assert set(AttemptState) - {AttemptState.STARTED} == ATTEMPT_ENDED


def test_kill_can_be_reached_from_every_state_that_is_not_the_end() -> None:
    assert all(RunState.KILLED in RUN_TRANSITIONS[state] for state in set(RunState) - RUN_ENDED)


def test_every_end_reason_has_an_outcome_with_an_ended_state_and_a_sentence() -> None:
    assert set(OUTCOMES) == set(EndReason)
    assert all(outcome.state in ATTEMPT_ENDED and outcome.says for outcome in OUTCOMES.values())


def test_every_stop_reason_has_its_words() -> None:
    assert set(STOP_SAYS) == set(StopReason)


def test_a_change_that_is_not_in_the_table_is_refused() -> None:
    states.check(RUN_TRANSITIONS, RunState.QUEUED, RunState.STARTING)
    with pytest.raises(IllegalTransition, match="killed -> running"):
        states.check(RUN_TRANSITIONS, RunState.KILLED, RunState.RUNNING)


def test_every_error_has_a_code_of_its_own_and_a_default_message() -> None:
    ours = [error for error in errors._tree(errors.WhistleError) if error.__module__ == errors.__name__]
    assert len({error.code for error in ours}) == len(ours) == len(errors.BY_CODE)
    assert all(error().text for error in errors.BY_CODE.values())
