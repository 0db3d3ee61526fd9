"""Recordings of when spot capacity could be had. These forms are read, each by its first line or its name:

- `available,seconds[,price]` in a CSV file: one line for each time that it was there (1) or not (0), and how long;
- `date,availability` in a CSV file: a line for each look, 1 = available;
- `scheduled_at` and a column per pool in a CSV file: how many machines of a gang could be had, all or none;
- JSON, in a directory or a .tar.gz only those called full.json: {"metadata": {"gap_seconds": …}, "data": […]} with
  1 = preempted, 0 = available.
"""

import csv
import io
import itertools
import json
import math
import random
import statistics
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from whistlestop.domain.errors import BadRequest

_LONGEST: Final = 3650 * 86_400.0
_UNREADABLE: Final = (ValueError, TypeError, IndexError, OverflowError, OSError, EOFError, tarfile.TarError, csv.Error)
_STEP: Final = 60.0  # into which times that are told in seconds are cut


@dataclass(frozen=True)
class Trace:
    """When a pool was there."""

    name: str
    gap: float  # seconds between two looks
    up: Sequence[bool]
    price: float = 1.0  # credits per hour
    family: str = ""  # of those that were recorded together

    @property
    def seconds(self) -> float:
        return self.gap * len(self.up)

    @property
    def share(self) -> float:
        return sum(self.up) / len(self.up) if self.up else 0.0

    def at(self, seconds: float) -> bool:
        index = int(seconds / self.gap)
        return index < len(self.up) and bool(self.up[index])


def read_traces(path: Path) -> list[Trace]:
    """All below `path`, in the order of their names. BadRequest names the file that can't be read."""
    if not path.exists():
        raise BadRequest(f"there is no file or directory {path}")
    found: list[Trace] = []
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        try:
            found += _read(file, named=path.is_file())
        except KeyError as error:
            raise BadRequest(f"{file} is no recording that can be read: it has no {error}") from error
        except RecursionError as error:
            raise BadRequest(f"{file} is no recording that can be read: it is nested too deeply") from error
        except _UNREADABLE as error:
            raise BadRequest(f"{file} is no recording that can be read: {error}") from error
    return [trace for trace in found if trace.up]


def as_csv(trace: Trace) -> str:
    """The first of the forms above."""
    lives = ((up, sum(1 for _ in group)) for up, group in itertools.groupby(trace.up))
    lines = [f"{int(up)},{round(count * trace.gap)}" for up, count in lives]
    return "\n".join(["available,seconds", *lines, ""])


def synthetic(name: str, seed: int, days: float, *, up: float = 3 * 3600.0, down: float = 3600.0) -> Trace:
    """One of our own: mostly short lives and few very long ones, as everywhere; `up` and `down` are their means."""
    chance, states = random.Random(f"{name} {seed}"), itertools.cycle([True, False])
    looks: list[bool] = []
    while len(looks) * _STEP < days * 86_400:
        here = next(states)
        # Two kinds of lives with the same mean in all: four of five are short.
        mean = (up if here else down) * (0.25 if chance.random() < 0.8 else 4.0)
        looks += [here] * max(1, round(chance.expovariate(1 / mean) / _STEP))
    return Trace(name, _STEP, looks[: round(days * 86_400 / _STEP)])


def _read(file: Path, *, named: bool) -> Iterator[Trace]:
    """`named`: by a person, so that it must be one; in a directory there may be other files, too."""
    if file.suffix == ".json" and (named or file.name == "full.json"):
        name = file.parent.name if file.name == "full.json" else file.stem
        yield _preempted(name, json.loads(file.read_bytes()), file.parent.parent.name)
    elif file.name.endswith(".tar.gz"):
        family = file.name.removesuffix(".tar.gz")
        with tarfile.open(file) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith("/full.json") and (data := archive.extractfile(member)):
                    yield _preempted(Path(member.name).parent.name, json.load(data), family)
    elif file.suffix == ".csv":
        rows = [row for row in csv.reader(io.StringIO(file.read_text())) if row]
        found = list(_tables(file, rows[0] if rows else [], rows[1:]))
        if named and not found:
            raise ValueError("its first line is none of: available,seconds; date,availability; scheduled_at,…")
        yield from found
    elif named:
        raise ValueError("it is neither .csv nor .json nor .tar.gz")


def _preempted(name: str, content: Any, family: str) -> Trace:
    gap = float(content["metadata"]["gap_seconds"])
    if not 1 <= gap <= _LONGEST:
        raise ValueError(f"{gap:g} seconds between two looks")
    return Trace(name, gap, [not each for each in content["data"]], family=family)


def _tables(file: Path, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Trace]:
    if list(head[:2]) == ["available", "seconds"]:
        wrong = next((number for number, row in enumerate(rows, 2) if float(row[1]) <= 0), None)
        if wrong is not None:
            raise ValueError(f"line {wrong}: it can't have lasted {rows[wrong - 2][1]} seconds")
        if not sum(float(row[1]) for row in rows) <= _LONGEST:
            raise ValueError("it is longer than ten years")
        looks = [row[0] == "1" for row in rows for _ in range(max(1, round(float(row[1]) / _STEP)))]
        prices = [float(row[2]) for row in rows if len(row) > 2 and row[2]]
        if not all(0 <= price < math.inf for price in prices):
            raise ValueError("a price is less than nothing, or no number")
        yield Trace(file.stem, _STEP, looks, statistics.mean(prices) if prices else 1.0, file.parent.name)
    elif list(head) == ["date", "availability"]:
        gap = _gap([datetime.fromisoformat(row[0]).timestamp() for row in rows])
        yield Trace(file.stem, gap, [row[1] == "1" for row in rows], family=file.parent.parent.name)
    elif head and head[0] == "scheduled_at":
        gap = _gap([datetime.fromisoformat(row[0]).timestamp() for row in rows])
        gang = max(int(value) for row in rows for value in row[1:] if value)
        for column, name in enumerate(head[1:], 1):
            looks = [bool(row[column]) and int(row[column]) == gang for row in rows]
            yield Trace(name, gap, looks, family=file.stem)


def _gap(times: Sequence[float]) -> float:
    """The usual one: now and then a look is missing."""
    if len(times) < 2:
        raise ValueError("it has less than two looks")
    gap = statistics.median(after - before for before, after in itertools.pairwise(times))
    if gap <= 0:
        raise ValueError("its times do not grow")
    return gap
