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
    (R.STOPPED, Ending(0, stop=FINISH, rung=Rung.FLAG, limit="its deadline")),
    (R.STOP_UNANSWERED, Ending(None, NINE, stop=FINISH, rung=Rung.KILL)),
    (R.STOP_UNANSWERED, Ending(130, attached=True, stop=FINISH, rung=Rung.INTERRUPT)),
    (R.STOP_UNANSWERED, Ending(130, imported=True, stop=FINISH, rung=Rung.INTERRUPT)),
    (R.STOPPED, Ending(130, imported=True, stop=FINISH, rung=Rung.INTERRUPT, saved=True)),
    (R.TIME_LIMIT, Ending(130, stop=FINISH, rung=Rung.INTERRUPT, limit="its deadline", task=True)),
    (R.TIME_LIMIT, Ending(0, stop=FINISH, rung=Rung.TERMINATE, limit="its deadline", task=True)),
    (R.PAUSED, Ending(75, attached=True, loop=Loop.PAUSED, stop=PAUSE, rung=Rung.FLAG)),
    (R.PAUSED, Ending(0, attached=True, loop=Loop.LEFT, stop=PAUSE, rung=Rung.FLAG)),
    (R.PAUSED, Ending(0, attached=True, loop=Loop.NONE, stop=PAUSE, rung=Rung.FLAG)),
    (R.FINISHED, Ending(0, attached=True, loop=Loop.STOPPED, stop=PAUSE, rung=Rung.FLAG)),
    (R.PAUSED, Ending(None, TERM, stop=PAUSE, rung=Rung.TERMINATE)),
    (R.PAUSED, Ending(0, stop=PAUSE, rung=Rung.INTERRUPT)),
    (R.PAUSED, Ending(None, NINE, attached=True, stop=PAUSE, rung=Rung.KILL)),
    (R.PREEMPTED, Ending(75, attached=True, loop=Loop.PAUSED)),
    (R.CODE_RAISED, Ending(75, attached=True, loop=Loop.INSIDE)),  # its own sys.exit(75): EX_TEMPFAIL
    (R.CODE_RAISED, Ending(75, attached=True, loop=Loop.LEFT)),
    (R.PREEMPTED, Ending(75, attached=True, loop=Loop.PAUSED, notice="AWS goes")),
    (R.PREEMPTED, Ending(None, TERM, notice="AWS goes")),
    (R.PREEMPTED, Ending(0, notice="AWS goes")),
    (R.PREEMPTED, Ending(0, attached=True, loop=Loop.INSIDE, notice="AWS goes")),
    (R.PREEMPTED, Ending(0, attached=True, loop=Loop.LEFT, notice="AWS goes")),
    (R.PREEMPTED, Ending(0, attached=True, notice="AWS goes")),
    (R.FINISHED, Ending(0, attached=True, loop=Loop.STOPPED, notice="AWS goes")),
    (R.PREEMPTED, Ending(None, NINE, attached=True, loop=Loop.INSIDE, notice="AWS goes")),
    (R.PREEMPTED, Ending(1, attached=True, loop=Loop.INSIDE, notice="AWS goes")),
    (R.PREEMPTED, Ending(None, NINE, out_of_memory=True, notice="AWS goes")),
    (R.FINISHED, Ending(0, attached=True, loop=Loop.FINISHED, notice="AWS goes")),
    (R.PREEMPTED, Ending(0, attached=True, loop=Loop.FINISHED, notice="AWS goes", unsafe=True)),
    (R.PREEMPTED, Ending(0, attached=True, loop=Loop.STOPPED, stop=FINISH, notice="AWS goes", unsafe=True)),
    (R.KILLED, Ending(0, attached=True, stop=KILL, notice="AWS goes", unsafe=True)),
    # A stop or a pause that was under way when the notice came, and that the end of the machine cut short.
    (R.PREEMPTED, Ending(None, NINE, attached=True, stop=FINISH, rung=Rung.FLAG, notice="AWS goes")),
    (R.PREEMPTED, Ending(None, NINE, attached=True, stop=PAUSE, rung=Rung.FLAG, notice="AWS goes")),
    (R.STOPPED, Ending(0, attached=True, loop=Loop.STOPPED, stop=FINISH, rung=Rung.FLAG, notice="AWS goes")),
    (R.PAUSED, Ending(75, attached=True, loop=Loop.PAUSED, stop=PAUSE, rung=Rung.FLAG, notice="AWS goes")),
    (R.KILLED, Ending(None, NINE, stop=KILL, rung=Rung.KILL, notice="AWS goes")),
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


def test_the_evidence_of_a_preemption_begins_with_the_notice_and_hides_no_error() -> None:
    words = evidence(Ending(1, notice="AWS takes it back"), R.PREEMPTED, exception="RuntimeError: boom")
    assert words == "AWS takes it back; exit code 1; its last error line: RuntimeError: boom"
    left = Ending(75, attached=True, loop=Loop.PAUSED)
    words = evidence(left, R.PREEMPTED, exception="an old one")
    assert words == "the program left at its next step; on a signal that was not sent by Whistlestop"


def test_a_signal_without_a_name_is_given_as_a_number() -> None:
    assert "ended by 40" in evidence(Ending(None, 40), R.SIGNALLED, exception="")
