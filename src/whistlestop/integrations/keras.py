"""Keras 3: `fit(run, model, x, y, …)` takes what `model.fit` takes. Stops at the next batch, resumes in mid-epoch."""

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from whistlestop.domain.errors import BadRequest
from whistlestop.integrations.keras_data import Resumable, split_off
from whistlestop.integrations.keras_state import (
    callback_state,
    load_callback_state,
    load_seed,
    load_values,
    seed_state,
    set_torch_draws,
    torch_draws,
    values,
)
from whistlestop.sdk.run import Run

__all__ = ["Resumable", "callbacks_for", "fit"]


def fit(
    run: Run,
    model: Any,
    x: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    batch_size: int = 32,
    shuffle: bool = True,
    seed: int = 0,
    callbacks: Sequence[Any] = (),
    **options: Any,
) -> Any:
    """`model.fit`, resumable. Arrays and PyDatasets go on at the very batch; `seed` fixes their order."""
    if options.get("steps_per_epoch") and (isinstance(x, Resumable) or Resumable.takes(x)):
        raise BadRequest("fit(steps_per_epoch=…) goes on with the data where the last epoch ended; resuming can't")
    split = options.get("validation_split")
    if split and options.get("validation_data") is None and Resumable.splits(x):
        (x, y, sample_weight), options["validation_data"] = split_off((x, y, sample_weight), split)
        del options["validation_split"]
    if not isinstance(x, Resumable) and Resumable.takes(x):
        data = Resumable(x, y, sample_weight=sample_weight, batch_size=batch_size, shuffle=shuffle, seed=seed)
        y = sample_weight = None
    else:
        data = x
    given = data if isinstance(data, Resumable) else None
    ours = callbacks_for(run, given, callbacks, initial_epoch=options.get("initial_epoch", 0))
    return model.fit(data, y, sample_weight=sample_weight, shuffle=False, callbacks=ours, **options)


def callbacks_for(
    run: Run, data: Resumable | None = None, others: Sequence[Any] = (), *, initial_epoch: int = 0
) -> list[Any]:
    """For `model.fit(data, shuffle=False, callbacks=callbacks_for(run, data, others))` with `data = Resumable(…)`.

    One of ours comes first: it hides from the others what a stop has cut short. One comes last: when it saves, the
    others have seen the batch and the epoch, and their numbers are kept. `initial_epoch` is that of `model.fit`.
    """
    whistle = _Whistle(run, data, others, initial_epoch)
    return [whistle, *others, keras.callbacks.History(), _Boundary(whistle)]


