"""Why the program ended: one reason out of the closed list, from every witness there is. Pure."""

import signal
from collections.abc import Collection
from dataclasses import dataclass

from whistlestop.channel.layout import EXIT_PAUSED, Loop
from whistlestop.domain.reasons import EndReason
from whistlestop.domain.stops import Rung, Stop

_SIGNALLED = (Rung.INTERRUPT, Rung.TERMINATE, Rung.KILL)
_RUNG_SAYS = {Rung.INTERRUPT: "SIGINT", Rung.TERMINATE: "SIGTERM", Rung.KILL: "SIGKILL"}
_RAISED = (EndReason.CODE_RAISED, EndReason.SIGNALLED, EndReason.OUT_OF_MEMORY)
_SHELL_SIGKILL = 128 + signal.SIGKILL  # how a shell tells that its child was killed


@dataclass(frozen=True)
class Ending:
    """What is known when the program has ended."""

    exit_code: int | None  # None: it was ended by a signal
    signal: int | None = None
    stop: Stop = Stop.NONE
    rung: Rung | None = None  # how far the ladder went
    loop: Loop = Loop.NONE
    attached: bool = False
    imported: bool = False  # the SDK was on its way in
    saved: bool = False  # a checkpoint of this phase is committed
    notice: str = ""  # that the capacity goes, in words: it was there before the end
    unsafe: bool = False  # and what was saved last is not safe
    out_of_memory: bool = False  # the kernel killed for memory while the program ran
    limit: str = ""  # what the stop came from, if nobody asked for it: its time limit, its budget, its deadline
    task: bool = False
    behind: bool = False  # it was started again, and what it has saved before can't be had on this host


def classify(end: Ending) -> EndReason:
    if end.stop is Stop.KILL:
        return EndReason.KILLED
    if end.notice and end.unsafe:
        return EndReason.PREEMPTED  # however it ended: its result is gone with the machine
    if end.exit_code == 0 and end.loop is Loop.FINISHED:
        return EndReason.FINISHED  # it was quicker than the request
    if end.stop is Stop.PAUSE:
        return _paused(end)
    if end.stop is Stop.FINISH_PHASE:
        return _stopped(end)
    if end.notice:
        return _preempted(end)
    if _left_in_order(end):  # on a SIGTERM that somebody else sent
        return EndReason.PREEMPTED
    return _by_itself(end)


def _left_in_order(end: Ending) -> bool:
    """By the SDK, whose word it is: a launcher of ranks has a code of its own then, and others may have ours."""
    return end.attached and end.loop is Loop.PAUSED


def _otherwise(end: Ending) -> EndReason:
    """What was asked for did not end it: the notice did, if there was one."""
    return _preempted(end) if end.notice else _by_itself(end)


def _paused(end: Ending) -> EndReason:
    if end.exit_code == EXIT_PAUSED or end.rung in _SIGNALLED or end.loop is Loop.PAUSED:
        return EndReason.PAUSED
    # A `break`, or a loop of its own that asks `should_stop`: perhaps it was done, and then it is when it is resumed.
    if end.exit_code == 0 and end.attached and end.loop is not Loop.STOPPED:
        return EndReason.PAUSED
    return _otherwise(end)


def _stopped(end: Ending) -> EndReason:
    if end.limit and end.task:
        return EndReason.TIME_LIMIT if end.rung in _SIGNALLED else _otherwise(end)
    if end.exit_code == 0:
        return EndReason.STOPPED
    if end.rung not in _SIGNALLED:
        return _otherwise(end)
    # Without the SDK the signals are the stop; with it, or at SIGKILL, only a checkpoint makes a result.
    if end.saved or (not (end.attached or end.imported) and end.rung is not Rung.KILL):
        return EndReason.STOPPED
    return EndReason.STOP_UNANSWERED


def _preempted(end: Ending) -> EndReason:
    # Exit 0, or a `break`, may just be how it answers SIGTERM or `should_stop`: taken for the end, the rest of the work
    # would be lost. The other way round its last step is made again.
    ended = end.exit_code == 0 and end.attached and end.loop in (Loop.FINISHED, Loop.STOPPED)
    return EndReason.FINISHED if ended else EndReason.PREEMPTED


def _by_itself(end: Ending) -> EndReason:
    if end.exit_code == 0:
        return EndReason.ENDED_EARLY if end.attached and end.loop is Loop.INSIDE else EndReason.FINISHED
    if end.behind:
        return EndReason.BEHIND
    killed = end.signal == signal.SIGKILL or end.exit_code == _SHELL_SIGKILL
    if killed and end.out_of_memory:
        return EndReason.OUT_OF_MEMORY
    return EndReason.SIGNALLED if end.exit_code is None else EndReason.CODE_RAISED


def evidence(end: Ending, reason: EndReason, *, exception: str, held: int = 0, dead_ranks: Collection[int] = ()) -> str:
    """What the decision rests on, in a sentence or two."""
    left = reason is EndReason.PREEMPTED and _left_in_order(end)
    limit = f"asked to end by {end.limit}" if end.limit else ""
    words = [*filter(None, (end.notice, limit)), "the program left at its next step" if left else _how(end)]
    if dead_ranks:
        words.append(f"rank {', '.join(map(str, sorted(dead_ranks)))} died first")
    if reason is EndReason.OUT_OF_MEMORY:
        words.append("the kernel counted a kill for lack of memory meanwhile")
    if reason is EndReason.ENDED_EARLY:
        words.append("its loop had steps left")
    if end.stop in (Stop.FINISH_PHASE, Stop.PAUSE) and end.rung in _SIGNALLED:
        words.append(f"the ladder went up to {_RUNG_SAYS[end.rung]}")
    if reason is EndReason.PREEMPTED and not end.notice:
        words.append("on a signal that was not sent by Whistlestop")
    raised = reason is EndReason.PREEMPTED and end.exit_code and not left
    if exception and (reason in _RAISED or raised):
        words.append(f"its last error line: {exception}")
    if held:
        words.append(f"{held} processes hang in the kernel and could not be ended")
    return "; ".join(words)


def _how(end: Ending) -> str:
    if end.signal is not None:
        name = signal.Signals(end.signal).name if end.signal in {*signal.Signals} else str(end.signal)
        return f"ended by {name}"
    return f"exit code {end.exit_code}"
