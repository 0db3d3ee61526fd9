"""The parts of a program that a checkpoint holds: how each one's state is taken and given back. Not where it goes."""

import functools
import sys
from collections.abc import Callable, MutableMapping, MutableSequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whistlestop.domain.errors import BadRequest, WhistleError
from whistlestop.sdk.batches import Batches


class RestoreFailed(WhistleError):
    """The checkpoint could not be loaded. Training has not started: it would have begun again from step 0."""

    code = "restore_failed"


@dataclass(frozen=True)
class Part:
    """`files`: save(directory) and load(directory) take a directory of their own instead of a state."""

    save: Callable[..., Any]
    load: Callable[[Any], None]
    per_rank: bool = False  # each rank has its own; else rank 0 saves for all
    files: bool = False
    copies: bool = False  # load() keeps nothing of the state: it may be maps of files, on the CPU
    spare: bool = False  # a checkpoint without it, or of another number of ranks, is loaded all the same
    optimizer: Any = None  # torch's, if it is one: nothing but its steps changes its state and its parameters
    derive: Callable[[int], None] | None = None  # make one from a seed, where there is none of this rank
    size: Callable[[], int | None] | None = None  # about how many bytes, without asking for the state; None: too early


def part_of(name: str, thing: Any, *, per_rank: bool = False) -> Part:
    """How to save and load `thing`; the first of these that fits."""
    save, load, files = _ways(name, thing)
    # A loader's position belongs to its rank; a module's weights are the same everywhere.
    own = hasattr(thing, "load_state_dict") and hasattr(thing, "__iter__") and not hasattr(thing, "parameters")
    own = own and not isinstance(thing, Batches)  # those know all ranks' position, and divide it anew
    torch = sys.modules.get("torch")
    optimizer = thing if torch is not None and isinstance(thing, torch.optim.Optimizer) else None
    if optimizer is not None:
        load = functools.partial(_load_optimizer, torch, optimizer)
    return Part(
        save,
        load,
        per_rank or own or _is_random(thing),
        files,
        copies=_copies(torch, thing),
        optimizer=optimizer,
        size=_size_of(thing),
    )


def _size_of(thing: Any) -> Callable[[], int | None] | None:
    """Of what is large and can be asked without side effects: modules, optimizers, arrays and tensors of torch."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return None
    if isinstance(thing, torch.nn.Module):
        return lambda: sum(each.nbytes for group in (thing.parameters(), thing.buffers()) for each in group)
    if isinstance(thing, torch.optim.Optimizer):
        return lambda: _optimizer_size(torch, thing)
    return None


def _copies(torch: Any, thing: Any) -> bool:
    """What is known to copy its state to where it belongs. Anything else may keep the very tensors that it is given."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(thing, numpy.ndarray):
        return True
    return torch is not None and isinstance(thing, (torch.Tensor, torch.nn.Module, torch.optim.Optimizer))


def _load_optimizer(torch: Any, thing: Any, state: Any) -> None:
    """It puts what it is given where its parameters are, and keeps it as it is if it was there."""
    before = [dict(group) for group in thing.param_groups]
    thing.load_state_dict(state)
    for own in thing.state.values():
        if isinstance(own, dict):
            own.update({key: _cloned(torch, each) for key, each in own.items()})
    for group, earlier in zip(thing.param_groups, before, strict=False):
        for key, value in group.items():  # as a learning rate that is a tensor: it comes back on the CPU
            if torch.is_tensor(value) and torch.is_tensor(earlier.get(key)):
                group[key] = value.to(earlier[key].device)


def _cloned(torch: Any, value: Any) -> Any:
    if torch.is_tensor(value):
        return value.clone() if value.device.type == "cpu" else value
    if type(value) is dict:
        return {key: _cloned(torch, each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_cloned(torch, each) for each in value)
    return value


def _optimizer_size(torch: Any, thing: Any) -> int | None:
    """Its state comes with its first step; a kind that has none never gets any."""
    if not thing.state and type(thing) is not torch.optim.SGD:
        return None
    tensors = (each for state in thing.state.values() for each in state.values() if isinstance(each, torch.Tensor))
    return int(sum(each.nbytes for each in tensors))


Ways = tuple[Callable[..., Any], Callable[[Any], None], bool]


def _ways(name: str, thing: Any) -> Ways:
    if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):  # torch, and all that follow it
        return thing.state_dict, thing.load_state_dict, False
    if hasattr(thing, "getstate") and hasattr(thing, "setstate"):  # random.Random, the random module
        return thing.getstate, thing.setstate, False
    if hasattr(thing, "bit_generator"):  # numpy.random.Generator
        return lambda: thing.bit_generator.state, lambda state: setattr(thing.bit_generator, "state", state), False
    if hasattr(thing, "get_state") and hasattr(thing, "set_state"):  # torch.Generator, numpy's RandomState
        return thing.get_state, thing.set_state, False
    if found := _of_frameworks(thing):
        return found
    if isinstance(thing, MutableMapping):
        return lambda: dict(thing), lambda state: _fill_mapping(thing, state), False
    if isinstance(thing, MutableSequence):
        return lambda: list(thing), lambda state: _fill_sequence(thing, state), False
    raise BadRequest(
        f"{name} can't be tracked: {type(thing).__name__} has no state_dict and load_state_dict",
        hint="give run.saves(save=..., load=...) two functions instead",
    )


def _of_frameworks(thing: Any) -> Ways | None:
    """Arrays, tensors and variables are filled in place; whole models as their framework does it."""
    kind = type(thing)
    homes = {each.__module__.partition(".")[0] for each in kind.__mro__}
    if "torch" in homes and hasattr(thing, "copy_"):
        return lambda: thing.detach().clone(), lambda state: _copy_tensor(thing, state), False
    if "numpy" in homes and hasattr(thing, "setflags"):
        return thing.copy, lambda state: _fill_array(thing, state), False
    if homes & {"tensorflow", "keras"}:
        from whistlestop.sdk import variables  # only where such a thing is tracked

        return variables.ways(thing)
    return None


def _is_random(thing: Any) -> bool:
    return any(hasattr(thing, word) for word in ("getstate", "bit_generator")) or type(thing).__name__ == "Generator"


def _fill_mapping(thing: MutableMapping[Any, Any], state: Any) -> None:
    thing.clear()
    thing.update(state)


def _fill_sequence(thing: MutableSequence[Any], state: Any) -> None:
    thing[:] = state


def _fill_array(thing: Any, state: Any) -> None:
    if thing.shape != state.shape or thing.dtype != state.dtype:
        raise ValueError(f"an array of {state.shape} {state.dtype} does not fit into {thing.shape} {thing.dtype}")
    thing[...] = state


def _copy_tensor(thing: Any, state: Any) -> None:
    if thing.shape != state.shape or thing.dtype != state.dtype:
        raise ValueError(f"a tensor of {state.shape} {state.dtype} does not fit into {thing.shape} {thing.dtype}")
    torch = sys.modules["torch"]
    with torch.no_grad():
        thing.copy_(state)


def files_part(save: Callable[[Path], Any], load: Callable[[Path], None], *, per_rank: bool) -> Part:
    return Part(save, load, per_rank, files=True)
