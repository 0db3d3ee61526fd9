"""A small real training whose result depends on every bit of every step: a perceptron with Adam, dropout and shuffled
batches. `python perceptron.py` trains it from beginning to end with nothing around it and prints its weights' hash.

STEPS, PACE (seconds a step). One thread: sums in another order are other sums.
"""

import hashlib
import json
import os
from typing import Any

import numpy as np

STEPS, PACE = int(os.environ.get("STEPS", "1000")), float(os.environ.get("PACE", "0"))


class Training:
    def __init__(self) -> None:
        made = np.random.default_rng(1)
        self.inputs = made.normal(size=(512, 16))
        self.targets = np.sin(self.inputs.sum(axis=1, keepdims=True)) + 0.1 * made.normal(size=(512, 1))
        shapes = {"w1": (16, 32), "b1": (32,), "w2": (32, 1), "b2": (1,)}
        self.weights = {name: made.normal(size=shape) * 0.3 for name, shape in shapes.items()}
        self.means = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.squares = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.chance = np.random.default_rng(2)
        self.count = 0

    def step(self) -> float:
        self.count += 1
        chosen = self.chance.choice(512, size=64, replace=False)
        inputs, targets = self.inputs[chosen], self.targets[chosen]
        kept = self.chance.random((64, 32)) > 0.1
        hidden = np.tanh(inputs @ self.weights["w1"] + self.weights["b1"]) * kept
        wrong = hidden @ self.weights["w2"] + self.weights["b2"] - targets
        back = (wrong @ self.weights["w2"].T) * (1 - hidden**2) * kept
        slopes = {"w1": inputs.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ wrong, "b2": wrong.sum(axis=0)}
        for name, slope in slopes.items():
            self.means[name] = 0.9 * self.means[name] + 0.1 * slope / 64
            self.squares[name] = 0.999 * self.squares[name] + 0.001 * (slope / 64) ** 2
            mean = self.means[name] / (1 - 0.9**self.count)
            square = self.squares[name] / (1 - 0.999**self.count)
            self.weights[name] = self.weights[name] - 0.01 * mean / (np.sqrt(square) + 1e-8)
        return float((wrong**2).mean())

    def state_dict(self) -> dict[str, Any]:
        chance = json.dumps(self.chance.bit_generator.state)
        parts = {"weights": self.weights, "means": self.means, "squares": self.squares}
        return {**parts, "chance": chance, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights, self.means, self.squares = state["weights"], state["means"], state["squares"]
        self.chance.bit_generator.state = json.loads(state["chance"])
        self.count = state["count"]

    def hash(self) -> str:
        found = hashlib.sha256()
        for name in sorted(self.weights):
            found.update(self.weights[name].tobytes())
        return found.hexdigest()


if __name__ == "__main__":
    training = Training()
    for _ in range(STEPS):
        training.step()
    print(training.hash())
