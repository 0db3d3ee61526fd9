"""The global random generators of Python and of every framework that the program has loaded, as one part."""

import importlib
import random
import sys
from typing import Any

from whistlestop.sdk.parts import Part

NAME = "rng"


def rng_part() -> Part:
    return Part(_save, _load, per_rank=True, spare=True, derive=_derive)


def _derive(seed: int) -> None:
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % (1 << 32))
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(seed % (1 << 63))  # of all devices
    if (tensorflow := sys.modules.get("tensorflow")) is not None and hasattr(tensorflow, "random"):
        tensorflow.random.set_seed(seed % (1 << 31))


def _save() -> dict[str, Any]:
    """JAX has no global state: its keys are tracked by name, as any other value."""
    state: dict[str, Any] = {"python": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        state["numpy"] = numpy.random.get_state()
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_rng_state"):
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available():
            state["cuda"] = torch.cuda.get_rng_state_all()
    if (tensorflow := sys.modules.get("tensorflow")) is not None and hasattr(tensorflow, "random"):
        state["tensorflow"] = _tensorflow_state(tensorflow)
    return state


def _load(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    if "numpy" in state:
        importlib.import_module("numpy").random.set_state(state["numpy"])
    if "torch" in state:
        torch = importlib.import_module("torch")
        torch.set_rng_state(state["torch"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"])
    if "tensorflow" in state:
        _set_tensorflow_state(importlib.import_module("tensorflow"), state["tensorflow"])


def _tensorflow_state(tensorflow: Any) -> dict[str, Any]:
    state: dict[str, Any] = {}
    if (generator := _global_generator()) is not None:
        state |= {"generator": generator.state.numpy(), "algorithm": int(generator.algorithm)}
    context = _eager_context()
    if context is not None:  # the operations' own seeds are drawn from this one after tf.random.set_seed
        state["seed"], state["draws"] = context._seed, context._rng.getstate() if context._seed is not None else None
    return state


def _set_tensorflow_state(tensorflow: Any, state: dict[str, Any]) -> None:
    if (generator := _global_generator()) is not None and "generator" in state:
        generator.state.assign(state["generator"])
    elif "generator" in state:
        made = tensorflow.random.Generator(state=state["generator"], alg=state["algorithm"])
        tensorflow.random.set_global_generator(made)
    context = _eager_context()
    if context is not None and state.get("seed") is not None:
        tensorflow.random.set_seed(state["seed"])
        context._rng.setstate(state["draws"])


def _global_generator() -> Any:
    """None if nobody has asked for it yet: asking would make one, from a seed of its own."""
    return getattr(sys.modules.get("tensorflow.python.ops.stateful_random_ops"), "global_generator", None)


def _eager_context() -> Any:
    """TensorFlow has no public way to read it; where it is not as we know it, it is left alone."""
    module = sys.modules.get("tensorflow.python.eager.context")
    context = module.context() if module is not None and hasattr(module, "context") else None
    return context if hasattr(context, "_seed") and hasattr(context, "_rng") else None
