"""Times, amounts and courses as people read them."""

import pytest

from whistlestop.cli import words
from whistlestop.cli.choosing import describe
from whistlestop.cli.log_lines import tame
from whistlestop.cli.run import name_of
from whistlestop.domain.states import AttemptState, PhaseState, RunState
from whistlestop.wire.api import CreditsView, RunView, StopReasonView


def test_lengths_of_time_are_short() -> None:
    assert [words.length(s) for s in (None, 0, 59.9, 61, 3700, 90000)] == ["–", "0s", "59s", "1m01s", "1h01m", "1d01h"]


def test_progress_never_claims_to_be_done_before_it_is() -> None:
    assert words.percent(0.999) == " 99%"
    assert words.percent(1.0) == "100%"
    assert words.percent(None) == ""
    assert words.bar(0.999, 10) == "━" * 9 + "─"
    assert words.bar(5.0, 4) == "━━━━"


def test_numbers_keep_what_matters() -> None:
    assert [words.number(v) for v in (0.0, 0.5, 1234.5, 1e-7, 3e12, None)] == [
        "0", "0.5", "1,234.5", "1.000e-07", "3.000e+12", "nan",
    ]  # fmt: skip


def test_a_little_is_never_nothing() -> None:
    assert [words.amount(v) for v in (None, 0.0, 0.004, 0.005, 1234.5)] == ["–", "0.00", "<0.01", "0.01", "1,234.50"]


def test_a_sparkline_shows_the_course_and_its_gaps() -> None:
    assert words.sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert words.sparkline([1, None, 3]) == "▁ █"
    assert words.sparkline([2, 2, 2]) == "▁▁▁"
    assert words.sparkline([None]) == " "
    assert words.sparkline([]) == ""
    assert len(words.sparkline(list(range(1000)), 24)) == 24


def test_moments_in_sentences_are_told_by_the_reader_s_own_clock() -> None:
    at = "2026-01-01T12:00:00.123Z"
    assert words.with_times(f"passed over until {at}; x") == f"passed over until {words.local_time(at)}; x"
    assert words.short_time(at, at) == words.local_time(at, date=False)
    assert words.short_time(at, "2026-02-01T12:00:00Z").startswith("01-01 ")
    assert words.short_time(None, at) == "–"


def test_why_a_phase_stopped_is_said_in_the_general_word_too_the_decisive_one_first() -> None:
    given = [
        StopReasonView(reason="all_steps_done", decisive=False, text="all 300 steps done"),
        StopReasonView(reason="manually_stopped", decisive=False, text="manually stopped by mia"),
        StopReasonView(reason="custom", decisive=False, text="bored"),
        StopReasonView(reason="budget_exhausted", decisive=True, text="0.02 credits are left"),
    ]
    assert words.stopped(given) == [
        "budget exhausted: 0.02 credits are left", "all 300 steps done", "manually stopped by mia", "bored",
    ]  # fmt: skip


def test_a_run_that_is_only_taken_from_its_slots_saves_no_credits() -> None:
    cost = CreditsView(used=2.0, estimated=10.0)
    run = RunView(id="r-1", number=7, name="x", project="p", status="running", created_at="2026-01-01", credits=cost)
    assert describe(run).endswith("2.00 credits used, about 8.00 saved")
    assert describe(run, ends=False).endswith("2.00 credits used")


def test_every_status_has_a_symbol() -> None:
    for kind in (RunState, PhaseState, AttemptState):
        for state in kind:
            assert state.value in words.SYMBOLS


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 3", "train"),
        ("python -u src/my_train.py", "my_train"),
        ("python -m pkg.module -v", "module"),
        ("/usr/bin/env", "env"),
        ("./run.sh", "run"),
        ("///", "run"),
    ],
)
def test_a_run_is_called_after_its_program(command: str, name: str) -> None:
    assert name_of(command.split()) == name


def test_log_text_keeps_its_colours_and_cannot_steer_the_terminal() -> None:
    text = "\x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07\x08ok\x9b1m"
    assert tame(text, coloured=True) == "\x1b[31mred\x1b[0m ok1m\x1b[0m"
    assert tame(text, coloured=False) == "red ok1m"
