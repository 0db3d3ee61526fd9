"""The capacity goes: SIGTERM, an order of ours and the notices of the pool's sources all come to this one place."""

import asyncio
import math
import os
import select
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from whistlestop.channel.layout import Loop, Word
from whistlestop.domain.stops import Stop
from whistlestop.runner.climb import Climber, Tell
from whistlestop.runner.fitting import Fitting
from whistlestop.runner.launching import SIGNALS
from whistlestop.runner.notices import Kind, Notice

if TYPE_CHECKING:
    from whistlestop.channel.control import Control
    from whistlestop.runner.program import Program
    from whistlestop.wire.frames import Order

GRACE = "WHISTLE_PREEMPT_GRACE"  # seconds between SIGTERM to the runner and the end of the host
AHEAD = "WHISTLE_PREEMPT_AHEAD"  # seconds between SIGUSR2 and the end of the job's time
USUAL_GRACE = 25.0
SLURM_END = "SLURM_JOB_END_TIME"  # unix time
OURS = "whistlestop"  # the source of what we ask for ourselves
LEAST = 1.0  # seconds for a program whose notice comes late: the machine is still there
_BY_SIGNAL = [code for number in SIGNALS for code in (-number, 128 + number)]  # or of a shell
SAME = 0.1  # seconds: a deadline that is earlier by less is no news
LATE = 0.3  # seconds: who ends a whole machine signals all of its processes, and we may hear of it last
# To prove the end and to tell it: of 25 trees of nine processes, on two cores with a load of 7, the slowest took 0.11 s
# from the kill to `ended` at the server. Where the server is slow its acknowledgements say more.
TELLING, MOST_TELLING = 0.5, 0.25  # seconds at least; a share of the notice at most


