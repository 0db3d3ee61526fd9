"""Carrying out a request: into the control block at once, then up the ladder until the program has ended."""

import asyncio
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from whistlestop.channel.layout import Word
from whistlestop.domain.stops import Rung, Stop
from whistlestop.runner.ladder import SIGNALS, Situation, Times, following
from whistlestop.runner.progress import imported
from whistlestop.wire.frames import Order

if TYPE_CHECKING:
    from whistlestop.channel.control import Control
    from whistlestop.runner.program import Program

_SAVE_LOOK = 0.01  # a save in progress has no wake-up
_SENDS = {Rung.INTERRUPT: signal.SIGINT, Rung.TERMINATE: signal.SIGTERM}
_SAYS = {
    Rung.FLAG: "The program was asked to stop at its next step.",
    Rung.INTERRUPT: "SIGINT was sent to the program.",
    Rung.TERMINATE: "SIGTERM was sent to the program.",
    Rung.KILL: "The whole process tree is being killed.",
}


class Tell(Protocol):
    def __call__(self, kind: str, text: str, /, **data: Any) -> None: ...


class Climber:
    """Owns the standing request. A request is only ever raised. `kill` ends the tree without grace. `follows`: on other
    nodes than the first its program hears of a request from the first one's; only a kill is carried out here."""

    def __init__(
        self,
        control: "Control",
        times: Times,
        *,
        task: bool,
        follows: bool = False,
        tell: Tell,
        kill: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._control = control
        self._times = times
        self._task = task
        self._follows = follows
        self._tell = tell
        self._kill = kill
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._program: Program | None = None
        self._ordered_at = self._rung_at = self._started_at = 0.0
        self._seq = self._saves = self._own_saves = 0
        self._handed: list[tuple[float, int]] = []  # when the program was asked to save, and how many times by then
        self.stop = Stop.NONE
        self.rung: Rung | None = None
        self.actor = ""
        self.reason = ""
        self.own_limit = False  # the request came from the runner itself: its time is up

    def take(self, order: Order, *, own_limit: bool = False) -> bool:
        """Straight into the control block. True when it asks for more than before."""
        control = self._control
        self._saves = max(self._saves, order.checkpoint_now)
        self._hand_saves()
        if order.kill_save is not None:
            self._times = Times(**{**self._times.__dict__, "kill_save": order.kill_save})
        stop = Stop(order.stop)
        if stop <= self.stop:
            return False
        self._seq = max(self._seq + 1, order.seq)
        # Or as a notice has it, in which no save would fit.
        control[Word.PAUSE_LATEST] = control[Word.PAUSE_LATEST] or int(order.latest)
        control[Word.STOP_LEVEL] = stop
        control[Word.STOP_SEQ] = self._seq
        self.stop, self.actor, self.reason, self.own_limit = stop, order.actor, order.reason, own_limit
        self._ordered_at = self._clock()
        self._tell(
            "order_seen", f"{_ASKS[stop]} (asked by {order.actor or 'somebody'}).", seq=order.seq, stop=int(stop)
        )
        self.go_on()
        return True

    def started(self, program: "Program") -> None:
        self._program = program
        self._started_at = self._clock()
        self.go_on()

    def go_on(self) -> None:
        """Look at the situation again: climb what is due, and come back when the next rung is."""
        self.halt()
        self._hand_saves()
        if self._follows and self.stop is not Stop.KILL:
            return
        while self._program is not None and (step := following(self._situation(), self._times)) is not None:
            rung, due = step
            if due > self._clock():
                wait = due - self._clock()
                self._control.set_seconds(Word.STOP_DEADLINE, time.time() + wait)
                if self.stop is Stop.KILL:
                    wait = min(wait, _SAVE_LOOK)
                self._timer = asyncio.get_running_loop().call_later(wait, self.go_on)
                return
            self._climb(rung)

    def save_once_more(self) -> None:
        """Nobody has ordered it: the capacity may go."""
        self._own_saves += 1
        self._hand_saves()

    def halt(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ended(self) -> None:
        """The program has ended: there is nobody to climb for."""
        self._program = None
        self.halt()

    def _hand_saves(self) -> None:
        """Once there is a loop: it saves for every increase that it sees, and what was there before it is none."""
        wanted = self._saves + self._own_saves
        if self._control[Word.LOOP] and wanted > self._control[Word.CHECKPOINT_NOW]:
            # By the clock that also dates the checkpoints; whichever thread asks sees the whole list.
            self._handed = [*self._handed, (time.time(), self._saves)]
            self._control[Word.CHECKPOINT_NOW] = wanted

    def saves_handed_by(self, at: float) -> int:
        """How many saves the program had been asked for when it committed a checkpoint at this time."""
        return max((count for handed_at, count in self._handed if handed_at <= at), default=0)

    def _climb(self, rung: Rung) -> None:
        self.rung, self._rung_at = rung, self._clock()
        if rung is Rung.KILL:
            self._kill()
        elif rung in _SENDS and self._program is not None:
            self._program.signal(_SENDS[rung])
        coming = following(self._situation(), self._times)
        text = _SAYS[rung]
        if rung is Rung.FLAG and not imported(self._control):
            text = "The program does not use the SDK, or has not come to it yet."
        data: dict[str, Any] = {"rung": rung.value, "next_rung": None, "next_in_s": None}
        if coming is not None:
            wait = max(0.0, coming[1] - self._clock())
            text += f" Unless it ends, {SIGNALS[coming[0]]} follows in {wait:.0f} s."
            data |= {"next_rung": coming[0].value, "next_in_s": wait}
        self._tell("rung", text, **data)

    def _situation(self) -> Situation:
        return Situation(
            stop=self.stop,
            ordered_at=self._ordered_at,
            started_at=self._started_at,
            # A slow import must not be shot: once it is through, the loop sees the flag before its first step.
            attached=imported(self._control),
            saving=bool(self._control[Word.SAVING]),
            task=self._task,
            rung=self.rung,
            rung_at=self._rung_at,
        )


_ASKS = {
    Stop.NONE: "Nothing is asked for",
    Stop.FINISH_PHASE: "Stop training and keep the result",
    Stop.PAUSE: "Pause",
    Stop.KILL: "Kill",
}
