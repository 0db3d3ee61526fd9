"""Lightning: `Trainer(callbacks=[whistle := Whistle(run)])`, then `trainer.fit(…, ckpt_path=whistle.ckpt_path)`.

A boundary is the moment behind a batch that stepped the optimizer, before a validation that is due there.
"""

import contextlib
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from whistlestop.channel.layout import Word
from whistlestop.domain.errors import BadRequest
from whistlestop.integrations.lightning_place import Place, end_now, told_as_done, validation_due
from whistlestop.sdk.run import Run

__all__ = ["Whistle"]

_FILE = "trainer.ckpt"


class Whistle(pl.Callback):
    """Stops, pauses, saves and resumes a Trainer, and logs what it logs. One for each run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._place = Place()
        self._trainer: Any = None
        self._driven: Any = None
        self._from: str | None = None
        self._loaded = False  # Lightning has loaded our checkpoint
        self._drawn = False  # the order of this epoch is known already
        self._first = False  # the first batch of this process is still to come
        self._validate = False  # a validation is due behind the batch that was just done, or under way
        self._saving = False
        self._training = False
        self._stopped = False
        self._cut = False  # in the middle of an epoch, whose means are then of no use
        self._half = False  # the validation was cut short by a stop
        self._undo: Callable[[], None] = _nothing
        self._evaluating = contextlib.ExitStack()
        self._seen: dict[str, Any] = {}
        run.saves_files(save=self._save_files, load=self._load_files, name="lightning")
        run.saves(save=lambda: self._place.save(self._trainer), load=self._place.load, name="place", per_rank=True)

    @property
    def ckpt_path(self) -> str | None:
        """For `trainer.fit(…, ckpt_path=whistle.ckpt_path)`: the checkpoint to go on from, or None."""
        self.run.restore()
        return self._from

    # Saving and loading.

    def _save_files(self, directory: Path) -> None:
        self._saving = True
        try:
            self._trainer.save_checkpoint(directory / _FILE)
        finally:
            self._saving = False

    def _load_files(self, directory: Path) -> None:
        self._from = str(directory / _FILE)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Only in ours: a ModelCheckpoint's own files are left as Lightning makes them."""
        if self._saving and (self._validate or trainer.is_last_batch):
            told_as_done(checkpoint, validate=self._validate)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self._loaded = True

    # Training.

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._trainer = trainer
        restored = self.run.restore()
        if restored is not None and not self._loaded:
            raise BadRequest(
                f"the run goes on at step {restored.step}, but the Trainer has not loaded its checkpoint",
                hint="call trainer.fit(..., ckpt_path=whistle.ckpt_path)",
            )
        if trainer.world_size > 1:  # only one rank saves, and Lightning would wait for the others there
            raise BadRequest(f"Whistle can't save a Trainer of {trainer.world_size} processes yet; use devices=1")
        per_epoch = _per_epoch(trainer)
        begun = self._place.step - math.ceil(self._place.batches / trainer.accumulate_grad_batches)
        even = per_epoch is not None and begun == trainer.current_epoch * per_epoch
        self._training = True
        # Without a total: when to end is the Trainer's business, unless a person has decided it.
        self._driven = self.run.driven(per_epoch=per_epoch if even else None)
        total = self._tell_total(trainer, begun)
        if not even:
            self._driven.epoch(trainer.current_epoch)
        self._drawn = self._first = True
        self._place.begin(trainer, _warn)
        if self._place.step != total and self._driven.done(self._place.step):
            self._stop(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer)  # what the module logged in its own on_train_epoch_end
        if not self._drawn:
            self._place.begin_epoch(trainer)
        self._drawn = False
        self._tell_total(trainer, self._place.step)
        if self.run._per_epoch not in (None, _per_epoch(trainer)):
            self._count_epochs()
        if self.run._per_epoch is None:
            self._driven.epoch(trainer.current_epoch)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._first:
            self._first = False
            self._place.add_means(trainer)
        self._log(trainer, self._place.step)
        if (batch_idx + 1) % trainer.accumulate_grad_batches and not trainer.is_last_batch:
            return  # gradients of half a step are in no checkpoint
        self._place.step += 1
        self._validate = validation_due(trainer)
        if self._validate:
            self._place.hold(trainer)
        ends = _ends(trainer)
        if ends and not self.run._extended:
            self.run._total = self._place.step
        due = self._driven.look(self._place.step)
        if ends:
            return  # the validation and the epoch's end are still to come; `finished` saves behind them
        if self._driven.settle(due):
            self._stop(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._drawn = False
        self._place.end_epoch(trainer)
        if not self._cut:
            self._log(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._training = False
        if not self._cut:
            self._log(trainer)
        self._undo()
        self._undo = _nothing
        if not self._stopped:
            self._driven.finished(self._place.step)

    def _tell_total(self, trainer: Any, begun: int) -> int | None:
        """As far as it is known in this epoch, which began at step `begun`: the data may grow. Feeds progress alone."""
        total = _total(trainer, begun)
        if not self.run._extended:
            self.run._attachment.progress[Word.TOTAL] = total or 0
        return total

    def _count_epochs(self) -> None:
        """One has another length than those before it: from here on steps don't tell where the next one begins."""
        self.run._per_epoch = None
        self.run._attachment.progress[Word.BATCHES] = 0
        if self.run._cadence.counts_epochs:
            _warn("epochs have different lengths: saves by epochs end here; give `every` in steps or minutes")

    def _stop(self, trainer: Any) -> None:
        self._stopped = True
        self._cut = not trainer.is_last_batch
        self._undo = end_now(trainer)

    # Validation.

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._training and not trainer.sanity_checking:
            self._evaluating.enter_context(self.run.evaluating())

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if not self._validate or self._stopped or not self.run.should_stop:
            return
        # Left for a pause, it begins anew on resume; cut short by a stop, its metrics don't count.
        if self._driven.done(self._place.step):
            self._stop(trainer)
            self._half = True
            raise StopIteration  # this is how Lightning's loops end early

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not self._training or trainer.sanity_checking:
            return
        self._evaluating.close()
        if self._half:
            self._news(trainer)  # never to be logged
        else:
            self._log(trainer)
            self._ask_rules(trainer)
        self._validate = False
        self._place.release()

    def _ask_rules(self, trainer: Any) -> None:
        """Those that wait for what was validated need not wait for one more step. All else does."""
        if self._stopped or not self._validate or _per_epoch(trainer) is None or _ends(trainer):
            return
        due = self._driven.look(self._place.step)
        if due.stop and self._driven.settle(due):
            self._stop(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._evaluating.close()

    # Metrics.

    def _log(self, trainer: Any, step: int | None = None) -> None:
        news = self._news(trainer)
        if news:
            self.run.log_at(max(0, self._place.step - 1) if step is None else step, news)

    def _news(self, trainer: Any) -> dict[str, Any]:
        """What was logged since the last look. A value that was not logged again is still in the same memory."""
        news = {}
        for name, value in trainer.logged_metrics.items():
            seen = self._seen.get(name)
            if seen is None or seen.data_ptr() != value.data_ptr():
                self._seen[name] = news[name] = value
        return news


def _per_epoch(trainer: Any) -> int | None:
    batches = trainer.num_training_batches
    return math.ceil(batches / trainer.accumulate_grad_batches) if math.isfinite(batches) else None


def _total(trainer: Any, begun: int) -> int | None:
    """Of optimizer steps. A module that steps by itself may count several of them in each batch."""
    limits = []
    per_epoch = _per_epoch(trainer)
    if per_epoch is not None and trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(begun + per_epoch * (trainer.max_epochs - trainer.current_epoch))
    if trainer.max_steps >= 0 and trainer.lightning_module.automatic_optimization:
        limits.append(trainer.max_steps)
    return min(limits, default=None)


def _ends(trainer: Any) -> bool:
    """The batch that was just done is the Trainer's last one."""
    if 0 <= trainer.max_steps <= trainer.global_step:
        return True
    last_epoch = trainer.max_epochs is not None and 0 <= trainer.max_epochs <= trainer.current_epoch + 1
    return last_epoch and bool(trainer.is_last_batch)


def _warn(text: str) -> None:
    warnings.warn(f"whistlestop: {text}", stacklevel=2)


def _nothing() -> None:
    pass
