"""Where Lightning stands in its loops, as far as its own checkpoints don't say: random states, the order of the data,
the running means of `self.log`, and what is still to come behind the last batch that was done."""

from collections.abc import Callable, Mapping
from typing import Any

from whistlestop.sdk.batches import Batches, position_of
from whistlestop.sdk.loaders import generators_of, index_of, wind
from whistlestop.sdk.randomness import rng_part


class Place:
    """In the training loop. What is private in Lightning is touched here and nowhere else."""

    def __init__(self) -> None:
        self.step = 0  # optimizer steps done
        self.batches = 0  # done in the epoch that an earlier process left
        self._random = rng_part()
        self._held: Mapping[str, Any] | None = None
        self._begun: Mapping[str, Any] = {}  # random states from which the order of this epoch was drawn
        self._means: Mapping[str, Any] = {}  # of an earlier process, for the epoch that it left
        self._foreign = False  # the loop's results were made by us
        self._loaded: Mapping[str, Any] | None = None

    # What a checkpoint holds.

    def hold(self, trainer: Any) -> None:
        """Until `release`, checkpoints hold the random states of this moment: a validation draws numbers too."""
        self._held = self._sources(trainer)

    def release(self) -> None:
        self._held = None

    def save(self, trainer: Any) -> dict[str, Any]:
        epoch, loop = trainer.fit_loop.epoch_progress.current, trainer.fit_loop.epoch_loop
        return {
            "step": self.step,
            "batches": 0 if epoch.processed == epoch.ready else loop.batch_progress.current.ready,
            "random": self._held or self._sources(trainer),
            "begun": self._begun,
            "means": {key: _mean(each) for key, each in loop._results.items() if each.is_tensor and not each.has_reset},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._loaded = state
        self.step, self.batches = state["step"], state["batches"]

    # Training begins, and each of its epochs.

    def begin(self, trainer: Any, warn: Callable[[str], None]) -> None:
        """The loaders' iterators were made just before this; they are made anew so that their order is known."""
        state, self._loaded = self._loaded, None
        if state is None:
            self._draw(trainer, None, 0, warn)
        elif state["batches"] == 0:  # between two epochs
            self._draw(trainer, state["random"], 0, warn)
            self.end_epoch(trainer)
        else:
            self._draw(trainer, state["begun"], state["batches"], warn)
            self._set_sources(trainer, state["random"])
            self._means = state["means"]
            trainer.fit_loop._restarting = False  # else its plateau schedulers would miss the end of this epoch
            if trainer.is_last_batch:
                self._come_to_end(trainer)

    def begin_epoch(self, trainer: Any) -> None:
        """Before the loaders' iterators are made."""
        self._begun = self._sources(trainer)
        if self._foreign:
            self._foreign = False
            trainer.fit_loop.epoch_loop._results.clear()  # the module declares its own
        for loader in _loaders(trainer):
            if isinstance(batches := position_of(loader), Batches):
                batches.seek(trainer.current_epoch)

    def end_epoch(self, trainer: Any) -> None:
        """If no batch of it was left for this process, the loop still believes that it restarts in its middle."""
        loop = trainer.fit_loop.epoch_loop
        if loop.restarting:
            loop.on_iteration_done()
            loop.val_loop.on_iteration_done()

    def _draw(self, trainer: Any, begun: Mapping[str, Any] | None, skip: int, warn: Callable[[str], None]) -> None:
        if begun is not None:
            self._set_sources(trainer, begun)
        self._begun = self._sources(trainer)
        loaders = _loaders(trainer)
        if any(position_of(each) == "stateful" for each in loaders):
            return  # Lightning has loaded their states, and the iterators that exist go on from there
        settle = [_seek(each, trainer.current_epoch, skip) for each in loaders]
        fetcher = trainer.fit_loop._data_fetcher
        iter(fetcher)
        for each in settle:
            each()
        if skip and any(index_of(each) is None for each in loaders):
            warn(f"this data has no sampler to move: going through its first {skip} batches again")
            for _ in range(skip):
                next(fetcher)
            fetcher.fetched -= skip  # the loop adds them itself

    def _sources(self, trainer: Any) -> dict[str, Any]:
        return {"global": self._random.save(), "own": [each.get_state() for each in _generators(trainer)]}

    def _set_sources(self, trainer: Any, state: Mapping[str, Any]) -> None:
        for generator, own in zip(_generators(trainer), state["own"], strict=False):
            generator.set_state(own)
        self._random.load(state["global"])

    # The running means of `self.log(..., on_epoch=True)`, which Lightning's checkpoints leave out.

    def add_means(self, trainer: Any) -> None:
        """Behind this process's first batch: the sums come out as if there had been no interruption."""
        means, self._means = self._means, {}
        results = trainer.fit_loop.epoch_loop._results
        for key, mean in means.items():
            if key in results and results[key].is_tensor and results[key].meta.on_epoch:
                _add(results[key], mean)

    def _come_to_end(self, trainer: Any) -> None:
        """Nothing of the epoch is left but its validation and its end."""
        means, self._means = self._means, {}
        loop = trainer.fit_loop.epoch_loop
        for key, mean in means.items():
            loop._results[key] = _result(mean)
        self._foreign = True
        if not validation_due(trainer):
            loop.val_loop._has_run = True  # else it would train one batch too many
            loop._batches_that_stepped += 1


def validation_due(trainer: Any) -> bool:
    """Behind the batch that was just done."""
    return bool(trainer.fit_loop.epoch_loop._should_check_val_fx(trainer.fit_loop._data_fetcher))


def told_as_done(checkpoint: dict[str, Any], *, validate: bool) -> None:
    """Inside on_train_batch_end Lightning holds the batch for unfinished, and would skip what comes behind it. Make
    its checkpoint say that the batch is done, and whether a validation has to begin."""
    loops = checkpoint["loops"]["fit_loop"]
    batch, validation = loops["epoch_loop.batch_progress"], loops["epoch_loop.val_loop.batch_progress"]
    for part in ("total", "current"):
        batch[part]["completed"] = batch[part]["processed"]
        if validate:
            validation[part].update(ready=1, started=1, processed=0, completed=0)
    if validate:
        validation["is_last_batch"] = False


def end_now(trainer: Any) -> Callable[[], None]:
    """Let `fit` end behind this batch, whatever its minimum of steps, without a validation. Returns what undoes it."""
    fit, limit = trainer.fit_loop, trainer.limit_val_batches
    minimum = fit.min_epochs, fit.epoch_loop.min_steps
    fit.min_epochs = fit.epoch_loop.min_steps = None
    # Without a first validation EarlyStopping would end training with an error: it misses its metric.
    if all(each.monitor in trainer.callback_metrics for each in trainer.early_stopping_callbacks):
        trainer.limit_val_batches = 0
    trainer.should_stop = True

    def undo() -> None:
        trainer.limit_val_batches = limit
        fit.min_epochs, fit.epoch_loop.min_steps = minimum

    return undo


def _seek(loader: Any, epoch: int, skip: int) -> Callable[[], None]:
    """Let the loader's next iterator begin behind `skip` batches, without loading them. To be called behind that: what
    is returned."""
    if isinstance(batches := position_of(loader), Batches):
        batches.seek(epoch, skip)
        return lambda: None
    return wind(loader, skip)


def _loaders(trainer: Any) -> list[Any]:
    return list(trainer.fit_loop._combined_loader.flattened)


def _generators(trainer: Any) -> list[Any]:
    return generators_of(_loaders(trainer))


def _mean(result: Any) -> dict[str, Any]:
    about = {name: value for name, value in vars(result.meta).items() if name != "_sync"}  # that holds the strategy
    about["reduce_fx"] = result.meta.reduce_fx.__name__
    return {"about": about, "value": result.value.clone(), "count": getattr(result, "cumulated_batch_size", None)}


def _add(result: Any, mean: Mapping[str, Any]) -> None:
    if result.meta.is_max_reduction or result.meta.is_min_reduction:
        result.value = result.meta.reduce_fx(mean["value"], result.value)
        return
    result.value = mean["value"] + result.value
    if mean["count"] is not None:
        result.cumulated_batch_size = mean["count"] + result.cumulated_batch_size


def _result(mean: Mapping[str, Any]) -> Any:
    from lightning.pytorch.trainer.connectors.logger_connector import result as lightning_result

    meta = lightning_result._Metadata(**mean["about"])
    meta.sync = lightning_result._Sync()
    result: Any = lightning_result._ResultMetric(meta, True)
    result.value = mean["value"]
    if mean["count"] is not None:
        result.cumulated_batch_size = mean["count"]
    result._update_count = 1  # else computing it warns
    return result
