"""A runner on a cluster that reaches neither the server nor the cluster saves, ends its program and leaves: somebody
may be about to start the next attempt. Where nothing is known of a host, this is all that keeps two from
running at once.

The server is asked all the time, by the link. The cluster is asked by the witness, a command, and only while the server
is away: a thousand nodes that ask a controller have a price. So a server may be gone for days.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence

from whistlestop.domain.lease import leave_seconds
from whistlestop.runner.notes import note
from whistlestop.runner.notices import Kind, Notice

SOURCE = "lease"
ASK_AFTER = 0.5  # of the lease: without a word from the server for so long, the cluster is asked
ASK_AGAIN = 0.1  # of the lease, after an answer that was none
TIMEOUT = 10.0  # seconds for the witness; at most a quarter of the lease


def now() -> float:
    """Goes on while the machine sleeps: the lease does, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """Only counts: `at` is always a time of `now`."""

    def __init__(self, seconds: float, at: float) -> None:
        self.seconds = seconds
        self._renewed = at
        self._asked = -seconds  # when a question began that has had no good answer

    def renew(self, at: float) -> None:
        """Somebody who counts has heard of us then, or later."""
        self._renewed = max(self._renewed, at)

    def is_over(self, at: float) -> bool:
        return at - self._renewed >= self.seconds

    def should_ask(self, at: float) -> bool:
        """The cluster, since nobody has answered for some time. True once for each question."""
        silent = at - self._renewed >= ASK_AFTER * self.seconds
        if self.is_over(at) or not silent or at - self._asked < ASK_AGAIN * self.seconds:
            return False
        self._asked = at
        return True


class Keeping:
    """`heard` is when the server has last heard of us, `take` ends what runs here."""

    def __init__(
        self,
        seconds: float,
        witness: Sequence[str],
        *,
        heard: Callable[[], float],
        take: Callable[[Notice], None],
        clock: Callable[[], float] = now,
    ) -> None:
        self._lease = Lease(seconds, clock())
        self._witness, self._heard, self._take, self._clock = list(witness), heard, take, clock
        self._asking: asyncio.Task[None] | None = None
        self.over = False

    def look(self) -> None:
        """On every tick."""
        if self.over:
            return
        at = self._clock()
        self._lease.renew(self._heard())
        if self._lease.is_over(at):
            self.over = True
            self._take(Notice(SOURCE, Kind.FINAL, time.time() + leave_seconds(), self._words()))
        elif self._witness and self._asking is None and self._lease.should_ask(at):
            self._asking = asyncio.create_task(self._ask(at))

    async def _ask(self, at: float) -> None:
        try:
            if await asyncio.to_thread(succeeds, self._witness, min(TIMEOUT, self._lease.seconds / 4)):
                self._lease.renew(at)
        finally:
            self._asking = None

    def _words(self) -> str:
        who = "Neither the server nor the cluster has" if self._witness else "The server has not"
        return f"{who} answered for {self._lease.seconds:g} s, and the next attempt may begin elsewhere"


def succeeds(command: Sequence[str], within: float) -> bool:
    """Told by what it prints: the exit of every child of ours is taken in elsewhere (see `Reaper`)."""
    words = ["/bin/sh", "-c", '"$@" >/dev/null 2>&1 && echo yes', "sh", *command]
    try:
        asked = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        note(f"the cluster can't be asked: {error}")
        return False
    try:
        return asked.communicate(timeout=within)[0] == b"yes\n"
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(asked.pid, signal.SIGKILL)  # with what it has started
        asked.communicate()
        return False
