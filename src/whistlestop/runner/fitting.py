"""Whether a save fits into a notice, by what this attempt has measured so far, and saying so before it matters."""

import math
from typing import TYPE_CHECKING

from whistlestop.channel.layout import Word
from whistlestop.runner.climb import Tell
from whistlestop.sdk.costs import MARGIN

if TYPE_CHECKING:
    from whistlestop.channel.control import Control

_WEIGHT = 0.3  # of the newest step in the average


class Fitting:
    """`usual`: seconds of notice that this pool gives; None: nobody says."""

    def __init__(self, control: "Control", usual: float | None) -> None:
        self._control, self._usual = control, usual
        self._step, self._step_at, self._step_seconds = 0, 0.0, 0.0
        self._durable_step, self._gap = 0, 0
        self._short = self._fits_again = False  # what was told

    def look(self) -> None:
        """On every tick: how long steps take, and how many there are between two saves."""
        step, at = self._control[Word.STEP], self._seconds(Word.PROGRESS_AT)
        if step > self._step > 0 and at > self._step_at:
            taken = (at - self._step_at) / (step - self._step)
            self._step_seconds += (taken - self._step_seconds) * (_WEIGHT if self._step_seconds else 1.0)
        self._step, self._step_at = step, at
        durable = self._control[Word.DURABLE_STEP]
        if durable > self._durable_step:
            self._gap = durable - self._durable_step if self._durable_step else 0
            self._durable_step = durable

    def fits(self, seconds: float, *, pending: bool) -> bool:
        """A save that begins now is durable by then. True as long as nobody can tell. `pending`: another one is on its
        way, and comes first."""
        save, durable = self._costs()
        return not self._durable_step or save + durable * (2 if pending else 1) <= seconds

    def flag(self, tell: Tell) -> None:
        """Once in an attempt, and once when it is over."""
        if self._usual is None or not self._durable_step or not self._step_seconds:
            return
        save, durable = self._costs()
        needed = self._step_seconds + save + durable
        short = needed * MARGIN > self._usual
        if short and not self._short:
            self._short = True
            steps = max(self._gap, self._step - self._durable_step + 1)
            words = (
                f"A notice here is {self._usual:g} s; a save takes {needed:.0f} s ({self._step_seconds:.1f} s step, "
                f"{save:.1f} s copy, {durable:.1f} s upload): up to {steps} steps since the last periodic save would "
                "be lost. Save more often, or to a faster storage."
            )
            tell("notice_too_short", words, notice=self._usual, needed=needed, steps=steps)
        if not short and self._short and not self._fits_again:
            self._fits_again = True
            words = f"A save fits into a notice of {self._usual:g} s again: it takes {needed:.1f} s."
            tell("notice_fits", words, notice=self._usual, needed=needed)

    def in_words(self) -> str:
        save, durable = self._costs()
        return f"{save + durable:.1f} s ({save:.1f} s copy, {durable:.1f} s upload)"

    def _costs(self) -> tuple[float, float]:
        return self._seconds(Word.SAVE_SECONDS), self._seconds(Word.DURABLE_SECONDS)

    def _seconds(self, word: Word) -> float:
        """The program's own words: anything may stand there."""
        value = self._control.seconds(word)
        return value if math.isfinite(value) and value > 0 else 0.0
