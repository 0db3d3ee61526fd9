"""Why the program ended: one reason out of the closed list, from every witness there is. Pure."""

import signal
from collections.abc import Collection
from dataclasses import dataclass

from whistlestop.channel.layout import EXIT_PAUSED, Loop
from whistlestop.domain.reasons import EndReason
from whistlestop.domain.stops import Rung, Stop

_SIGNALLED = (Rung.INTERRUPT, Rung.TERMINATE, Rung.KILL)
_RUNG_SAYS = {Rung.INTERRUPT: "SIGINT", Rung.TERMINATE: "SIGTERM", Rung.KILL: "SIGKILL"}
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
    preempted: bool = False  # the capacity gave notice
    out_of_memory: bool = False  # the kernel killed for memory while the program ran
    time_limit: bool = False  # the stop came from the time limit
    task: bool = False
    behind: bool = False  # it was started again, and what it has saved before can't be had on this host


def classify(end: Ending) -> EndReason:
    if end.stop is Stop.KILL:
        return EndReason.KILLED
    if end.exit_code == 0 and end.loop is Loop.FINISHED:
        return EndReason.FINISHED  # it was quicker than the request
    if end.stop is Stop.PAUSE:
        return _paused(end)
    if end.stop is Stop.FINISH_PHASE:
        return _stopped(end)
    if end.preempted:
        return _preempted(end)
    if end.attached and (end.exit_code == EXIT_PAUSED or end.loop is Loop.PAUSED):
        # The SDK leaves this way on a SIGTERM that somebody else sent; a launcher of ranks has a code of its own then.
        return EndReason.PREEMPTED
    return _by_itself(end)


def _paused(end: Ending) -> EndReason:
    if end.exit_code == EXIT_PAUSED or end.rung in _SIGNALLED or end.loop is Loop.PAUSED:
        return EndReason.PAUSED
    return _by_itself(end)


def _stopped(end: Ending) -> EndReason:
    if end.time_limit and end.task:
        return EndReason.TIME_LIMIT if end.rung in _SIGNALLED else _by_itself(end)
    if end.exit_code == 0:
        return EndReason.STOPPED
    if end.rung not in _SIGNALLED:
        return _by_itself(end)
    # Without the SDK the signals are the stop; with it, or at SIGKILL, only a checkpoint makes a result.
    if end.saved or (not (end.attached or end.imported) and end.rung is not Rung.KILL):
        return EndReason.STOPPED
    return EndReason.STOP_UNANSWERED


def _preempted(end: Ending) -> EndReason:
    # Without the SDK exit 0 may just be how it answers SIGTERM: taken for the end, the rest of the work would be lost.
    ended = end.exit_code == 0 and end.attached and end.loop not in (Loop.INSIDE, Loop.PAUSED)
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
    words = [_how(end)]
    if dead_ranks:
        words.append(f"rank {', '.join(map(str, sorted(dead_ranks)))} died first")
    if reason is EndReason.OUT_OF_MEMORY:
        words.append("the kernel counted a kill for lack of memory meanwhile")
    if reason is EndReason.ENDED_EARLY:
        words.append("its loop had steps left")
    if end.stop in (Stop.FINISH_PHASE, Stop.PAUSE) and end.rung in _SIGNALLED:
        words.append(f"the ladder went up to {_RUNG_SAYS[end.rung]}")
    if end.preempted:
        words.append("after notice that the capacity goes")
    if exception and reason in (EndReason.CODE_RAISED, EndReason.SIGNALLED, EndReason.OUT_OF_MEMORY):
        words.append(f"its last error line: {exception}")
    if held:
        words.append(f"{held} processes hang in the kernel and could not be ended")
    return "; ".join(words)


def _how(end: Ending) -> str:
    if end.signal is not None:
        name = signal.Signals(end.signal).name if end.signal in {*signal.Signals} else str(end.signal)
        return f"ended by {name}"
    return f"exit code {end.exit_code}"
