"""When an attempt has to stop for its time limit, which may stand for the end of its budget or for its deadline."""

import math
import time

from whistlestop.channel.control import Control
from whistlestop.channel.layout import Word
from whistlestop.sdk.costs import Costs, must_begin_by

WHO = {"time_limit": "its time limit", "budget_exhausted": "its budget", "deadline": "its deadline"}
LONGEST_START = 600.0  # seconds; more than that between two clocks says that they differ


class TimeLimit:
    """`seconds` from the launch on, since the slots are paid for from there; None: there is none."""

    def __init__(self, control: Control, seconds: float | None, launched_at: float = 0.0) -> None:
        self._control = control
        gone = time.time() - launched_at
        left = 0.0 if seconds is None else seconds - (gone if 0 <= gone <= LONGEST_START else 0.0)
        self._at = None if seconds is None else time.monotonic() + max(0.0, left)

    def is_due(self) -> bool:
        """True once: early enough for the last save to be durable at the limit, by what the others have taken."""
        if self._at is None:
            return False
        costs = Costs(self._control.seconds(Word.SAVE_SECONDS), self._control.seconds(Word.DURABLE_SECONDS))
        begin = must_begin_by(self._at, costs)
        if time.monotonic() < (min(begin, self._at) if math.isfinite(begin) else self._at):
            return False  # the costs are the program's own words: they can't put the limit off
        self._at = None
        return True
