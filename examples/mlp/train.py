"""A small network on two spirals, in NumPy. A few minutes; STEPS=200 makes it seconds.

python train.py                 by itself: Ctrl-C stops it gracefully, starting it again goes on
whistle submit .                under a server: watch, stop, pause, resume, kill
"""

import itertools
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices this small are slower on several threads

import numpy as np

import whistlestop

STEPS = int(os.environ.get("STEPS", "60000"))
BATCH, HIDDEN, SAMPLES, TURNS = 256, 128, 12800, 6
PER_EPOCH = SAMPLES // BATCH

Weights = dict[str, np.ndarray]


def main() -> None:
    inputs, labels = spirals(SAMPLES, seed=1)
    held_out = spirals(2000, seed=2)
    generator = np.random.default_rng(0)
    weights = start_weights(generator)
    momentum = {name: np.zeros_like(weight) for name, weight in weights.items()}
    with whistlestop.run("mlp", every="2000 steps, 1 minute") as run:
        # Everything that the next step depends on: a resumed run goes on with the very same numbers.
        run.track(weights=weights, momentum=momentum, generator=generator)
        for step in run.steps(total=STEPS, per_epoch=PER_EPOCH):
            chosen = generator.integers(0, SAMPLES, BATCH)
            loss, gradients = backward(weights, inputs[chosen], labels[chosen])
            rate = learning_rate(step)
            norm = update(weights, momentum, gradients, rate)
            run.log(loss=loss, lr=rate, grad_norm=norm)
            if step.every(5 * PER_EPOCH) or step.last:
                with run.evaluating():
                    accuracy = evaluate(weights, *held_out)
                run.log(val_accuracy=accuracy)
                print(f"step {step + 1}  epoch {step.epoch}  loss {loss:.4f}  accuracy {accuracy:.3f}", flush=True)
        accuracy = evaluate(weights, *held_out)
        run.summary["accuracy"] = accuracy
        print(f"accuracy on held-out data: {accuracy:.3f}")


def spirals(count: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two arms that wind around each other, with noise."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, count)
    along = np.sqrt(generator.random(count)) * TURNS * np.pi
    angle = along + np.pi * labels
    points = np.stack([np.cos(angle) * along, np.sin(angle) * along], axis=1) / (TURNS * np.pi)
    return points + generator.normal(0, 0.015, points.shape), labels


def start_weights(generator: np.random.Generator) -> Weights:
    sizes = [2, HIDDEN, HIDDEN, 2]
    weights: Weights = {}
    for number, (into, out) in enumerate(itertools.pairwise(sizes)):
        weights[f"w{number}"] = generator.normal(0, np.sqrt(2 / into), (into, out))
        weights[f"b{number}"] = np.zeros(out)
    return weights


def forward(weights: Weights, inputs: np.ndarray) -> list[np.ndarray]:
    """Every layer's output; the last one are logits."""
    layers = [inputs]
    for number in range(3):
        value = layers[-1] @ weights[f"w{number}"] + weights[f"b{number}"]
        layers.append(np.maximum(value, 0) if number < 2 else value)
    return layers


def backward(weights: Weights, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, Weights]:
    layers = forward(weights, inputs)
    chances = softmax(layers[-1])
    rows = np.arange(len(labels))
    loss = float(-np.log(chances[rows, labels] + 1e-12).mean())
    flow = chances
    flow[rows, labels] -= 1
    flow /= len(labels)
    gradients: Weights = {}
    for number in (2, 1, 0):
        gradients[f"w{number}"] = layers[number].T @ flow
        gradients[f"b{number}"] = flow.sum(axis=0)
        if number:
            flow = (flow @ weights[f"w{number}"].T) * (layers[number] > 0)
    return loss, gradients


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def learning_rate(step: int) -> float:
    """Warm up, then half a cosine."""
    warm = max(1, STEPS // 20)
    if step < warm:
        return 0.1 * (step + 1) / warm
    return float(0.05 * (1 + np.cos(np.pi * (step - warm) / max(1, STEPS - warm))))


def update(weights: Weights, momentum: Weights, gradients: Weights, rate: float) -> float:
    norm = float(np.sqrt(sum((gradient**2).sum() for gradient in gradients.values())))
    scale = min(1.0, 5.0 / (norm + 1e-12))
    for name, gradient in gradients.items():
        momentum[name] *= 0.9
        momentum[name] += gradient * scale
        weights[name] -= rate * momentum[name]
    return norm


def evaluate(weights: Weights, inputs: np.ndarray, labels: np.ndarray) -> float:
    return float((forward(weights, inputs)[-1].argmax(axis=1) == labels).mean())


if __name__ == "__main__":
    main()
