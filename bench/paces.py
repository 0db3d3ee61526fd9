"""Records how the steps of real small trainings come over time: what forecasts are calibrated on beside tests/cases.

    python bench/paces.py --first 1 --minutes 15 --out tests/diagnosis/paces

Each one is a network of two layers that is trained by gradient descent in numpy, for seconds, on a machine that does
other things meanwhile; with evaluations, saves to disk, a loader that stalls, inputs that grow, a change of pace, a
neighbour, or none of these. Even seeds are for tuning, odd ones are held out: nobody looks at those to fit anything.
"""

import argparse
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

TICK = 0.05  # seconds between two marks, at least
KINDS = (
    "steady", "steady", "evaluates", "evaluates_and_saves", "saves", "loader_stalls", "grows", "shrinks", "shifts",
    "neighbour", "compiles", "uneven", "epochs",
)  # fmt: skip


class Network:
    def __init__(self, dice: np.random.Generator, width: int) -> None:
        self._dice, self._width = dice, width
        self._weights = [dice.standard_normal((width, width)) / width**0.5 for _ in range(2)]

    def step(self, part: float = 1.0) -> float:
        """Forward, backward, update; `part` of a full batch."""
        first, second = self._weights
        inputs = self._dice.standard_normal((max(2, int(self._width * part)), self._width))
        hidden = np.tanh(inputs @ first)
        error = hidden @ second - np.sin(inputs)
        back = (error @ second.T) * (1 - hidden**2)
        self._weights = [first - 1e-4 * (inputs.T @ back), second - 1e-4 * (hidden.T @ error)]
        return float((error**2).mean())

    def save(self, directory: str) -> None:
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            for weights in self._weights:
                file.write(weights.tobytes() * 20)
            file.flush()
            os.fsync(file.fileno())


def record(seed: int, directory: str) -> dict[str, Any]:
    dice = random.Random(seed)
    network = Network(np.random.default_rng(seed), dice.choice((48, 80, 120, 180)))
    kind, wanted = dice.choice(KINDS), dice.choice((2.5, 4.0, 6.0, 9.0))
    begin = time.perf_counter()
    for _ in range(6):
        network.step()
    usual = (time.perf_counter() - begin) / 6
    total = max(40, min(6000, int(wanted / usual / 1.5)))
    every = max(5, int(total * dice.choice((0.02, 0.05, 0.1, 0.12, 0.25))))
    after = _after(kind, dice, network, directory, every=every, usual=usual, epoch=max(10, total // 7))
    batch = _batch(kind, dice, total)
    marks = [(0, time.time())]
    with _neighbour(dice) if kind == "neighbour" else _nobody():
        if kind == "compiles":
            time.sleep(usual * total * dice.uniform(0.01, 0.1))
        for step in range(1, total + 1):
            network.step(batch(step))
            after(step)
            now = time.time()
            if now - marks[-1][1] >= TICK or step == total:
                marks.append((step, now))
    times = [round(at - marks[0][1], 3) for _, at in marks]
    return {"kind": kind, "seed": seed, "total": total, "steps": [step for step, _ in marks], "times": times}


def _batch(kind: str, dice: random.Random, total: int) -> Callable[[int], float]:
    where, factor = dice.uniform(0.1, 0.9) * total, dice.uniform(0.5, 2.0)
    return {
        "grows": lambda step: 0.7 + 0.9 * step / total,
        "shrinks": lambda step: 1.6 - 0.9 * step / total,
        "shifts": lambda step: factor if step > where else 1.0,
        "uneven": lambda step: dice.choice((0.4, 1.6)),
    }.get(kind, lambda step: 1.0)


def _after(
    kind: str, dice: random.Random, network: Network, directory: str, *, every: int, usual: float, epoch: int
) -> Callable[[int], None]:
    long = int(dice.uniform(2, every * 0.6))

    def after(step: int) -> None:
        if kind.startswith("evaluates") and step % every == 0:
            for _ in range(long):
                network.step()
        if kind.endswith("saves") and step % (2 * every) == 0:
            network.save(directory)
        if kind == "loader_stalls" and dice.random() < 0.1:
            time.sleep(dice.expovariate(1 / (8 * usual)))
        if kind == "epochs" and step % epoch == 0:
            time.sleep(usual * dice.uniform(3, 20))

    return after


@contextmanager
def _nobody() -> Iterator[None]:
    yield


@contextmanager
def _neighbour(dice: random.Random) -> Iterator[None]:
    """Something else on the same core, now and then."""
    over, seed = threading.Event(), dice.random()

    def work() -> None:
        own = random.Random(seed)
        while not over.wait(own.uniform(0.2, 2.0)):
            until = time.time() + own.uniform(0.1, 1.0)
            while time.time() < until and not over.is_set():
                sum(range(20_000))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    end, found = time.time() + 60 * asked.minutes, list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as directory:
        while time.time() < end:
            found.append(record(asked.first + len(found), directory))
            if len(found) % 20 == 0:
                save(asked.out, found)
    save(asked.out, found)


def save(out: Path, found: list[dict[str, Any]]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for half, odd in (("tuning", 0), ("held_out", 1)):
        lines = [json.dumps(each, separators=(",", ":")) for each in found if each["seed"] % 2 == odd]
        (out / f"{half}.jsonl.zst").write_bytes(zstandard.compress("\n".join(lines).encode(), 19))


if __name__ == "__main__":
    main()
