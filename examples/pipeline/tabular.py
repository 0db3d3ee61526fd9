"""Phase 1: learn the table, as a mixture of Gaussians fitted on mini-batches. STEPS sets how long."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices this small are slower on several threads

import numpy as np
import real

import whistlestop

STEPS = int(os.environ.get("STEPS", "25000"))
PARTS, BATCH, RATE = 8, 1024, 0.05


def main() -> None:
    rows = real.table()
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    rows = (rows - mean) / spread
    generator = np.random.default_rng(0)
    model = {
        "weights": np.full(PARTS, 1 / PARTS),
        "means": rows[generator.integers(0, len(rows), PARTS)],
        "covariances": np.stack([np.eye(rows.shape[1])] * PARTS),
        "mean": mean,
        "spread": spread,
    }
    with whistlestop.run("tabular", every="5000 steps") as run:
        run.track(model=model, generator=generator)
        for step in run.steps(total=STEPS, per_epoch=max(1, len(rows) // BATCH)):
            batch = rows[generator.integers(0, len(rows), BATCH)]
            shares, likelihood = responsibilities(model, batch)
            rate = RATE / (1 + step / 500)
            improve(model, batch, shares, rate)
            run.log(loss=-likelihood, lr=rate)
            if step.every(2000) or step.last:
                with run.evaluating():
                    _, whole = responsibilities(model, rows)
                run.log(val_loss=-whole)
                print(f"step {step + 1}: negative log-likelihood {-whole:.4f}", flush=True)


def responsibilities(model: dict[str, np.ndarray], batch: np.ndarray) -> tuple[np.ndarray, float]:
    """How much of each row each part explains, and the mean log-likelihood."""
    logs = []
    for weight, mean, covariance in zip(model["weights"], model["means"], model["covariances"], strict=True):
        lower = np.linalg.cholesky(covariance)
        away = np.linalg.solve(lower, (batch - mean).T)
        size = batch.shape[1] * np.log(2 * np.pi) + 2 * np.log(np.diag(lower)).sum()
        logs.append(np.log(weight) - 0.5 * ((away**2).sum(axis=0) + size))
    stacked = np.stack(logs, axis=1)
    highest = stacked.max(axis=1, keepdims=True)
    total = highest + np.log(np.exp(stacked - highest).sum(axis=1, keepdims=True))
    return np.exp(stacked - total), float(total.mean())


def improve(model: dict[str, np.ndarray], batch: np.ndarray, shares: np.ndarray, rate: float) -> None:
    counts = shares.sum(axis=0) + 1e-9
    means = (shares.T @ batch) / counts[:, None]
    model["weights"] = normal((1 - rate) * model["weights"] + rate * counts / counts.sum())
    model["means"] = (1 - rate) * model["means"] + rate * means
    covariances = []
    for part in range(PARTS):
        away = batch - model["means"][part]
        covariance = (shares[:, part, None] * away).T @ away / counts[part]
        mixed = (1 - rate) * model["covariances"][part] + rate * covariance
        covariances.append(mixed + 1e-6 * np.eye(batch.shape[1]))
    model["covariances"] = np.stack(covariances)


def normal(weights: np.ndarray) -> np.ndarray:
    weights = np.maximum(weights, 1e-4)
    return weights / weights.sum()


if __name__ == "__main__":
    main()
