import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whistlestop.domain.errors import BadRequest
from whistlestop.sdk.cadence import AnyOf, AutoCadence, EveryEpochs, EverySeconds, EverySteps, read_cadence


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (None, ()),
        ("", ()),
        (500, (EverySteps(500),)),
        ("500 steps", (EverySteps(500),)),
        ("1 step", (EverySteps(1),)),
        ("10 minutes, 1 epoch", (EverySeconds(600), EveryEpochs(1))),
        (["90 seconds", "2 hours"], (EverySeconds(90), EverySeconds(7200))),
        ("30s,5m", (EverySeconds(30), EverySeconds(300))),
        ("auto", (AutoCadence(),)),
    ],
)
def test_words_become_policies(every: object, expected: tuple[object, ...]) -> None:
    assert read_cadence(every) == AnyOf(expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("every", ["often", "0 steps", "5", "1.5 steps", "-3 steps", "5 parsecs", 0])
def test_a_cadence_that_makes_no_sense_says_what_to_write(every: str | int) -> None:
    with pytest.raises(BadRequest) as caught:
        read_cadence(every)
    assert "500 steps" in str(caught.value.hint)


@given(step=st.integers(0, 10**9), every=st.integers(1, 10**6))
def test_the_next_step_is_the_next_multiple(step: int, every: int) -> None:
    following = EverySteps(every).next_step(step, per_epoch=None)
    assert step < following <= step + every
    assert following % every == 0


def test_epochs_need_to_know_their_length() -> None:
    assert EveryEpochs(2).next_step(50, per_epoch=100) == 200
    assert EveryEpochs(2).next_step(50, per_epoch=None) == math.inf


def test_any_of_takes_the_first() -> None:
    both = AnyOf((EverySteps(100), EverySteps(70), EverySeconds(60)))
    assert both.next_step(0, per_epoch=None) == 70
    assert both.next_time(1000.0, save_seconds=0.0) == 1060.0
    assert AnyOf().next_time(1000.0, save_seconds=0.0) == math.inf


def test_auto_saves_less_often_when_saving_is_dear() -> None:
    cheap, dear = (AutoCadence().next_time(0.0, save_seconds=cost) for cost in (0.001, 60.0))
    assert cheap == 30.0
    assert dear > 1000.0
