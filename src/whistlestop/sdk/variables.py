"""TensorFlow's and Keras's trackable things as parts: checkpoints by their own files, variables by their values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Ways = tuple[Callable[..., Any], Callable[[Any], None], bool]


def ways(thing: Any) -> Ways | None:
    if hasattr(thing, "write") and hasattr(thing, "read") and hasattr(thing, "save_counter"):  # tf.train.Checkpoint
        return (
            lambda directory: thing.write(str(Path(directory) / "checkpoint")),
            lambda directory: _read(thing, Path(directory) / "checkpoint"),
            True,
        )
    if hasattr(thing, "assign") and hasattr(thing, "shape"):  # one variable
        return lambda: _value(thing), thing.assign, False
    if hasattr(thing, "save_own_variables") and hasattr(thing, "variables"):  # keras.Model, Layer, Optimizer
        return lambda: [_value(each) for each in thing.variables], lambda state: _assign(thing, state), False
    if hasattr(thing, "variables") and all(hasattr(each, "assign") for each in thing.variables):  # tf.Module
        return lambda: [_value(each) for each in thing.variables], lambda state: _assign(thing, state), False
    return None


def _read(checkpoint: Any, path: Path) -> None:
    """Strictly: a part that is not there would go on from its first values."""
    checkpoint.read(str(path)).assert_existing_objects_matched()


def _value(variable: Any) -> Any:
    value = variable.numpy() if hasattr(variable, "numpy") else variable
    return value.copy() if hasattr(value, "copy") else value


def _assign(thing: Any, state: Any) -> None:
    variables = list(thing.variables)
    if not variables and state and hasattr(thing, "build"):
        raise ValueError("it has no variables yet: build it before the loop (model.build(...), optimizer.build(...))")
    if len(variables) != len(state):
        raise ValueError(f"it has {len(variables)} variables, the checkpoint has {len(state)}")
    for variable, value in zip(variables, state, strict=True):
        variable.assign(value)
