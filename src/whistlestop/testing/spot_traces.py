"""Recordings of when spot machines could be had, as lifetimes: read from files that others have made."""

import csv
import io
import itertools
import json
import random
import statistics
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


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
    """All recordings below `path`, by kind. These forms are known:

    - a CSV file per pool with `date,availability`: 1 = available;
    - a CSV file with `scheduled_at` and a column per pool: how many machines of a gang could be had, all or none;
    - full.json, alone or in a .tar.gz: {"metadata": {"gap_seconds": …}, "data": […]} with 1 = preempted, 0 = available;
    - a CSV file with `Time,GPUs`: how many are alive. A life ends when there are fewer of them.
    """
    families: dict[str, list[Pool]] = {}
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        for family, pool in _read(file):
            if pool.spells:
                families.setdefault(family, []).append(pool)
    return families


def spells_of(available: Sequence[bool], gap: float) -> list[Spell]:
    runs = [(up, sum(1 for _ in group)) for up, group in itertools.groupby(available)]
    return [Spell(count * gap, ended=index < len(runs) - 1) for index, (up, count) in enumerate(runs) if up]


def _read(file: Path) -> Iterator[tuple[str, Pool]]:
    if file.name == "full.json":
        yield file.parent.parent.name, _preempted(file.parent.name, json.loads(file.read_bytes()))
    elif file.name.endswith(".tar.gz"):
        with tarfile.open(file) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith("/full.json") and (data := archive.extractfile(member)):
                    yield file.name.removesuffix(".tar.gz"), _preempted(Path(member.name).parent.name, json.load(data))
    elif file.suffix == ".csv":
        rows = list(csv.reader(io.StringIO(file.read_text())))
        yield from _tables(file, rows[0] if rows else [], rows[1:])


def _preempted(name: str, content: Any) -> Pool:
    gap = float(content["metadata"]["gap_seconds"])
    return Pool(name, gap, spells_of([not each for each in content["data"]], gap))


def _tables(file: Path, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, Pool]]:
    if list(head) == ["date", "availability"]:
        gap = _gap([datetime.fromisoformat(row[0]).timestamp() for row in rows])
        yield file.parent.parent.name, Pool(file.stem, gap, spells_of([row[1] == "1" for row in rows], gap))
    elif head and head[0] == "scheduled_at":
        gap = _gap([datetime.fromisoformat(row[0]).timestamp() for row in rows])
        gang = max(int(value) for row in rows for value in row[1:] if value)
        for column, name in enumerate(head[1:], 1):
            yield (
                file.stem,
                Pool(name, gap, spells_of([bool(row[column]) and int(row[column]) == gang for row in rows], gap)),
            )
    elif list(head[1:]) == ["Time", "GPUs"]:
        times, alive = [float(row[1]) for row in rows], [int(row[2]) for row in rows]
        fewer = [index for index in range(1, len(alive)) if alive[index] < alive[index - 1]]
        cuts = [0, *fewer, len(alive) - 1]
        lives = [(times[after] - times[before], after) for before, after in itertools.pairwise(cuts)]
        spells = [Spell(seconds, ended=after in fewer) for seconds, after in lives if seconds > 0]
        yield file.stem, Pool(file.stem, _gap(times), spells)


def _gap(times: Sequence[float]) -> float:
    """The usual one: now and then a probe is missing."""
    return statistics.median(after - before for before, after in itertools.pairwise(times))
