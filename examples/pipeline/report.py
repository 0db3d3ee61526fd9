"""Phase 4: compare the synthetic data with the real: report.md with a histogram of every column as SVG."""

import csv
import os
from collections import Counter
from pathlib import Path

import numpy as np
import real

WIDTH, HEIGHT, BINS = 360, 160, 30


def main() -> None:
    out = Path(os.environ.get("OUT", "out"))
    with (out / "synthetic.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    synthetic = np.array(rows[1:], dtype=float)
    truth = real.table()
    lines = ["# Synthetic data beside the real", "", "| column | real mean | synthetic | real spread | synthetic |"]
    lines.append("|---|---|---|---|---|")
    for number, name in enumerate(real.COLUMNS):
        one, other = truth[:, number], synthetic[:, number]
        lines.append(f"| {name} | {one.mean():.1f} | {other.mean():.1f} | {one.std():.1f} | {other.std():.1f} |")
        (out / f"{name}.svg").write_text(histogram(name, one, other))
    lines += ["", *(f"![{name}]({name}.svg)" for name in real.COLUMNS), ""]
    written = (out / "synthetic.txt").read_text()
    lines += ["## Text", "", f"Known words: {known(written):.0%}", "", "```", written[:300].strip(), "```", ""]
    (out / "report.md").write_text("\n".join(lines))
    print(f"wrote {out / 'report.md'}")


def known(written: str) -> float:
    """Share of the words that the real notes have too."""
    words, real_words = Counter(written.split()), set(real.notes().split())
    return sum(count for word, count in words.items() if word in real_words) / max(1, words.total())


def histogram(name: str, truth: np.ndarray, synthetic: np.ndarray) -> str:
    low, high = min(truth.min(), synthetic.min()), max(truth.max(), synthetic.max())
    curves = [np.histogram(each, bins=BINS, range=(low, high), density=True)[0] for each in (truth, synthetic)]
    top = max(curve.max() for curve in curves)
    paths = []
    for curve, color in zip(curves, ("#2b6cb0", "#dd6b20"), strict=True):
        points = " ".join(
            f"{WIDTH * (number + 0.5) / BINS:.1f},{HEIGHT * (1 - 0.9 * value / top):.1f}"
            for number, value in enumerate(curve)
        )
        paths.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" role="img">'
        f"<title>{name}: real blue, synthetic orange</title>{''.join(paths)}</svg>\n"
    )


if __name__ == "__main__":
    main()
