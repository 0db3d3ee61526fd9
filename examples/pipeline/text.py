"""Phase 2: learn the notes: a network that guesses the next letter from the last few. STEPS sets how long."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices this small are slower on several threads

import numpy as np
import real

import whistlestop

STEPS = int(os.environ.get("STEPS", "50000"))
CONTEXT, EMBEDDING, HIDDEN, BATCH = 8, 12, 96, 128


def main() -> None:
    text = real.notes()
    letters = sorted(set(text))
    codes = np.array([letters.index(letter) for letter in text])
    windows = np.lib.stride_tricks.sliding_window_view(codes, CONTEXT + 1)
    generator = np.random.default_rng(0)
    weights = {
        "embedding": generator.normal(0, 0.1, (len(letters), EMBEDDING)),
        "w0": generator.normal(0, 1 / np.sqrt(CONTEXT * EMBEDDING), (CONTEXT * EMBEDDING, HIDDEN)),
        "b0": np.zeros(HIDDEN),
        "w1": generator.normal(0, 1 / np.sqrt(HIDDEN), (HIDDEN, len(letters))),
        "b1": np.zeros(len(letters)),
    }
    about = {"letters": "".join(letters), "context": CONTEXT}
    with whistlestop.run("text", every="5000 steps") as run:
        run.track(weights=weights, generator=generator, about=about)
        for step in run.steps(total=STEPS, per_epoch=len(windows) // BATCH):
            batch = windows[generator.integers(0, len(windows), BATCH)]
            rate = 0.5 * (0.1 if step > STEPS * 0.8 else 1.0)
            loss, norm = learn(weights, batch[:, :-1], batch[:, -1], rate)
            run.log(loss=loss, lr=rate, grad_norm=norm)
            if step.every(2000) or step.last:
                with run.evaluating():
                    sample = write(weights, about, 60, np.random.default_rng(step))
                print(f"step {step + 1}: loss {loss:.4f}  {sample!r}", flush=True)


def learn(weights: dict[str, np.ndarray], inputs: np.ndarray, targets: np.ndarray, rate: float) -> tuple[float, float]:
    """One step of gradient descent; the loss before it and the size of the gradient."""
    embedded, hidden, chances = forward(weights, inputs)
    rows = np.arange(len(targets))
    loss = float(-np.log(chances[rows, targets] + 1e-12).mean())
    flow = chances
    flow[rows, targets] -= 1
    flow /= len(targets)
    inner = (flow @ weights["w1"].T) * (1 - hidden**2)
    outer = (inner @ weights["w0"].T).reshape(len(targets), inputs.shape[1], -1)
    gradients = {
        "w1": hidden.T @ flow,
        "b1": flow.sum(axis=0),
        "w0": embedded.T @ inner,
        "b0": inner.sum(axis=0),
        "embedding": np.zeros_like(weights["embedding"]),
    }
    np.add.at(gradients["embedding"], inputs, outer)
    norm = float(np.sqrt(sum((gradient**2).sum() for gradient in gradients.values())))
    for name, gradient in gradients.items():
        weights[name] -= rate * gradient
    return loss, norm


def forward(weights: dict[str, np.ndarray], inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    embedded = weights["embedding"][inputs].reshape(len(inputs), -1)
    hidden = np.tanh(embedded @ weights["w0"] + weights["b0"])
    logits = hidden @ weights["w1"] + weights["b1"]
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return embedded, hidden, shifted / shifted.sum(axis=1, keepdims=True)


def write(weights: dict[str, np.ndarray], about: dict[str, object], count: int, generator: np.random.Generator) -> str:
    """`count` letters, one after the other."""
    letters, context = str(about["letters"]), int(str(about["context"]))
    codes = [letters.index("\n")] * context
    for _ in range(count):
        chances = forward(weights, np.array([codes[-context:]]))[2][0]
        codes.append(int(generator.choice(len(letters), p=chances)))
    return "".join(letters[code] for code in codes[context:])


if __name__ == "__main__":
    main()
