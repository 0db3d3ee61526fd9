"""TensorFlow loops: a tf.data pipeline that can begin at any batch. Checkpoints: run.track(checkpoint=Checkpoint(…)).

An iterator inside the tf.train.Checkpoint does the same without this, but not under tf.distribute.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["Epochs"]


class Epochs:
    """Batches without end, epoch after epoch; `run.track(data=epochs)` keeps the position.

    `make(epoch)` gives the tf.data.Dataset of an epoch, the same each time it is asked: shuffle with a seed that
    follows from the epoch. With `strategy` the batches are distributed over its replicas.
    """

    def __init__(self, make: Callable[[int], Any], *, strategy: Any = None) -> None:
        self._make = make
        self._strategy = strategy
        self._epoch = 0
        self._batch = 0
        self._iterator: Iterator[Any] | None = None

    def __len__(self) -> int:
        """Batches in an epoch. A TypeError if TensorFlow can't know it, as for a dataset made from a generator."""
        return len(self._make(0))

    def __iter__(self) -> "Epochs":
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = self._begin()
        try:
            batch = next(self._iterator)
        except StopIteration:
            if self._batch == 0:
                raise  # an epoch without a batch: it would be asked for ever
            self._epoch, self._batch = self._epoch + 1, 0
            self._iterator = self._begin()
            batch = next(self._iterator)
        self._batch += 1
        return batch

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._epoch, "batch": self._batch}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self._epoch, self._batch = state["epoch"], state["batch"]
        self._iterator = None

    def _begin(self) -> Iterator[Any]:
        dataset = self._make(self._epoch)
        if self._batch:
            dataset = dataset.skip(self._batch)  # reads what it leaves out, unless the source can seek
        if self._strategy is not None:
            dataset = self._strategy.experimental_distribute_dataset(dataset)
        return iter(dataset)
