"""The ladder's timing, with no clock at all: times in, the next rung out."""

import pytest

from whistlestop.domain.stops import Rung, Stop
from whistlestop.runner.ladder import Situation, Times, following

TIMES = Times(flag=300, interrupt=30, terminate=20, attach=60, kill_save=15)


def situation(stop: Stop = Stop.FINISH_PHASE, **known: object) -> Situation:
    given: dict[str, object] = {"ordered_at": 1000.0, "started_at": 0.0, "attached": True, "saving": False}
    return Situation(stop=stop, **(given | known))  # type: ignore[arg-type]


@pytest.mark.parametrize("stop", [Stop.FINISH_PHASE, Stop.PAUSE])
def test_an_attached_program_climbs_rung_by_rung(stop: Stop) -> None:
    assert following(situation(stop), TIMES) == (Rung.FLAG, 1000)
    assert following(situation(stop, rung=Rung.FLAG, rung_at=1000.0), TIMES) == (Rung.INTERRUPT, 1300)
    assert following(situation(stop, rung=Rung.INTERRUPT, rung_at=1300.0), TIMES) == (Rung.TERMINATE, 1330)
    assert following(situation(stop, rung=Rung.TERMINATE, rung_at=1330.0), TIMES) == (Rung.KILL, 1350)
    assert following(situation(stop, rung=Rung.KILL, rung_at=1350.0), TIMES) is None


def test_an_old_program_without_the_sdk_is_interrupted_at_once() -> None:
    assert following(situation(attached=False, rung=Rung.FLAG), TIMES) == (Rung.INTERRUPT, 1000)


def test_a_young_program_gets_time_to_attach() -> None:
    young = situation(attached=False, started_at=990.0, rung=Rung.FLAG)
    assert following(young, TIMES) == (Rung.INTERRUPT, 1050)


def test_a_task_is_interrupted_at_once_however_young() -> None:
    young = situation(attached=False, started_at=999.0, rung=Rung.FLAG, task=True)
    assert following(young, TIMES) == (Rung.INTERRUPT, 1000)


def test_a_kill_comes_at_once_from_every_rung() -> None:
    for rung in (None, Rung.FLAG, Rung.INTERRUPT, Rung.TERMINATE):
        assert following(situation(Stop.KILL, rung=rung), TIMES) == (Rung.KILL, 1000)


def test_a_kill_lets_a_save_finish_but_not_for_ever() -> None:
    assert following(situation(Stop.KILL, saving=True), TIMES) == (Rung.KILL, 1015)
    assert following(situation(Stop.KILL, saving=False), TIMES) == (Rung.KILL, 1000)


def test_without_a_request_nothing_is_climbed() -> None:
    assert following(situation(Stop.NONE), TIMES) is None