class Preemption:
    """`kill` ends the tree, `cancel` ends preparing; `busy` says whether a save is on its way, `answering` how long the
    server took to acknowledge."""

    def __init__(
        self,
        control: "Control",
        program: "Program",
        climber: Climber,
        fitting: Fitting,
        *,
        tell: Tell,
        kill: Callable[[], None],
        cancel: Callable[[], None],
        busy: Callable[[], bool],
        answering: Callable[[], float],
    ) -> None:
        self._control, self._program, self._climber, self._fitting = control, program, climber, fitting
        self._tell, self._kill, self._cancel, self._busy, self._answering = tell, kill, cancel, busy, answering
        self._killing: asyncio.TimerHandle | None = None
        self._until = self._telling = 0.0  # by time.monotonic(): the time of day may be set while the notice runs
        self._heard: set[tuple[str, float]] = set()  # final ones: an order that stands is sent again and again
        self._skips = False  # a new save would not be durable in time
        self._late = asyncio.Event()
        self._late_words = ""
        self._ended = False
        self.notice: Notice | None = None  # the first final one: what ends the program from then on is its doing

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """SIGTERM comes from a cluster, or from a host that shuts down; SIGUSR2 is what Slurm is asked to send."""
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def on_order(self, order: "Order") -> None:
        if order.preempt_deadline:
            words = order.preempt_why or "Whistlestop takes the capacity back"
            self.take(Notice(OURS, Kind.FINAL, order.preempt_deadline, words))

    def take(self, notice: Notice) -> None:
        """What comes behind the program's own end did not cause it."""
        if self._has_ended():
            if notice.kind is Kind.FINAL:
                self._late_words = self._late_words or notice.text
                self._late.set()
        elif notice.kind is Kind.FINAL:
            self._leave(notice)
        elif self.notice is None:
            self._climber.save_once_more()
            words = f"{notice.text}. A save is made now; training goes on."
            self._tell("notice", words, source=notice.source, deadline=notice.deadline, kind=notice.kind, final=False)

    def look(self) -> None:
        """On every tick."""
        if self._ended:
            return
        self._fitting.look()
        if self.notice is None:
            self._fitting.flag(self._tell)
        elif not self._skips and self._is_about_to_save():
            left = self._until - self._telling - time.monotonic()
            if not self._fitting.fits(left, pending=self._busy()):
                self._skip(left)

    def ended(self) -> None:
        """The program has: nothing more is asked of it, and nobody is killed."""
        self._ended = True
        if self._killing is not None:
            self._killing.cancel()

    def patience(self) -> float | None:
        """Seconds for what is staged to become safe; None: as long as it takes."""
        return None if self.notice is None else max(0.0, self._until - self._telling - time.monotonic())

    async def words(self, status: int | None) -> str:
        """Of the notice that ended the program; empty: there was none. `status`: how the kernel says that it ended."""
        if self.notice is not None:
            return self.notice.text
        ours = self._climber.stop is not Stop.NONE  # then it may have been our own signal
        if ours or status is None or os.waitstatus_to_exitcode(status) not in _BY_SIGNAL:
            return ""
        try:
            async with asyncio.timeout(LATE):
                await self._late.wait()
        except TimeoutError:
            pass
        return self._late_words

    def _on_signal(self, number: signal.Signals) -> None:
        grace = _number(os.environ.get(GRACE))
        now = time.time()
        until = now + (USUAL_GRACE if grace is None else grace)
        if number == signal.SIGUSR2:
            ahead = _number(os.environ.get(AHEAD))
            until = until if ahead is None else now + ahead
            end = _number(os.environ.get(SLURM_END)) or 0.0
            until = end if end > now else until  # else the job was given more time since it began
        self.take(Notice(number.name.lower(), Kind.FINAL, until, f"The capacity is being taken back ({number.name})"))

    def _leave(self, notice: Notice) -> None:
        now = time.time()
        deadline = max(notice.deadline, now if notice.source == OURS else now + LEAST)
        until = time.monotonic() + deadline - now
        if (notice.source, notice.deadline) in self._heard or (self.notice is not None and until > self._until - SAME):
            return
        self._heard.add((notice.source, notice.deadline))
        first, self.notice = self.notice is None, self.notice or notice
        self._until = until
        self._telling = min(max(TELLING, 4 * self._answering()), MOST_TELLING * (deadline - now))
        # Before the deadline: the loop may look at any moment.
        self._skips = self._is_about_to_save() and not self._fitting.fits(
            deadline - self._telling - now, pending=self._busy()
        )
        self._control[Word.PAUSE_LATEST] = self._control[Word.PAUSE_LATEST] or int(self._skips)
        self._control.set_seconds(Word.PREEMPT_DEADLINE, deadline)
        asked = self._ask() if first else "earlier than it was told before"
        words = f"{notice.text}, in {deadline - now:.0f} s: {asked}."
        self._tell("notice", words, source=notice.source, deadline=deadline, kind=notice.kind, final=True)
        if self._killing is not None:
            self._killing.cancel()
        wait = max(0.0, deadline - self._telling - now)
        self._killing = asyncio.get_running_loop().call_later(wait, self._end)

    def _ask(self) -> str:
        if self._program.started_at is None:
            self._cancel()
            return "the program is not started"
        if not self._control[Word.ATTACHED]:
            self._program.signal(signal.SIGTERM)
            return "the program does not use the SDK, or has not come to it yet: it got SIGTERM"
        if self._skips:
            return f"the program was asked to leave without a save, which would take {self._fitting.in_words()}"
        return "the program was asked to save and leave"

    def _skip(self, left: float) -> None:
        self._skips = True
        self._control[Word.PAUSE_LATEST] = 1
        words = f"A save takes {self._fitting.in_words()}, and {max(0.0, left):.1f} s are left: no new one is begun."
        self._tell("notice", words, final=False)

    def _end(self) -> None:
        self._tell("notice", "The program is still there, and its time is up: the whole process tree is being killed.")
        self._kill()

    def _is_about_to_save(self) -> bool:
        return self._control[Word.LOOP] == Loop.INSIDE and not self._control[Word.SAVING]

    def _has_ended(self) -> bool:
        if self._ended or self._program.started_at is None:
            return self._ended
        return bool(select.select([self._program.pidfd], [], [], 0)[0])


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
