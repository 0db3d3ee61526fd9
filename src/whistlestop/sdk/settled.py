"""States of torch that stay as they are until an optimizer steps: the loop need not wait until they are taken apart.
What else is in them, such as the running means of a norm, is copied here."""

import copy
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from whistlestop.sdk.parts import Part

MOST_HELD: Final = 8 << 20  # bytes that are copied twice, to be rid of them
_PLAIN: Final = (bool, int, float, str, type(None))


@dataclass
class Settled:
    state: Any
    tensors: list[Any] = field(default_factory=list)  # which must not change until they are copied


def settled(part: Part, state: Any, stays: Mapping[int, Any]) -> Settled | None:
    """`stays`: the storages that only a step changes. None: nobody knows whether this state will stay as it is."""
    torch = sys.modules.get("torch")
    made_by = getattr(part.save, "__func__", None)
    if not stays or torch is None:
        return None
    if made_by is torch.nn.Module.state_dict:
        return _of_module(torch.Tensor, state, stays)
    if made_by is torch.optim.Optimizer.state_dict:
        return _of_optimizer(torch.Tensor, state, stays)
    return None


def _of_module(kind: Any, state: Any, stays: Mapping[int, Any]) -> Settled | None:
    found, others, held = Settled(state), {}, 0
    for name, tensor in state.items():
        if type(tensor) is not kind:
            return None
        storage = tensor.untyped_storage()._cdata
        if storage in stays:
            found.tensors.append(tensor)
            continue
        held += tensor.nbytes
        if held > MOST_HELD or not tensor.is_cpu or storage in others:  # views of one thing stay together
            return None
        others[storage] = name, tensor
    if others:
        found.state = copy.copy(state)
        found.state.update((name, tensor.clone()) for name, tensor in others.values())
    return found


def _of_optimizer(kind: Any, state: Any, stays: Mapping[int, Any]) -> Settled | None:
    if set(state) != {"state", "param_groups"} or not all(map(_is_plain, state["param_groups"])):
        return None
    taken = {key: dict(each) for key, each in state["state"].items()}
    found = Settled({"state": taken, "param_groups": copy.deepcopy(state["param_groups"])})
    for each in taken.values():
        for value in each.values():
            if type(value) is kind and value.untyped_storage()._cdata in stays:
                found.tensors.append(value)
            elif not isinstance(value, _PLAIN):
                return None
    return found


def _is_plain(group: Mapping[str, Any]) -> bool:
    """Learning rates and the like, which anybody may change at any time; not one that is a tensor."""
    return all(
        isinstance(value, _PLAIN) or (isinstance(value, tuple | list) and all(isinstance(v, _PLAIN) for v in value))
        for value in group.values()
    )
