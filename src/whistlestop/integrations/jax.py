"""JAX loops: a box for values that every step replaces, so that a checkpoint finds the present ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from whistlestop.sdk.run import Run

__all__ = ["Held", "saves_with_orbax"]


class Held:
    """`held = Held(params=params, opt_state=opt_state, key=key)`; `run.track(state=held)`; then in the loop
    `held.params = …`. Values are pytrees of arrays (keys of jax.random too) or objects of flax.nnx."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def state_dict(self) -> dict[str, Any]:
        """`params/Dense_0/kernel` -> array, on the host."""
        leaves = [(path, leaf) for path, leaf, _ in self._leaves()]
        arrays = jax.device_get([_data(leaf) for _, leaf in leaves])  # one transfer for all of them
        return {path: np.array(array) for (path, _), array in zip(leaves, arrays, strict=True)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Into the present structure, placed on devices as the present values are."""
        present = self._leaves()
        here, there = {path for path, _, _ in present}, set(state)
        if here != there:
            odd = ", ".join(sorted(here ^ there)[:5])
            raise ValueError(f"the checkpoint and this program do not hold the same values; they differ in: {odd}")
        loaded: dict[str, list[Any]] = {}
        for path, leaf, name in present:
            loaded.setdefault(name, []).append(_fill(path, leaf, state[path]))
        for name, value in self.__dict__.items():
            _, structure = jax.tree.flatten(_tree(value))
            setattr(self, name, _filled(value, jax.tree.unflatten(structure, loaded.get(name, []))))

    def arrays(self) -> dict[str, Any]:
        """The leaves where they are, for checkpointers that copy from devices themselves."""
        return {path: _data(leaf) for path, leaf, _ in self._leaves()}

    def _leaves(self) -> list[tuple[str, Any, str]]:
        found = []
        for name, value in self.__dict__.items():
            for path, leaf in jax.tree_util.tree_flatten_with_path(_tree(value))[0]:
                inside = jax.tree_util.keystr(path, simple=True, separator="/")
                found.append((f"{name}/{inside}" if inside else name, leaf, name))
        return found


def saves_with_orbax(run: Run, held: Held, *, name: str = "orbax") -> None:
    """Save `held` by Orbax's StandardCheckpointer, inside our checkpoint: its own format, sharded arrays too."""
    import orbax.checkpoint as orbax

    def save(directory: Path) -> None:
        with orbax.StandardCheckpointer() as checkpointer:  # leaving it waits until all is written
            checkpointer.save(Path(directory).absolute() / "state", held.arrays())

    def load(directory: Path) -> None:
        with orbax.StandardCheckpointer() as checkpointer:
            target = jax.tree.map(orbax.utils.to_shape_dtype_struct, held.arrays())
            held.load_state_dict(checkpointer.restore(Path(directory).absolute() / "state", target))

    run.saves_files(save=save, load=load, name=name)


def _tree(value: Any) -> Any:
    """What of it is state: objects of flax.nnx are graphs that hold it."""
    return _nnx().to_pure_dict(_nnx().state(value)) if _is_nnx(value) else value


def _filled(value: Any, tree: Any) -> Any:
    if not _is_nnx(value):
        return tree
    nnx = _nnx()
    state = nnx.state(value)
    nnx.replace_by_pure_dict(state, tree)
    nnx.update(value, state)
    return value


def _is_nnx(value: Any) -> bool:
    """Modules and optimizers. They are also pytrees, but those who hold one expect it to be filled, not replaced."""
    kinds = type(value).__mro__
    return any(each.__module__.startswith("flax.nnx") and each.__name__ in ("Pytree", "Object") for each in kinds)


def _nnx() -> Any:
    from flax import nnx

    return nnx


def _data(leaf: Any) -> Any:
    """Keys of jax.random are not arrays of numbers: their data are."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _fill(path: str, leaf: Any, value: Any) -> Any:
    data = _data(leaf)
    if np.shape(data) != np.shape(value):
        raise ValueError(f"{path} has shape {np.shape(value)} in the checkpoint and {np.shape(data)} here")
    if not isinstance(leaf, jax.Array):
        return type(leaf)(value) if np.ndim(leaf) == 0 else np.asarray(value)  # plain numbers stay plain
    # One that is bound to no device goes wherever the others of a computation are: it must stay so.
    where = leaf.sharding if leaf.committed else None
    if _is_key(leaf):
        key = jax.random.wrap_key_data(jax.numpy.asarray(value), impl=jax.random.key_impl(leaf))
        return key if where is None else jax.device_put(key, where)
    return jax.device_put(np.asarray(value, leaf.dtype), where)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
