"""The exit table: every row is one way to end, and the one reason for it."""

import signal

import pytest

from whistlestop.channel.layout import Loop
from whistlestop.domain.reasons import EndReason as R
from whistlestop.domain.stops import Rung, Stop
from whistlestop.runner.exit import Ending, classify, evidence

FINISH, PAUSE, KILL = Stop.FINISH_PHASE, Stop.PAUSE, Stop.KILL
TERM, NINE = signal.SIGTERM, signal.SIGKILL

TABLE = [
    (R.FINISHED, Ending(0)),
    (R.FINISHED, Ending(0, attached=True, loop=Loop.FINISHED)),
    (R.FINISHED, Ending(0, attached=True, loop=Loop.LEFT)),
    (R.FINISHED, Ending(0, attached=True, loop=Loop.FINISHED, stop=FINISH, rung=Rung.FLAG)),
    (R.FINISHED, Ending(0, attached=True, loop=Loop.FINISHED, stop=PAUSE, rung=Rung.FLAG)),
    (R.FINISHED, Ending(0, stop=PAUSE, rung=Rung.FLAG, task=True)),
    (R.ENDED_EARLY, Ending(0, attached=True, loop=Loop.INSIDE)),
    (R.CODE_RAISED, Ending(1)),
    (R.CODE_RAISED, Ending(1, attached=True, loop=Loop.INSIDE)),
    (R.CODE_RAISED, Ending(1, attached=True, stop=FINISH, rung=Rung.FLAG)),
    (R.CODE_RAISED, Ending(1, attached=True, stop=PAUSE, rung=Rung.FLAG)),
    (R.BEHIND, Ending(1, attached=True, behind=True)),
    (R.BEHIND, Ending(None, TERM, attached=True, behind=True)),
    (R.FINISHED, Ending(0, attached=True, behind=True)),
    (R.KILLED, Ending(1, attached=True, behind=True, stop=KILL)),
    (R.CODE_RAISED, Ending(75)),
    (R.CODE_RAISED, Ending(137)),
    (R.SIGNALLED, Ending(None, signal.SIGSEGV)),
    (R.SIGNALLED, Ending(None, NINE)),
    (R.SIGNALLED, Ending(None, TERM, out_of_memory=True)),
    (R.OUT_OF_MEMORY, Ending(None, NINE, out_of_memory=True)),
    (R.OUT_OF_MEMORY, Ending(137, out_of_memory=True)),
    (R.CODE_RAISED, Ending(1, out_of_memory=True)),
    (R.STOPPED, Ending(0, attached=True, loop=Loop.STOPPED, stop=FINISH, rung=Rung.FLAG)),
    (R.STOPPED, Ending(0, attached=True, loop=Loop.INSIDE, stop=FINISH, rung=Rung.FLAG)),
    (R.STOPPED, Ending(130, stop=FINISH, rung=Rung.INTERRUPT)),
    (R.STOPPED, Ending(None, TERM, stop=FINISH, rung=Rung.TERMINATE)),
    (R.STOPPED, Ending(None, NINE, stop=FINISH, rung=Rung.KILL, saved=True)),
    (R.STOPPED, Ending(None, NINE, attached=True, stop=FINISH, rung=Rung.KILL, saved=True)),
    (R.STOPPED, Ending(0, stop=FINISH, rung=Rung.FLAG, time_limit=True)),
    (R.STOP_UNANSWERED, Ending(None, NINE, stop=FINISH, rung=Rung.KILL)),
    (R.STOP_UNANSWERED, Ending(130, attached=True, stop=FINISH, rung=Rung.INTERRUPT)),
    (R.STOP_UNANSWERED, Ending(130, imported=True, stop=FINISH, rung=Rung.INTERRUPT)),
    (R.STOPPED, Ending(130, imported=True, stop=FINISH, rung=Rung.INTERRUPT, saved=True)),
    (R.TIME_LIMIT, Ending(130, stop=FINISH, rung=Rung.INTERRUPT, time_limit=True, task=True)),
    (R.TIME_LIMIT, Ending(0, stop=FINISH, rung=Rung.TERMINATE, time_limit=True, task=True)),
    (R.PAUSED, Ending(75, attached=True, loop=Loop.PAUSED, stop=PAUSE, rung=Rung.FLAG)),
    (R.PAUSED, Ending(None, TERM, stop=PAUSE, rung=Rung.TERMINATE)),
    (R.PAUSED, Ending(0, stop=PAUSE, rung=Rung.INTERRUPT)),
    (R.PAUSED, Ending(None, NINE, attached=True, stop=PAUSE, rung=Rung.KILL)),
    (R.PREEMPTED, Ending(75, attached=True, loop=Loop.PAUSED)),
    (R.PREEMPTED, Ending(75, attached=True, loop=Loop.PAUSED, preempted=True)),
    (R.PREEMPTED, Ending(None, TERM, preempted=True)),
    (R.PREEMPTED, Ending(0, preempted=True)),
    (R.PREEMPTED, Ending(0, attached=True, loop=Loop.INSIDE, preempted=True)),
    (R.FINISHED, Ending(0, attached=True, loop=Loop.LEFT, preempted=True)),
    (R.KILLED, Ending(None, NINE, stop=KILL, rung=Rung.KILL)),
    (R.KILLED, Ending(0, stop=KILL, rung=Rung.KILL)),
    (R.KILLED, Ending(None, NINE, stop=KILL, rung=Rung.KILL, out_of_memory=True)),
]


@pytest.mark.parametrize(("reason", "ending"), TABLE)
def test_every_way_to_end_has_its_one_reason(reason: R, ending: Ending) -> None:
    assert classify(ending) is reason


def test_the_evidence_names_the_signal_and_the_last_error_line() -> None:
    words = evidence(Ending(None, signal.SIGSEGV), R.SIGNALLED, exception="RuntimeError: boom")
    assert words == "ended by SIGSEGV; its last error line: RuntimeError: boom"


def test_a_signal_without_a_name_is_given_as_a_number() -> None:
    assert "ended by 40" in evidence(Ending(None, 40), R.SIGNALLED, exception="")
