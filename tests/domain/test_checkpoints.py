"""Which checkpoint is meant where none is named."""

from dataclasses import dataclass

from whistlestop.domain.checkpoints import latest


@dataclass(frozen=True)
class Saved:
    phase: str
    step: int
    committed_at: float


def test_the_newest_of_the_phase_that_saved_last_is_meant() -> None:
    found = [Saved("first", 900, 10.0), Saved("second", 20, 12.0), Saved("second", 10, 11.0)]
    assert latest(found) == found[1]


def test_a_clock_that_was_set_back_between_two_saves_does_not_make_the_older_one_the_newest() -> None:
    found = [Saved("train", 15, 99.5), Saved("train", 10, 100.0)]
    assert latest(found) == found[0]


def test_of_none_there_is_none() -> None:
    assert latest([]) is None
