"""Phase 3: make synthetic rows and notes with what the two train phases left. ROWS and LETTERS set how much."""

import csv
import os
from pathlib import Path

import numpy as np
import real
import text

import whistlestop

ROWS = int(os.environ.get("ROWS", "2000"))
LETTERS = int(os.environ.get("LETTERS", "2000"))


def main() -> None:
    out = Path(os.environ.get("OUT", "out"))
    out.mkdir(exist_ok=True)
    generator = np.random.default_rng(3)
    rows = sample(part("tabular", "model"), ROWS, generator)
    with (out / "synthetic.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(real.COLUMNS)
        writer.writerows(rows.round(2).tolist())
    written = text.write(part("text", "weights"), part("text", "about"), LETTERS, generator)
    (out / "synthetic.txt").write_text(written)
    print(f"wrote {len(rows)} rows and {len(written)} letters to {out}")


def part(phase: str, name: str) -> dict[str, np.ndarray]:
    """A tracked part of the checkpoint that `phase` left."""
    return whistlestop.load(whistlestop.input(phase))[name]


def sample(model: dict[str, np.ndarray], count: int, generator: np.random.Generator) -> np.ndarray:
    parts = generator.choice(len(model["weights"]), count, p=model["weights"])
    rows = [generator.multivariate_normal(model["means"][each], model["covariances"][each]) for each in parts]
    return np.array(rows) * model["spread"] + model["mean"]


if __name__ == "__main__":
    main()
