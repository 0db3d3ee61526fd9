"""Recordings of when spot machines could be had, as lifetimes: read from files that others have made."""

import csv
import io
import itertools
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from whistlestop.capacity.traces import read_traces


@dataclass(frozen=True)
class Spell:
    seconds: float
    ended: bool = True  # False: the recording ended before the machine did


@dataclass(frozen=True)
class Pool:
    name: str
    gap: float  # seconds between two probes
    spells: Sequence[Spell]

    def drawn(self, chance: random.Random) -> list[Spell]:
        """Both ends of a life lie somewhere between two probes: on average it is as long as it was recorded."""
        return [
            Spell(max(1.0, spell.seconds + self.gap * (chance.random() + chance.random() - 1)), spell.ended)
            for spell in self.spells
        ]


def read_families(path: Path) -> dict[str, list[Pool]]:
    """All recordings below `path`, by kind: those of capacity/traces.py, and CSV files with `Time,GPUs`, which tell how
    many machines are alive: a life ends when there are fewer of them."""
    pools = [(trace.family, Pool(trace.name, trace.gap, spells_of(trace.up, trace.gap))) for trace in read_traces(path)]
    for file in [path] if path.is_file() else sorted(path.rglob("*.csv")):
        pools += _alive(file)
    families: dict[str, list[Pool]] = {}
    for family, pool in pools:
        if pool.spells:
            families.setdefault(family, []).append(pool)
    return families


def spells_of(available: Sequence[bool], gap: float) -> list[Spell]:
    runs = [(up, sum(1 for _ in group)) for up, group in itertools.groupby(available)]
    return [Spell(count * gap, ended=index < len(runs) - 1) for index, (up, count) in enumerate(runs) if up]


def _alive(file: Path) -> Iterator[tuple[str, Pool]]:
    if file.suffix != ".csv":
        return
    head, *rows = list(csv.reader(io.StringIO(file.read_text()))) or [[]]
    if list(head[1:]) != ["Time", "GPUs"]:
        return
    times, alive = [float(row[1]) for row in rows], [int(row[2]) for row in rows]
    fewer = [index for index in range(1, len(alive)) if alive[index] < alive[index - 1]]
    lives = [(times[after] - times[before], after) for before, after in itertools.pairwise([0, *fewer, len(alive) - 1])]
    spells = [Spell(seconds, ended=after in fewer) for seconds, after in lives if seconds > 0]
    gap = statistics.median(after - before for before, after in itertools.pairwise(times))
    yield file.stem, Pool(file.stem, gap, spells)
