"""The program of checkpoints.py: a gigabyte of real PyTorch state under a real runner. LAYERS, SAVES, THREADS and MODE:
`eager`, `lazy`, `unchanged` (the same state again and again), `trained` (real steps, every other round with a save).
Prints a line with JSON: what the loop has waited for.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from checkpoint_peers import WIDTH, change, tensors, training

import whistlestop
from whistlestop.channel.control import Control
from whistlestop.channel.layout import CONTROL_FILE, Word

LAYERS, SAVES, MODE = int(os.environ["LAYERS"]), int(os.environ["SAVES"]), os.environ["MODE"]
ROUND = 4  # steps of a round of real training
PATIENCE = 120.0


def wait_until_safe(control: Control, step: int) -> None:
    end = time.monotonic() + PATIENCE
    while step and control[Word.DURABLE_STEP] <= step:  # before the first step nothing was saved
        if time.monotonic() > end:
            raise SystemExit(f"step {step} did not become durable in {PATIENCE:.0f} s")
        time.sleep(0.01)


def main() -> None:
    import torch

    model, optimizer = training(LAYERS)
    torch.set_num_threads(int(os.environ["THREADS"]))
    control = Control.open(Path(os.environ["WHISTLE_CHANNEL"]) / CONTROL_FILE)
    lazy = MODE == "lazy"
    with whistlestop.run(lazy=lazy) as run:
        run.track(model=model, optimizer=optimizer)
        began = time.perf_counter()
        restored = run.restore()
        said: dict[str, Any] = {"restore": time.perf_counter() - began if restored else None}
        said["bytes"] = sum(each.nbytes for each in tensors(model, optimizer))
        if MODE == "trained":
            said |= train(run, model, optimizer, torch)
        else:
            said |= save(run, model, optimizer, torch, control, lazy=lazy)
    print("MEASURED " + json.dumps(said), flush=True)


def save(run: Any, model: Any, optimizer: Any, torch: Any, control: Control, *, lazy: bool) -> dict[str, Any]:
    """Between two steps with a save: the time that is not the loop's own. Lazily, also what the optimizer waits."""
    blocked, waited = [], []
    left = time.perf_counter()
    for step in run.steps(total=2 * SAVES + 1, per_epoch=2):  # one save for each epoch
        entered = time.perf_counter()
        if int(step) and int(step) % 2 == 0:
            blocked.append(entered - left)
        if lazy:
            waited.append(step_lazily(model, optimizer, torch, plain=int(step) % 2 == 1))
            wait_until_safe(control, int(step) - int(step) % 2)
        else:
            if int(step) % 2 == 0:
                wait_until_safe(control, int(step))
            else:
                time.sleep(1.0 if int(step) == 1 else 0.1)  # a step: long enough to prepare for the first save
            if MODE != "unchanged":
                change(model)
        left = time.perf_counter()
    return {"blocked": blocked, "waited": waited}


def step_lazily(model: Any, optimizer: Any, torch: Any, *, plain: bool) -> float:
    """A real step; the seconds of the optimizer's part that the gradients can't explain."""
    batch = torch.randn(256, WIDTH)
    model(batch).square().mean().backward()
    began = time.perf_counter()
    optimizer.step()
    seconds = time.perf_counter() - began
    optimizer.zero_grad(set_to_none=True)
    return -seconds if plain else seconds


def train(run: Any, model: Any, optimizer: Any, torch: Any) -> dict[str, Any]:
    """Rounds of real steps, every other one with a save at its beginning, which then becomes durable beside it. The
    call itself is measured apart; what is left is the slow-down."""
    rounds: dict[str, list[float]] = {"with": [], "without": []}
    called: list[float] = []
    batch = torch.randn(256, WIDTH)
    saved, began = None, time.perf_counter()
    for step in run.steps(total=(2 * SAVES + 1) * ROUND):
        number, place = divmod(int(step), ROUND)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if place == 0 and number % 2:
            before = time.perf_counter()
            saved = run.save()
            called.append(time.perf_counter() - before)
        if place == ROUND - 1:
            seconds = time.perf_counter() - began
            if number:  # the first warms up
                rounds["with" if number % 2 else "without"].append(seconds - (called[-1] if number % 2 else 0.0))
            if saved is not None:
                saved.wait(PATIENCE)  # the upload of one round must not be in the next
                saved = None
            began = time.perf_counter()
    return {"rounds": rounds, "called": called}


if __name__ == "__main__":
    main()
