"""A record of bench/deadlines.py as a picture, and as a table for reading.

python bench/deadlines_picture.py bench/results/RECORD.json bench/results/deadlines.svg > table.md
"""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from deadlines import CHANGEOVERS, COLD, FRACTIONS, GREEDY, GRID_POOLS, UNIFORM, UNIFORM_1, WARM, Setting

COLOURS = {GREEDY: "#8a94a0", UNIFORM: "#d97706", UNIFORM_1: "#e8b26a", COLD: "#7fb3e0", WARM: "#2b6cb0"}
WIDE, HIGH, LEFT, TOP, APART = 230, 150, 60, 58, 46  # of one panel, and around it
Raw = Mapping[str, Sequence[float]]


def main() -> None:
    record, picture = Path(sys.argv[1]), Path(sys.argv[2])
    measured = json.loads(record.read_text())["benchmarks"]
    raw: Raw = next(each["result"]["raw"] for each in measured if each["name"] == "deadlines")
    picture.write_text(drawn(raw, record.stem))
    print(as_table(raw))


def gap(raw: Raw, cell: str, policy: str) -> float:
    """Points of what it costs on-demand only."""
    return 100 * (statistics.mean(raw[f"{cell}: {policy}"]) - statistics.mean(raw[f"{cell}: the least"]))


def error(raw: Raw, cell: str, policy: str) -> float:
    gaps = [cost - least for cost, least in zip(raw[f"{cell}: {policy}"], raw[f"{cell}: the least"], strict=True)]
    return 100 * statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0


def as_table(raw: Raw) -> str:
    lines = [f"| setting | the least | {' | '.join(COLOURS)} | cold / UP | warm / UP |", "|---" * 9 + "|"]
    for cell in dict.fromkeys(name.rpartition(": ")[0] for name in raw):
        least = f"{100 * statistics.mean(raw[f'{cell}: the least']):.1f}"
        gaps = [f"{gap(raw, cell, policy):.2f} ± {error(raw, cell, policy):.2f}" for policy in COLOURS]
        ratios = [f"{gap(raw, cell, policy) / gap(raw, cell, UNIFORM):.2f}" for policy in (COLD, WARM)]
        lines.append(f"| {' | '.join([cell, least, *gaps, *ratios])} |")
    return "\n".join(lines)


def drawn(raw: Raw, source: str) -> str:
    width, height = LEFT + 3 * (WIDE + APART), TOP + 2 * (HIGH + APART) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="11" fill="#5b6570">',
        '<text x="12" y="20" font-size="14" font-weight="600">Cost above the optimum in hindsight, in percent '
        "of the cost on-demand</text>",
        f'<text x="{width - APART}" y="{height - 8}" text-anchor="end">by the part of its time that the work takes; '
        f"zones and weeks that nothing was fitted on; {source}</text>",
    ]
    for index, (policy, colour) in enumerate(COLOURS.items()):
        x = LEFT + index * 110
        parts.append(f'<rect x="{x}" y="32" width="14" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 20}" y="38">{policy}</text>')
    for row, pools in enumerate(GRID_POOLS):
        cells = [Setting(fraction, changeover, pools).name for fraction in FRACTIONS for changeover in CHANGEOVERS]
        most = max(gap(raw, cell, policy) for cell in cells for policy in COLOURS)
        for column, changeover in enumerate(CHANGEOVERS):
            parts += panel(raw, pools, changeover, most, LEFT + column * (WIDE + APART), TOP + row * (HIGH + APART))
    return "\n".join([*parts, "</svg>", ""])


def panel(raw: Raw, pools: int, changeover: int, most: float, left: float, top: float) -> list[str]:
    def x(fraction: float) -> float:
        return left + (fraction - FRACTIONS[0]) / (FRACTIONS[-1] - FRACTIONS[0]) * WIDE

    def y(value: float) -> float:
        return top + HIGH - value / most * (HIGH - 18)

    title = f"{pools} pool{'s' if pools > 1 else ''}, changeover {changeover} min"
    parts = [f'<text x="{left}" y="{top + 6}" font-weight="600">{title}</text>']
    step = next(each for each in (1, 2, 5, 10, 20, 50, 100) if most / each <= 5)
    for value in range(0, int(most) + 1, step):
        parts.append(f'<line x1="{left}" x2="{left + WIDE}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#d9dde2"/>')
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value}</text>')
    parts += [
        f'<text x="{x(fraction):.1f}" y="{top + HIGH + 14}" text-anchor="middle">{fraction:g}</text>'
        for fraction in FRACTIONS
    ]
    for policy, colour in COLOURS.items():
        found = [(x(each), y(gap(raw, Setting(each, changeover, pools).name, policy))) for each in FRACTIONS]
        line = " ".join(f"{across:.1f},{down:.1f}" for across, down in found)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across:.1f}" cy="{down:.1f}" r="2.5" fill="{colour}"/>' for across, down in found]
    return parts


if __name__ == "__main__":
    main()
