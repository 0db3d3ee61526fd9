"""The ways of saving that checkpoints.py compares, each in a process of its own: `python bench/checkpoint_peers.py NAME
DIRECTORY LAYERS SAVES`. Prints a JSON object: seconds for which the loop was blocked by each save, until the state may
change again, and seconds until it was durable. Nothing of Whistlestop itself imports any of them.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WIDTH = 1700  # a layer has 2.9 M parameters: with Adam's two moments 34.7 MB
Save = Callable[[int], tuple[float, float]]  # blocked, durable


def training(layers: int) -> tuple[Any, Any]:
    """A model and an optimizer that has made a step: all of its state is there."""
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(2)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return model, optimizer


def change(model: Any) -> None:
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1e-6)


def tensors(model: Any, optimizer: Any) -> list[Any]:
    moments = [value for state in optimizer.state.values() for value in state.values()]
    return [*(parameter.detach() for parameter in model.parameters()), *moments]


def sync(path: Path) -> None:
    """What torch.save and others leave to the operating system."""
    for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
        handle = os.open(each, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def memcpy(model: Any, optimizer: Any, directory: Path) -> Save:
    """The floor: the bytes into memory that is there and warm."""
    import torch

    sources = [each.contiguous().view(-1) for each in tensors(model, optimizer) if each.dim()]
    targets = [torch.zeros_like(each) for each in sources]

    def save(number: int) -> tuple[float, float]:
        began = time.perf_counter()
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)
        seconds = time.perf_counter() - began
        return seconds, seconds

    return save


def torch_save(model: Any, optimizer: Any, directory: Path) -> Save:
    import torch

    def save(number: int) -> tuple[float, float]:
        path = directory / f"{number}.pt"
        began = time.perf_counter()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        blocked = time.perf_counter() - began
        sync(path)
        return blocked, time.perf_counter() - began

    return save


def dcp_save(model: Any, optimizer: Any, directory: Path) -> Save:
    import torch.distributed.checkpoint as dcp

    def save(number: int) -> tuple[float, float]:
        began = time.perf_counter()
        dcp.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id=directory / str(number)
        )
        seconds = time.perf_counter() - began
        return seconds, seconds

    return save


def dcp_async(model: Any, optimizer: Any, directory: Path, *, kept: bool = False) -> Save:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    more: dict[str, Any] = {}
    if kept:
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        more["async_stager"] = DefaultStager(StagingOptions(False, False, False, False))

    def save(number: int) -> tuple[float, float]:
        began = time.perf_counter()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        future = dcp.async_save(state, checkpoint_id=directory / str(number), **more)
        blocked = time.perf_counter() - began
        future.result()
        return blocked, time.perf_counter() - began

    return save


def orbax_async(model: Any, optimizer: Any, directory: Path, *, mutable: bool = False) -> Save:
    """JAX's arrays never change: nothing has to be copied before the loop goes on. NumPy's do, as PyTorch's."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    make = np.array if mutable else lambda each: jax.numpy.asarray(np.array(each))
    state = {str(number): make(each) for number, each in enumerate(tensors(model, optimizer))}
    jax.block_until_ready(state)
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=True, max_to_keep=2)
    manager = ocp.CheckpointManager(directory.absolute() / "orbax", options=options)

    def save(number: int) -> tuple[float, float]:
        began = time.perf_counter()
        manager.save(number, args=ocp.args.StandardSave(state))
        blocked = time.perf_counter() - began
        manager.wait_until_finished()
        return blocked, time.perf_counter() - began

    return save


PEERS: dict[str, Callable[[Any, Any, Path], Save]] = {
    "memcpy": memcpy,
    "torch.save": torch_save,
    "DCP save": dcp_save,
    "DCP async": dcp_async,
    "DCP async, stager kept": lambda *given: dcp_async(*given, kept=True),
    "Orbax async, JAX": orbax_async,
    "Orbax async, NumPy": lambda *given: orbax_async(*given, mutable=True),
}


def main() -> None:
    name, directory, layers, saves = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    directory.mkdir(parents=True, exist_ok=True)
    model, optimizer = training(layers)
    save = PEERS[name](model, optimizer, directory)
    size = sum(each.nbytes for each in tensors(model, optimizer))
    measured = []
    for number in range(saves):
        change(model)
        measured.append(save(number))
        if number and not name.startswith("Orbax"):
            for old in directory.glob(f"{number - 1}*"):
                shutil.rmtree(old) if old.is_dir() else old.unlink()
    print(json.dumps({"bytes": size, "blocked": [one for one, _ in measured], "durable": [two for _, two in measured]}))
    sys.stdout.flush()
    os._exit(0)  # some keep threads that nobody waits for


if __name__ == "__main__":
    main()
