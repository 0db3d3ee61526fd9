"""The machinery behind `Run`: beginning, loop, boundaries, end. What programs call is in run.py."""

import atexit
import math
import sys
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from whistlestop.blobs.checkpoints import Checkpoint
from whistlestop.channel.layout import EXIT_PAUSED, Loop, ProgramStage, Word
from whistlestop.domain.errors import BadRequest
from whistlestop.domain.reasons import StopReason
from whistlestop.domain.stops import Stop
from whistlestop.sdk.attachment import Attachment
from whistlestop.sdk.cadence import AnyOf
from whistlestop.sdk.forks import open_runs
from whistlestop.sdk.interrupts import Interrupts
from whistlestop.sdk.parts import Part
from whistlestop.sdk.place import FINISHED, find_place
from whistlestop.sdk.saver import Restored, Saver
from whistlestop.sdk.settings import Settings
from whistlestop.sdk.step import Step, step_type
from whistlestop.sdk.summary import plain_summary

EXIT_KILLED = 137
_RETRY_SAVE_SECONDS = 5.0  # a pause whose save failed trains on and tries again

# All of the runner's words, compared at once with what the loop saw last: half the price of reading three of them.
_ORDERS = slice(Word.STOP_LEVEL, Word.STOP_AT_STEP + 1)

# Numbers, not enum members, in the loop: an attribute of a class costs as much as the load itself.
_STEP = int(Word.STEP)
_EPOCH = int(Word.EPOCH)
_BATCH = int(Word.BATCH)
_PROGRESS_AT = int(Word.PROGRESS_AT)

_time = time.time


class Paused(SystemExit):
    """Saved and left: not the end of training. A BaseException, so that `except Exception` lets it through."""


class Killed(SystemExit):
    """Left at the boundary without saving."""


