"""When an attempt has to stop for its time limit."""

import math
import time

from whistlestop.channel.control import Control
from whistlestop.channel.layout import Word
from whistlestop.sdk.costs import Costs, must_begin_by


class TimeLimit:
    """`seconds` from now on; None: there is none."""

    def __init__(self, control: Control, seconds: float | None) -> None:
        self._control = control
        self._at = None if seconds is None else time.monotonic() + max(0.0, seconds)

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
