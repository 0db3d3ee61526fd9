"""Data for Keras that can be moved to any batch of any epoch: batch i is computed, not waited for."""

import math
import threading
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from whistlestop.domain.errors import BadRequest
from whistlestop.sdk.batches import Batches, Pass


class Resumable(keras.utils.PyDataset):
    """Arrays (or nests of them), or a PyDataset or other sequence of batches. The order of an epoch follows from
    `seed` and the epoch's number alone. Give it to fit() with shuffle=False: shuffling is done here."""

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._given = x if _is_sequence_of_batches(x) else None
        self._arrays: Any = None
        if self._given is not None:
            self._batches = Batches(len(x), 1, shuffle=shuffle, seed=seed)
        else:
            self._arrays = keras.tree.map_structure(_array, _packed(x, y, sample_weight))
            self._batches = Batches(len(keras.tree.flatten(self._arrays)[0]), batch_size, shuffle=shuffle, seed=seed)
        self._position = (0, 0)  # epoch, batches of it to leave out; replaced at once
        self._first: Callable[[], None] | None = None
        self._asked = threading.local()

    @staticmethod
    def takes(x: Any) -> bool:
        return _is_sequence_of_batches(x) or all(hasattr(each, "shape") for each in keras.tree.flatten(x))

    @staticmethod
    def splits(x: Any) -> bool:
        """Into a part for training and one for validation: arrays only."""
        return not isinstance(x, Resumable) and not _is_sequence_of_batches(x) and Resumable.takes(x)

    def at(self, epoch: int, batch: int = 0, *, first: Callable[[], None] | None = None) -> None:
        """The next iteration is that of `epoch`, from `batch` on; `first` is called before its first batch is made."""
        self._position = (epoch, batch)
        self._first = first

    @property
    def num_batches(self) -> int:
        self._asked.just_now = True
        return len(self._batches) - self._position[1]

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> Any:
        """Keras may fetch ahead, and in several threads: nothing moves here."""
        if getattr(self._asked, "just_now", False):
            self._asked.just_now = False
            if index:
                warnings.warn("fit() shuffles this data again: give it shuffle=False to resume exactly", stacklevel=2)
        first, self._first = self._first, None
        if first is not None:
            first()
        epoch, skip = self._position
        chosen = next(Pass(self._batches, epoch, index + skip))
        if self._given is not None:
            return self._given[chosen[0]]
        return keras.tree.map_structure(lambda each: each[chosen], self._arrays)


def split_off(arrays: Any, part: float) -> tuple[Any, Any]:
    """For training, and for validation: the last ones, as Keras has it. Parts of `arrays` may be None."""
    arrays = keras.tree.map_structure(lambda each: None if each is None else _array(each), arrays)
    count = len(next(each for each in keras.tree.flatten(arrays) if each is not None))
    at = math.floor(count * (1.0 - part))
    if not 0 < at < count:
        raise BadRequest(f"fit(validation_split={part}) leaves nothing on one side of {count} samples")
    training, held_out = (
        keras.tree.map_structure(lambda each, side=side: None if each is None else each[side], arrays)
        for side in (slice(at), slice(at, None))
    )
    return training, held_out


def _is_sequence_of_batches(x: Any) -> bool:
    return (
        hasattr(x, "__getitem__")
        and hasattr(x, "__len__")
        and not isinstance(x, list | tuple | dict)
        and not hasattr(x, "shape")
    )


def _packed(x: Any, y: Any, sample_weight: Any) -> tuple[Any, ...]:
    if sample_weight is not None:
        return (x, y, sample_weight)
    return (x,) if y is None else (x, y)


def _array(each: Any) -> Any:
    return each if isinstance(each, np.ndarray) else np.asarray(keras.ops.convert_to_numpy(each))
