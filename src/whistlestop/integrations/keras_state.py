"""The state of Keras's variables, seeds and callbacks as values that pickle can store."""

import sys
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import keras
import numpy as np

# What Keras sets anew in every fit(), or what is not theirs to keep.
_NOT_KEPT = {"model", "_model", "params", "validation_data"}


def values(variables: Sequence[Any]) -> dict[str, Any]:
    """By number and path: paths alone need not differ."""
    return {
        f"{number:04d} {variable.path}": np.array(keras.ops.convert_to_numpy(variable.value))
        for number, variable in enumerate(variables)
    }


def load_values(variables: Sequence[Any], state: dict[str, Any]) -> None:
    """By order: a model that is made a second time in one program has other paths."""
    if len(variables) != len(state):
        raise ValueError(f"the checkpoint has {len(state)} variables, the model {len(variables)}: it is another model")
    for variable, (name, value) in zip(variables, state.items(), strict=True):
        if tuple(variable.shape) != value.shape:
            raise ValueError(f"{name} has shape {value.shape} in the checkpoint and {tuple(variable.shape)} here")
        variable.assign(value)


def seed_state() -> Any:
    """Of the generator that layers and keras.random use when they are given no seed; None: nobody has used it."""
    generator = _global_generator()
    return None if generator is None else np.array(keras.ops.convert_to_numpy(generator.state.value))


def load_seed(state: Any) -> None:
    if state is None:
        return
    if _global_generator() is None:
        keras.random.uniform(())  # makes it
    generator = _global_generator()
    if generator is not None:
        generator.state.assign(state)


def torch_draws() -> Any:
    """The state of torch's generator, if that is the backend: dropout and the making of iterators draw from it."""
    if keras.backend.backend() != "torch":
        return None
    import torch

    return torch.get_rng_state()


def set_torch_draws(state: Any) -> None:
    if state is None:
        return
    import torch

    torch.set_rng_state(state)


def callback_state(callback: Any) -> dict[str, Any]:
    """Its numbers, words and arrays: best value, patience, kept weights. Not its links to the rest of the program."""
    return {name: value for name, value in vars(callback).items() if name not in _NOT_KEPT and _plain(value)}


def load_callback_state(callback: Any, state: dict[str, Any]) -> None:
    vars(callback).update(state)


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_plain(each) for each in value)
    if isinstance(value, FunctionType):  # how EarlyStopping compares; what pickle finds by its name
        return getattr(sys.modules.get(value.__module__), value.__qualname__, None) is value
    return value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic)


def _global_generator() -> Any:
    from keras.src.backend.common import global_state  # there is no public way to it

    return global_state.get_global_attribute("global_seed_generator")
