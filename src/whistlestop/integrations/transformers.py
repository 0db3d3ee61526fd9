"""transformers: `Trainer(callbacks=[whistle := Whistle(run)])`, then
`trainer.train(resume_from_checkpoint=whistle.resume_from)`.

The Trainer's own checkpoint (model, optimizer, schedule, random states, its counters) is moved into ours. Set
`save_strategy="no"`: when to save is whistlestop's business.
"""

import contextlib
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from whistlestop.domain.errors import BadRequest
from whistlestop.sdk.run import Run

__all__ = ["Whistle"]

_TIMINGS = ("_runtime", "_per_second")


class Whistle(TrainerCallback):
    """Stops, pauses, saves and resumes a Trainer, and logs what it logs. Last in the list of callbacks, so that it
    sees what the others decide."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._driven: Any = None
        self._due: Any = None  # what waits for the Trainer to save
        self._ends = False  # the Trainer comes to its end by itself
        self._ours = False  # what the Trainer saves now was asked for by us alone
        self._undo: Callable[[], None] = _nothing  # what was set for that
        self._ready: Path | None = None  # the Trainer's checkpoint, to be moved into ours
        self._from: str | None = None
        self._training = False
        self._stopped = False
        self._evaluating = contextlib.ExitStack()
        self._in_evaluation = False
        run.saves_files(save=self._save_files, load=self._load_files, name="trainer")

    @property
    def resume_from(self) -> str | None:
        """For `trainer.train(resume_from_checkpoint=whistle.resume_from)`: a directory, or None."""
        self.run.restore()
        return self._from

    # Saving and loading.

    def _save_files(self, directory: Path) -> None:
        if self._ready is None:
            raise BadRequest("the Trainer saves at the end of a step only; use run.save(now=False)")
        shutil.copytree(self._ready, directory, dirs_exist_ok=True)

    def _load_files(self, directory: Path) -> None:
        self._from = str(directory)

    # Training.

    def on_train_begin(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        restored = self.run.restore()
        if restored is not None and state.global_step != restored.step:
            raise BadRequest(
                f"the run goes on at step {restored.step}, but the Trainer begins at step {state.global_step}",
                hint="call trainer.train(resume_from_checkpoint=whistle.resume_from)",
            )
        if state.best_model_checkpoint and not Path(state.best_model_checkpoint).is_dir():
            state.best_model_checkpoint = None  # a copy that was ours when this checkpoint was written
        self._training = True
        self._driven = self.run.driven(total=state.max_steps, per_epoch=_per_epoch(args, about["train_dataloader"]))

    def on_step_begin(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        self._put_back()  # save_strategy="best" has called our save off

    def on_step_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        if state.epoch is None or not float(state.epoch).is_integer():
            self._look(args, state, control)
        # Else it is the last one of an epoch, whose evaluation may come behind on_epoch_end.

    def on_epoch_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        if self._stopped:
            control.should_evaluate = False
        elif float(state.epoch).is_integer():
            self._look(args, state, control)

    def _look(self, args: Any, state: Any, control: Any) -> None:
        due = self._driven.look(state.global_step)
        self._ends = state.global_step >= state.max_steps or control.should_training_stop
        if due or self._ends:
            self._ask_for_save(due, args, state, control)
        if due.stop:  # an evaluation may take long, and nobody waits for it; a pause must not lose it
            control.should_evaluate = False

    def _ask_for_save(self, due: Any, args: Any, state: Any, control: Any) -> None:
        self._due = due
        self._ours = not control.should_save and not _written(args, state).exists()
        control.should_save = True
        if self._ours:
            self._put_back()
            self._undo = _keep_theirs(args, state)

    def _put_back(self) -> None:
        undo, self._undo = self._undo, _nothing
        undo()

    def _save_end(self, args: Any, state: Any, control: Any) -> None:
        """Another callback ends the training behind this step (EarlyStoppingCallback and the like)."""
        if control.should_training_stop and not self._stopped and self._due is None and self._training:
            self._ends = True
            self._ask_for_save(self._driven.look(state.global_step), args, state, control)

    def on_save(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        self._put_back()
        due, self._due = self._due, None
        if due is None:
            return
        self._ready = _written(args, state)
        if args.world_size > 1:
            torch.distributed.barrier()  # each rank has written its random states
        try:
            if self._ends:
                self._driven.finished(state.global_step)
                self._stopped = True
            elif self._driven.settle(due):
                self._stopped = control.should_training_stop = True
        finally:
            if self._ours and self.run.rank == 0:
                shutil.rmtree(self._ready, ignore_errors=True)
            self._ready = None

    def on_train_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        self._training = False
        self._put_back()
        if not self._stopped:
            self._driven.finished(state.global_step)

    # Evaluation and metrics.

    def on_prediction_step(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        if self._training and not self._in_evaluation:  # there is no hook for its beginning
            self._in_evaluation = True
            self._evaluating.enter_context(self.run.evaluating())

    def on_evaluate(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        self._in_evaluation = False
        self._evaluating.close()
        self._save_end(args, state, control)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **about: Any) -> None:
        if not self._training:
            return
        values = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
        if "train_runtime" in values:  # at the very end: of this process, not of the whole training
            self.run.summary.update(values)
            return
        points = {name: value for name, value in values.items() if name != "epoch" and not name.endswith(_TIMINGS)}
        if points:
            self.run.log_at(max(0, state.global_step - 1), points)
        if not float(state.epoch or 0).is_integer():  # else on_epoch_end is still to come
            self._save_end(args, state, control)


def _written(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _keep_theirs(args: Any, state: Any) -> Callable[[], None]:
    """Our save pushes none of the Trainer's own checkpoints out, and is not the best one: it is removed at once."""
    limit, best = args.save_total_limit, state.best_model_checkpoint
    args.save_total_limit = None

    def undo() -> None:
        args.save_total_limit = limit
        if state.best_model_checkpoint == str(_written(args, state)):
            state.best_model_checkpoint = best

    return undo


def _nothing() -> None:
    pass


def _per_epoch(args: Any, loader: Any) -> int | None:
    try:
        batches: int = len(loader)
    except TypeError:  # an IterableDataset
        return None
    return max(1, math.ceil(batches / int(args.gradient_accumulation_steps)))
