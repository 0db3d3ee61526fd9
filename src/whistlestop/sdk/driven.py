"""For frameworks that own their loop: they say how many steps are done, and are told what is due."""

import time
from collections.abc import Mapping
from pathlib import Path

from whistlestop.channel.layout import Word
from whistlestop.sdk.looping import _ORDERS, Due, Looping

__all__ = ["Driven", "Due"]


class Driven:
    """Made by `run.driven()`. Between two steps: `look`, then `settle` with what it said; or `done`, which is both.

    `start` is the step to go on from: everything tracked has been restored. Call `done(start)` before the first step,
    for a stop that came earlier than that.
    """

    def __init__(self, run: Looping, total: int | None, per_epoch: int | None) -> None:
        self._run = run
        run._prepare_loop(total, per_epoch)
        run._framework_total = total
        run._enter_loop()
        self.start = run._at[0]
        self._orders = run._attachment.orders.words[_ORDERS]
        self._seen = bytes(self._orders.nbytes)

    def look(self, step: int) -> Due:
        """`step` steps are done. What is due now; once for every step."""
        run = self._run
        progress = run._attachment.progress
        now = time.time()
        run._at[0] = step
        progress[Word.STEP] = step
        progress.set_seconds(Word.PROGRESS_AT, now)
        if run._per_epoch:
            progress[Word.EPOCH], progress[Word.BATCH] = divmod(step, run._per_epoch)
        elif step:
            progress[Word.BATCH] += 1
        if step < run._check_at and now < run._save_time and self._orders.tobytes() == self._seen:
            return Due(step)
        self._seen = self._orders.tobytes()
        due = run._look(step)
        if not due:
            run._replan(step)
        if not due.ends:
            run._spend(step)
        return due

    def settle(self, due: Due, files: Mapping[str, Path] | None = None) -> bool:
        """Save if that is due, with `files` beside the tracked parts. True: the training ends here. Leaves by Paused
        or Killed, which must reach the end of the program."""
        return self._run._settle(due, files) if due else False

    def done(self, step: int) -> bool:
        return self.settle(self.look(step))

    def epoch(self, epoch: int) -> None:
        """An epoch has begun. Needed only where `per_epoch` is not known."""
        progress = self._run._attachment.progress
        progress[Word.EPOCH], progress[Word.BATCH] = epoch, 0
        self._run._position = (epoch, 0)
        self._run._tell({"kind": "epoch", "epoch": epoch, "step": self._run._at[0]})

    def finished(self, step: int) -> None:
        """The framework came to the end of its training by itself."""
        self._run._at[0] = step
        self._run._attachment.progress[Word.STEP] = step
        self._run._finish_loop(step)