class Training:
    """One training: its state and its loop."""

    def __init__(self, settings: Settings, *, checkpoints: Path | None, resume: str, cadence: AnyOf, keep: int):
        self.name = settings.name
        self.inputs = settings.inputs
        self.summary: dict[str, Any] = {}  # told to the server when the run ends
        self._settings = settings
        self._checkpoints = checkpoints
        self._resume = resume
        self._cadence = cadence
        self._keep = keep
        self._attachment = Attachment()
        self._interrupts = Interrupts(second_ends=settings.channel is None, wake=self._wake)
        self._saver: Saver | None = None
        self._restored: Restored | None = None
        self._restore_done = False
        self._restore_asked = False  # by the program: it takes care of what it gets
        self._parts: dict[str, Part] = {}
        self._started = False
        self._closed = False
        self._looping = False
        self._iterator: Callable[[], Generator[Step, None, None] | None] = lambda: None  # a weak reference
        self._at = [0]  # index of the step that runs
        self._total: int | None = None
        self._per_epoch: int | None = None
        self._check_at: float = 0  # the loop looks closer from this step on; -1: at once
        self._save_step: float = math.inf
        self._save_time: float = math.inf
        self._saves_seen = 0
        self._save_asked = False
        self._finish: tuple[StopReason, str] | None = None
        self._own_save = -1  # the index of the step in which, or behind which, the program saved by itself

    # Beginning and end.

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        self._attachment.attach(self._settings)
        if self._attachment.metrics is not None:
            self.__dict__["log"] = self._attachment.metrics.recorder(self._at, self._log_slowly)
        self._saves_seen = self._attachment.orders[Word.CHECKPOINT_NOW]
        self._interrupts.second_ends = not self._attachment.attached
        self._interrupts.install()
        open_runs.add(self)
        atexit.register(self._end_at_exit)
        if self._settings.stop_when.strip() not in ("", "[]"):
            self._attachment.warn("stop_when is not carried out by this version of the SDK")

    def _end(self, error: BaseException | None, *, proven: bool = True) -> None:
        """`proven`: without an error the loop was left by a `break`, not by sys.exit() or the like."""
        if self._closed:
            return
        self._close_loop()
        self._closed = True
        atexit.unregister(self._end_at_exit)
        progress = self._attachment.progress
        left = progress[Word.LOOP] == Loop.LEFT
        if left and (error is not None or not proven):
            # Not left by `break`, or nobody knows: a crash in the middle, not an end.
            progress[Word.LOOP] = Loop.INSIDE
            if error is None:
                self._attachment.warn(
                    f"{self.name} ended inside its loop, at step {self._at[0]}; this does not count as the end of "
                    "training, and nothing was saved. To leave the loop by `break`, put it into `with run:`"
                )
        elif left:
            self._save_where_left()
            self._tell_reason(StopReason.CUSTOM, "the program left its loop")
        if error is None and progress[Word.LOOP] in (Loop.FINISHED, Loop.LEFT):
            self._mark_finished()
        if self.summary:
            self._attachment.tell({"kind": "summary", "values": plain_summary(self.summary)})
        self._interrupts.restore()
        if self._saver is not None:
            self._saver.place.release()
        self._attachment.close()
        self.__dict__.pop("log", None)
        open_runs.discard(self)

    def _close_loop(self) -> None:
        """After a `break` somebody may still hold the iterator (a progress bar does): it waits in the middle."""
        iterator = self._iterator()
        try:
            if iterator is not None and self._attachment.progress[Word.LOOP] == Loop.INSIDE:
                iterator.close()
        except ValueError:  # it is running, in another thread: not ours to end
            pass

    def _end_at_exit(self) -> None:
        """For programs without the `with` block. `last_value` is the error that is ending the program, if any; of
        sys.exit() nothing can be seen here."""
        self._end(getattr(sys, "last_value", None), proven=False)

    def _restore(self) -> Restored | None:
        if not self._restore_done:
            self._start()
            self._restored = self._open_saver().restore()
            self._restore_done = True
            if self._restored is not None:
                self._at[0] = self._restored.step
                self._attachment.progress[Word.RESUMED_STEP] = self._restored.step
                self._attachment.progress[Word.STEP] = self._restored.step
                self._attachment.say(f"{self.name}: going on at step {self._restored.step} from {self._restored.path}")
        return self._restored

    def _open_saver(self) -> Saver:
        if self._saver is None:
            place = find_place(self._settings, checkpoints=self._checkpoints, resume=self._resume)
            for note in place.notes:
                self._attachment.warn(note)
            self._saver = Saver(place, self._attachment, keep=self._keep)
            self._saver.parts = self._parts
        return self._saver

    def _add_part(self, name: str, part: Part) -> None:
        if self._restore_done:
            raise BadRequest(f"{name} is tracked too late: the checkpoint has been loaded without it")
        if not name.isidentifier() or name in self._parts:
            raise BadRequest(f"{name!r} is tracked twice, or is not a plain name")
        self._parts[name] = part

    def _mark_finished(self) -> None:
        place = self._saver.place if self._saver else None
        if place is None or not place.standalone or not self._attachment.leads:
            return
        try:
            (place.store.root / place.phase / FINISHED).touch()
        except OSError as error:
            self._attachment.warn(f"the end of this training could not be noted: {error}")

    # The loop.

    def _loop(self, total: int | None, per_epoch: int | None) -> Generator[Step, None, None]:
        make = step_type(total=total, per_epoch=per_epoch)
        orders = self._attachment.orders.words[_ORDERS]
        words, doubles = self._attachment.progress.words, self._attachment.progress.doubles
        at = self._at
        index = at[0]
        epoch, batch = divmod(index, per_epoch) if per_epoch else (0, 0)
        self._begin_loop(total, per_epoch, epoch, batch)
        seen = memoryview(bytes(orders.nbytes)).cast("q")  # no orders
        now = _time()
        while True:
            if index >= self._check_at or now >= self._save_time or orders != seen:
                # Kept before it is looked at: what changes meanwhile is seen at the next boundary.
                seen = memoryview(orders.tobytes()).cast("q")
                if self._boundary(index):
                    return
            try:
                yield make(index)
            except GeneratorExit:
                # `break`, or an error in the loop's body: only the end of the `with` block can tell. Whether the step's
                # work was done nobody can: it does not count.
                words[Word.LOOP] = Loop.LEFT
                words[Word.STAGE] = ProgramStage.FINISHING
                raise
            index += 1
            at[0] = index
            words[_STEP] = index
            doubles[_PROGRESS_AT] = now = _time()
            if per_epoch:
                batch += 1
                if batch == per_epoch:
                    batch = 0
                    epoch += 1
                    words[_EPOCH] = epoch
                words[_BATCH] = batch

    def _begin_loop(self, total: int | None, per_epoch: int | None, epoch: int, batch: int) -> None:
        self._total, self._per_epoch = total, per_epoch
        self._own_save = -1
        progress = self._attachment.progress
        now = time.time()
        progress[Word.TOTAL] = total or 0
        progress[Word.BATCHES] = per_epoch or 0
        progress[Word.EPOCH], progress[Word.BATCH] = epoch, batch
        progress.set_seconds(Word.PROGRESS_AT, now)
        progress.set_seconds(Word.LOOP_STARTED_AT, now)
        progress[Word.STAGE] = ProgramStage.TRAINING
        progress[Word.LOOP] = Loop.INSIDE
        self._interrupts.install()
        self._warn_of_silence()
        self._plan(self._at[0])

    def _warn_of_silence(self) -> None:
        """What would go wrong without anybody noticing."""
        if self._restored is not None and not self._parts and not self._restore_asked:
            self._attachment.warn(
                f"{self.name} goes on at step {self._restored.step}, but nothing of its checkpoint is loaded: call "
                "run.track(...) or run.saves(...) before the loop, or load what run.restore() gives you"
            )
        if self._cadence.counts_epochs and self._per_epoch is None:
            self._attachment.warn(
                f"{self.name} is to save by epochs, but nobody knows how long one is: call run.steps(per_epoch=...)"
            )

    def _boundary(self, step: int) -> bool:
        """Between two steps, when something may be due. True: the loop ends here. Leaves by Paused or Killed."""
        orders, progress = self._attachment.orders, self._attachment.progress
        level = orders[Word.STOP_LEVEL]
        interrupted = self._interrupts.seen > 0
        progress[Word.ACK_SEQ] = orders[Word.STOP_SEQ]
        asked = orders[Word.CHECKPOINT_NOW]
        if level >= Stop.KILL:
            raise Killed(EXIT_KILLED)
        if self._total is not None and step >= self._total:
            return self._finish_loop(step)
        if step >= orders[Word.STOP_AT_STEP]:  # ranks agree on a step; 0 = here
            if level == Stop.FINISH_PHASE or self._finish or (interrupted and not self._attachment.attached):
                return self._stop_loop(step)
            # A signal that nobody ordered: the machine is going, or somebody else wants us gone. Not a result.
            if level or orders[Word.PREEMPT_DEADLINE] or interrupted:
                self._pause_loop(step, level=level, interrupted=interrupted)
        due = step >= self._save_step or time.time() >= self._save_time
        if due or asked != self._saves_seen or self._save_asked:
            self._saves_seen = asked
            self._save_asked = False
            if self._open_saver().saved_step != step:
                self._save(step, "on its cadence" if due else "on request")
        self._plan(step)
        return False

    def _finish_loop(self, step: int) -> bool:
        self._save_last(step, "all steps done")
        self._tell_reason(StopReason.COMPLETED, f"all {step} steps done")
        return self._leave_loop(Loop.FINISHED)

    def _stop_loop(self, step: int) -> bool:
        self._save_last(step, "stopped")
        if self._finish:
            self._tell_reason(*self._finish)
        elif not self._attachment.attached:
            self._attachment.say(f"{self.name}: stopped at step {step}; start it again to go on from there")
        return self._leave_loop(Loop.STOPPED)

    def _pause_loop(self, step: int, *, level: int, interrupted: bool) -> None:
        saver = self._open_saver()
        wanted = not self._attachment.orders[Word.PAUSE_LATEST]
        if wanted and step > self._first_step() and saver.saved_step != step:
            if time.time() < saver.failed_at + _RETRY_SAVE_SECONDS and not interrupted:
                return
            saved = self._save(step, "paused" if level else "the capacity is being reclaimed")
            # A pause has time: it is the ladder that ends it. A reclaimed machine has none.
            if saved is None and level and not interrupted and self._attachment.leads:
                return
        self._attachment.progress[Word.LOOP] = Loop.PAUSED
        raise Paused(EXIT_PAUSED)

    def _leave_loop(self, loop: Loop) -> bool:
        progress = self._attachment.progress
        progress[Word.STAGE] = ProgramStage.FINISHING
        progress[Word.LOOP] = loop
        if not self._attachment.attached:
            self._interrupts.restore()  # behind the loop Ctrl-C is the user's again
        return True

    def _plan(self, step: int) -> None:
        """When to look closer next. The flag is read last: a signal may come while this is being worked out."""
        self._attachment.count_dropped()
        self._save_step = self._cadence.next_step(step, per_epoch=self._per_epoch)
        saver = self._open_saver()
        if self._save_time == math.inf or saver.saved_step == step or saver.failed_at > 0:
            self._save_time = self._cadence.next_time(time.time(), save_seconds=saver.save_seconds)
        self._check_at = min(self._save_step, math.inf if self._total is None else self._total)
        orders = self._attachment.orders
        waiting = orders[Word.STOP_LEVEL] or orders[Word.PREEMPT_DEADLINE]  # for a step, or for a save that failed
        if waiting or self._interrupts.seen or self._finish or self._save_asked:
            self._check_at = -1

    def _wake(self) -> None:
        self._check_at = -1

    def _first_step(self) -> int:
        return self._restored.step if self._restored else 0

    # Saving and telling.

    def _save_last(self, step: int, why: str) -> None:
        """The phase's result, unless that very checkpoint is there already."""
        saver = self._open_saver()
        start = saver.place.start
        here = start is not None and start.path.parent == saver.place.store.root / saver.place.phase
        if saver.saved_step != step and not (here and step == self._first_step()):
            self._save(step, why)

    def _save_where_left(self) -> None:
        """After a `break`. What the program saved in that step, or behind it, is the result; else what is there now,
        even if the step was saved before its work began: that work may be in it."""
        if self._own_save != self._at[0]:
            self._save(self._at[0], "the loop was left")
        elif self._saver is not None and self._saver.saved_step > self._at[0]:
            self._at[0] = self._attachment.progress[Word.STEP] = self._saver.saved_step

    def _save(self, step: int, why: str, files: Mapping[str, Path] | None = None) -> Checkpoint | None:
        metrics = self._attachment.metrics.latest() if self._attachment.metrics else {}
        meta = {
            "epoch": step // self._per_epoch if self._per_epoch else 0,
            "total": self._total,
            "metrics": {name: value if math.isfinite(value) else None for name, value in metrics.items()},
        }
        return self._open_saver().save(int(step), why=why, meta=meta, files=files)

    def _tell_reason(self, reason: StopReason, text: str) -> None:
        self._attachment.tell(
            {"kind": "stop_reasons", "reasons": [{"reason": reason.value, "decisive": True, "text": text}]}
        )

    def _log_slowly(self, scalars: Mapping[str, Any]) -> None:
        """A value that is no number: keep the others, say which one once."""
        good: dict[str, float] = {}
        for name, value in scalars.items():
            try:
                good[str(name)] = float(value)
            except Exception:
                self._attachment.say(f"log({name}=…) is not a number ({type(value).__name__}); it is left out")
        try:
            if good:
                self._attachment.points(self._at[0], time.time(), good)
        except Exception as error:
            self._attachment.say(f"metrics can't be written: {error!r}")

    def _let_go(self) -> None:
        """In a forked child: the channel is the parent's, and terminate() must end the child."""
        self._interrupts.restore()
        self._attachment.abandon()
        self.__dict__.pop("log", None)
        self._closed = True
        atexit.unregister(self._end_at_exit)
