"""Whether a save fits into a notice, by what was measured."""

from pathlib import Path
from typing import Any

import pytest

from whistlestop.channel.control import Control
from whistlestop.channel.layout import Word
from whistlestop.runner.fitting import Fitting


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def __call__(self, kind: str, text: str, /, **data: Any) -> None:
        self.events.append((kind, text, data))


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control.create(tmp_path / "control")


def measured(control: Control, *, step: int, at: float, save: float, durable: float, durable_step: int) -> None:
    control[Word.STEP] = step
    control[Word.DURABLE_STEP] = durable_step + 1
    for word, seconds in ((Word.PROGRESS_AT, at), (Word.SAVE_SECONDS, save), (Word.DURABLE_SECONDS, durable)):
        control.set_seconds(word, seconds)


def test_it_is_said_once_when_a_save_does_not_fit_and_once_when_it_does_again(control: Control) -> None:
    fitting, told = Fitting(control, 30.0), Told()
    fitting.look()
    fitting.flag(told)
    for step in (100, 110, 120):
        measured(control, step=step, at=1000.0 + 2 * step, save=3.0, durable=36.0, durable_step=step // 50 * 50)
        fitting.look()
        fitting.flag(told)
    ((kind, text, data),) = told.events
    assert (kind, data["steps"]) == ("notice_too_short", 10)
    assert text == (
        "A notice here is 30 s; a save takes 41 s (2.0 s step, 3.0 s copy, 36.0 s upload): up to 10 steps since the "
        "last periodic save would be lost. Save more often, or to a faster storage."
    )
    for step, durable in ((200, 5.0), (210, 36.0), (220, 5.0)):
        measured(control, step=step, at=1000.0 + 2 * step, save=3.0, durable=durable, durable_step=step)
        fitting.look()
        fitting.flag(told)
    assert [event[0] for event in told.events] == ["notice_too_short", "notice_fits"]


def test_what_is_on_its_way_comes_first(control: Control) -> None:
    fitting = Fitting(control, None)
    assert fitting.fits(0.1, pending=True)  # nobody can tell yet
    measured(control, step=9, at=1.0, save=1.0, durable=4.0, durable_step=5)
    fitting.look()
    assert fitting.fits(5.0, pending=False)
    assert not fitting.fits(5.0, pending=True)
    assert not fitting.fits(4.9, pending=False)


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), -1e9])
def test_nonsense_in_the_control_block_is_nothing(control: Control, nonsense: float) -> None:
    fitting, told = Fitting(control, 30.0), Told()
    for step in (1, 2, 3):
        measured(control, step=step, at=nonsense, save=nonsense, durable=nonsense, durable_step=1)
        fitting.look()
        fitting.flag(told)
    assert fitting.fits(0.0, pending=True)
    assert not told.events
