"""The recorded cases in their files: one per label and split, compressed, small enough for the repository."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import zstandard

from whistlestop.diagnosis.evidence import Evidence, Line, Series
from whistlestop.diagnosis.recording import from_json, to_json

POINTS = 400  # of a series
LINES, WIDEST = 60, 400  # of the output, and characters of each
BEGIN = 1_700_000_000.0  # all of them begin then: when they really did says nothing
TICKS = 10_000  # of a second
_FILE = re.compile(r"(?P<label>[a-z_]+)\.(?P<split>tuning|held_out)\.jsonl\.zst")


@dataclass(frozen=True)
class Case:
    name: str
    kind: str  # the mechanism or the shape
    label: str  # a Cause, or healthy
    split: str
    evidence: Evidence
    replayed: bool = False


def load(directory: Path, split: str | None = None) -> Iterator[Case]:
    for path in sorted(directory.iterdir()):
        found = _FILE.fullmatch(path.name)
        if found is None or found["label"] == "paces" or (split is not None and found["split"] != split):
            continue
        for line in zstandard.decompress(path.read_bytes()).splitlines():
            told = json.loads(line)
            evidence = from_json(_spread(told["evidence"]))
            yield Case(
                told["name"], told["kind"], found["label"], found["split"], evidence, told.get("replayed", False)
            )


def save(directory: Path, cases: Iterable[Case]) -> None:
    """Those of the same name are replaced, the others stay."""
    known = {case.name: case for case in load(directory)} if directory.is_dir() else {}
    cases = (known | {case.name: case for case in cases}).values()
    files: dict[str, list[str]] = {}
    for case in sorted(cases, key=lambda case: case.name):
        told: dict[str, Any] = {"name": case.name, "kind": case.kind, "evidence": _dense(to_json(case.evidence))}
        if case.replayed:
            told["replayed"] = True
        files.setdefault(f"{case.label}.{case.split}.jsonl.zst", []).append(json.dumps(told, separators=(",", ":")))
    directory.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        _write(directory / name, lines)


def small(evidence: Evidence, hidden: Mapping[str, str]) -> Evidence:
    """Fewer points, rounded numbers, short lines, times from a common beginning, no names of the machine."""
    shift = BEGIN - (evidence.place.started_at or evidence.now)
    told: dict[str, Any] = json.loads(_neutral(json.dumps(to_json(evidence)), hidden))
    read = from_json(told)

    def at(value: float) -> float:
        return round((value + shift - BEGIN) * TICKS) / TICKS + BEGIN if value else 0.0

    place = replace(
        read.place,
        started_at=at(read.place.started_at),
        loop_started_at=at(read.place.loop_started_at),
        progress_at=at(read.place.progress_at),
        ended_at=at(read.place.ended_at) if read.place.ended_at is not None else None,
    )
    return replace(
        read,
        now=at(read.now),
        place=place,
        series=tuple(_thin(each, at) for each in read.series),
        ends=tuple(replace(end, at=at(end.at)) for end in read.ends),
        lines=tuple(replace(line, at=at(line.at), text=line.text[:WIDEST]) for line in _last(read.lines)),
        told=tuple(replace(each, at=at(each.at)) for each in read.told),
        price=_digits(read.price),
        spent=_digits(read.spent),
    )


def paces(directory: Path, split: str) -> Iterator[dict[str, Any]]:
    """Whole trainings: `steps` made by `times` (seconds since the loop began), `total`, `kind`; of those that were
    resumed also the step and the time at which the last attempt's loop began."""
    path = directory / f"paces.{split}.jsonl.zst"
    for line in zstandard.decompress(path.read_bytes()).splitlines():
        told = json.loads(line)
        told["steps"], told["times"] = _sums(told["steps"]), [each / TICKS for each in _sums(told["times"])]
        yield told


def save_paces(directory: Path, split: str, found: Iterable[Mapping[str, Any]]) -> None:
    lines = []
    for each in sorted(found, key=lambda each: str(each["name"])):
        ticks = [round(value * TICKS) for value in each["times"]]
        lines.append(
            json.dumps({**each, "steps": _steps(each["steps"]), "times": _steps(ticks)}, separators=(",", ":"))
        )
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / f"paces.{split}.jsonl.zst", lines)


def _write(path: Path, lines: Sequence[str]) -> None:
    """Whole or not at all: several may be recording."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(zstandard.compress("\n".join(lines).encode(), 19))
    fresh.replace(path)


def _neutral(text: str, hidden: Mapping[str, str]) -> str:
    for name in sorted(hidden, key=len, reverse=True):
        text = text.replace(name, hidden[name])
    return text


def _thin(series: Series, at: Any) -> Series:
    count = len(series.steps)
    kept = range(count) if count <= POINTS else sorted({round(n * (count - 1) / (POINTS - 1)) for n in range(POINTS)})
    odd = replace(series.odd, at=at(series.odd.at)) if series.odd is not None else None
    return replace(
        series,
        steps=tuple(series.steps[place] for place in kept),
        values=tuple(_digits(series.values[place]) for place in kept),
        times=tuple(at(series.times[place]) for place in kept),
        odd=odd,
    )


def _last(lines: Sequence[Line]) -> list[Line]:
    """The last ones, and of stderr as many again."""
    errors = [line for line in lines if line.stream == "err"][-LINES:]
    kept = {id(line) for line in (*lines[-LINES:], *errors)}
    return [line for line in lines if id(line) in kept]


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


def _dense(told: dict[str, Any]) -> dict[str, Any]:
    """Steps and times as differences, and only once where several series have the same."""
    known: dict[str, int] = {}
    for place, series in enumerate(told.get("series", ())):
        ticks = [round((each - BEGIN) * TICKS) for each in series.pop("times")]
        columns = [_steps(series.pop("steps")), _steps(ticks)]
        key = json.dumps(columns)
        if key in known:
            series["as"] = known[key]
        else:
            known[key] = place
            series["steps"], series["times"] = columns
    return told


def _spread(told: dict[str, Any]) -> dict[str, Any]:
    for series in told.get("series", ()):
        if "as" in series:
            other = told["series"][series.pop("as")]
            series["steps"], series["times"] = other["steps"], other["times"]
        else:
            series["steps"] = _sums(series["steps"])
            series["times"] = [each / TICKS + BEGIN for each in _sums(series["times"])]
    return told


def _steps(values: Sequence[int]) -> list[int]:
    return [after - before for before, after in itertools.pairwise([0, *values])]


def _sums(values: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(values))