class _Whistle(keras.callbacks.Callback):
    def __init__(self, run: Run, data: Resumable | None, others: Sequence[Any], initial_epoch: int) -> None:
        super().__init__()
        self._run = run
        self._data = data
        self._others = tuple(others)
        self._initial_epoch = initial_epoch  # those before it are not ours to count
        self._forget()

    def _forget(self) -> None:
        self._driven: Any = None
        self._step = 0  # steps done
        self._epoch = 0
        self._batch = 0  # batches done in this epoch
        self._skip = 0  # batches of this epoch that an earlier attempt has done
        self._again = 0  # of those: how many the data brings again, because it can't be moved
        self._pending = False  # the epoch's steps are done, its evaluation is not
        self._stopping = False  # by us
        self._epoch_metrics: Mapping[str, Any] | None = None  # of training: an evaluation uses the same variables
        self._resumed: dict[str, Any] | None = None
        self._draws: Any = None  # torch's generator behind the epoch's last batch
        self._open = contextlib.ExitStack()
        self._evaluation = contextlib.ExitStack()

    # Training.

    def on_train_begin(self, logs: Any = None) -> None:
        self._forget()
        run, model = self._run, self.model
        per_epoch, epochs = self.params.get("steps"), self.params["epochs"]
        run.saves(name="fit", save=self._state, load=self._load)  # first: loading it may build what the others fill
        run.saves(name="model", save=lambda: values(model.variables), load=lambda s: load_values(model.variables, s))
        if model.optimizer is not None:
            if not model.optimizer.built:
                model.optimizer.build(model.trainable_variables)
            variables = model.optimizer.variables
            run.saves(name="optimizer", save=lambda: values(variables), load=lambda s: load_values(variables, s))
        run.track(rng=True)
        total = per_epoch * max(0, epochs - self._initial_epoch) if per_epoch else None
        self._driven = run.driven(total=total, per_epoch=per_epoch)
        self._step = self._driven.start
        self._draws = torch_draws()
        self._place()
        if self._step and self._epoch:
            model._initial_epoch = self._epoch  # as Keras's own BackupAndRestore does it
        if (total is None or self._step < total) and not self._pending and self._driven.done(self._step):
            self._stopping = True
            model._initial_epoch = epochs  # stopped before the first batch: there is nothing to run

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._driven is None:
            return
        if self._resumed is not None:
            self._go_on(self._resumed)
        else:
            self._skip = self._again = self._batch = 0
            self._epoch_metrics = None
        self._epoch = epoch
        if self._data is not None:
            # Making an iterator draws a number from torch; an earlier attempt has drawn that of this epoch.
            draws = self._draws if self._skip else None
            self._data.at(epoch, self._skip, first=lambda: set_torch_draws(draws))
        if not self.params.get("steps"):
            self._driven.epoch(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._driven is None or keras.backend.backend() != "tensorflow":
            return
        if self._skip and not self._again and batch + self._skip >= self.params["steps"]:
            # The epoch's rest is done. TensorFlow would find out by a step that fails for want of data, and by then
            # has drawn its random numbers. Keras takes this as the end of the data.
            raise StopIteration

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._driven is None:
            return
        per_epoch = self.params.get("steps")
        done = batch + 1 + self._skip - self._again
        if per_epoch:
            done = min(done, per_epoch)  # steps_per_execution need not divide it
        if done > self._batch:
            self._step += done - self._batch
            self._batch = done
            self._run.log_at(self._step - 1, logs or {})
        if done == per_epoch:
            self._pending = True
            self._draws = torch_draws()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._driven is None:
            return
        logs = {} if logs is None else logs
        self._open.close()
        if self._stopping:  # a mean over the first batches only is not what its name says
            for name in [name for name in logs if name.startswith("val_")]:
                del logs[name]
        if self._epoch_metrics is not None and "loss" not in logs:  # resumed behind the epoch's last batch
            logs.update(self._epoch_metrics["logs"])
        if self._stopping:
            return
        self._pending = False
        set_torch_draws(self._draws)  # evaluating and making iterators leave no trace, however often they happen
        whole = {name if name.startswith("val_") else f"epoch_{name}": value for name, value in logs.items()}
        self._run.log_at(max(0, self._step - 1), whole)
        self._epoch, self._batch, self._skip = epoch + 1, 0, 0

    def on_train_end(self, logs: Any = None) -> None:
        if self._driven is None:
            return
        self.model._initial_epoch = 0  # the next fit() begins at its beginning
        self._open.close()
        if not self._stopping:
            self._driven.finished(self._step)
        self._driven = None

    # Boundaries: called when all callbacks have had their turn.

    def behind_batch(self) -> None:
        if self._driven is None or self._stopping:
            return
        if self._pending:  # behind its evaluation, unless somebody waits for it
            self.behind_test_batch()
        else:
            self._settle(self._driven.look(self._step))

    def behind_test_batch(self) -> None:
        """From an epoch's last batch to the end of its evaluation; what is left of that is done on resume."""
        if self._driven is None or self._stopping or not self._run.should_stop:
            return
        due = self._driven.look(self._step)
        if due.ends:
            self._settle(due)
            self.model.stop_evaluating = True

    def behind_epoch(self, epoch: int) -> None:
        if self._driven is None or self._stopping or self.model.stop_training:  # another callback ends it: `finished`
            return
        if epoch + 1 < self.params["epochs"]:  # the last one is `finished`, too
            self._settle(self._driven.look(self._step))

    def _settle(self, due: Any) -> None:
        try:
            if self._driven.settle(due):
                self._stopping = True
                self.model.stop_training = True
        except SystemExit:
            self._evaluation.close()
            self._open.close()
            raise

    # Evaluation inside fit().

    def on_test_begin(self, logs: Any = None) -> None:
        if self._driven is None:
            return
        if self._stopping:
            self.model.stop_evaluating = True  # Keras evaluates after a stop too: one batch, then
            return
        self._epoch_metrics = self._metrics()
        self._evaluation.enter_context(self._run.evaluating())

    def on_test_end(self, logs: Any = None) -> None:
        self._evaluation.close()

    # What a checkpoint holds besides the model and the optimizer.

    def _state(self) -> dict[str, Any]:
        history = getattr(self.model, "history", None)
        return {
            "epoch": self._epoch,
            "batch": self._batch,
            "pending": self._pending,
            "metrics": self._epoch_metrics if self._pending and self._epoch_metrics else self._metrics(),
            "seed": seed_state(),
            "draws": self._draws if self._pending else None,
            "history": {"epoch": list(getattr(history, "epoch", [])), "values": dict(getattr(history, "history", {}))},
            "callbacks": [callback_state(each) for each in self._others],
        }

    def _load(self, state: dict[str, Any]) -> None:
        self._resumed = state
        kept = len(state["metrics"]["variables"])
        if self._data is not None and len(self.model.metrics_variables) < kept:
            # TensorFlow makes the metrics' variables in the first batch: too late to fill them.
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(self._data[0])
            self.model.test_on_batch(x, y, sample_weight=sample_weight)
        load_seed(state["seed"])

    def _place(self) -> None:
        """Where to go on: in the middle of an epoch, before its evaluation, or at the beginning of one."""
        if self._resumed is None:
            return
        self._epoch, batch, self._pending = (self._resumed[name] for name in ("epoch", "batch", "pending"))
        self._batch = self._skip = batch
        if self._pending:
            self._draws = self._resumed["draws"]
        if self._data is None and batch:
            self._again = batch
            self._say(
                f"this epoch's first {batch} batches are trained again: the data can't be moved to batch {batch}. "
                "Give fit() arrays, a PyDataset or a Resumable"
            )

    def _go_on(self, state: dict[str, Any]) -> None:
        """All callbacks have begun and Keras has reset the metrics: now they get what they had."""
        self._resumed = None
        if state["batch"] or state["pending"]:
            load_values(self.model.metrics_variables, state["metrics"]["variables"])
        if self._pending:
            self._epoch_metrics = state["metrics"]
        for each, kept in zip(self._others, state["callbacks"], strict=False):
            load_callback_state(each, kept)
        history = getattr(self.model, "history", None)
        if history is not None:
            history.epoch = list(state["history"]["epoch"])
            history.history.update({name: list(each) for name, each in state["history"]["values"].items()})
        if self._skip and not self._again:
            self._open.enter_context(_short_epoch())

    def _metrics(self) -> dict[str, Any]:
        try:
            result = self.model.get_metrics_result()
        except ValueError:  # before the first batch TensorFlow has none
            result = {}
        logs = {name: float(value) for name, value in result.items()}
        return {"variables": values(self.model.metrics_variables), "logs": logs}

    def _say(self, text: str) -> None:
        self._run._attachment.warn(text)


class _Boundary(keras.callbacks.Callback):
    def __init__(self, whistle: _Whistle) -> None:
        super().__init__()
        self._whistle = whistle

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._whistle.behind_batch()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._whistle.behind_test_batch()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._whistle.behind_epoch(epoch)


@contextlib.contextmanager
def _short_epoch() -> Iterator[None]:
    """Keras warns of data that ends before its epoch: here it is meant to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Your input ran out of data")
        yield
