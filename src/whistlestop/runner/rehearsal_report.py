"""What a rehearsal came to: the results compared bit by bit, what differs named, and told in words."""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import PurePath, PurePosixPath

from whistlestop.blobs.checkpoints import Checkpoint
from whistlestop.runner.rehearsal_process import Curves, Played

METRICS = "metrics"
# Times and paths in what frameworks write; none of it is state.
USUAL = ("*/training_args.bin", "*/training_args.bin/*", "*_runtime", "*_per_second")
_NAMED = 3  # leaves by name in one line
_SCHEDULE = {"last_epoch", "_last_lr", "_step_count"}


class Kind(StrEnum):
    NOT_REPEATABLE = "not repeatable"  # two straight runs differ in it: it is not seeded, or not deterministic
    NOT_RESTORED = "differs after the resume"  # straight runs agree, the resumed one differs


@dataclass(frozen=True)
class Difference:
    part: str  # a tracked part; "metrics" for what was logged
    leaf: str  # inside it; empty if the part is one leaf
    kind: Kind
    step: int | None = None  # of a metric: the first step at which it differs
    at: int | None = None  # the interruption after which it was seen
    note: str = ""


@dataclass(frozen=True)
class Report:
    same: bool
    steps: int
    at: tuple[int, ...]
    differences: list[Difference] = field(default_factory=list)
    parts: dict[str, int] = field(default_factory=dict)  # what was compared: leaves per part
    metrics: dict[str, int] = field(default_factory=dict)  # points per metric
    varying: list[str] = field(default_factory=list)  # metrics/NAME, PART/LEAF: differ, but act on nothing; not counted
    advice: list[str] = field(default_factory=list)
    problem: str = ""  # why there was nothing to compare
    text: str = ""  # all of it, for people


@dataclass(frozen=True)
class Outcome:
    """One line of runs at its end. Equal outcomes are equal bit by bit."""

    step: int
    leaves: Mapping[str, Mapping[str, str]]  # by part, by leaf
    curves: Mapping[str, Mapping[int, bytes]]
    note: str = field(default="", compare=False)

    @classmethod
    def of(cls, played: Played, ignore: Sequence[str]) -> "Outcome":
        ignore = (*USUAL, *ignore)
        leaves: dict[str, dict[str, str]] = {}
        for path, text in _digests(played.checkpoint).items():
            part, leaf = _split(path)
            if not any(fnmatchcase(path, pattern) for pattern in ignore):
                leaves.setdefault(part, {})[leaf] = text
        kept = {
            name: points
            for name, points in played.curves.items()
            if not any(fnmatchcase(f"{METRICS}/{name}", pattern) for pattern in ignore)
        }
        return cls(played.step, leaves, _bits(kept), played.note)


def failed(command: Sequence[str], steps: int, at: Sequence[int], problem: str) -> Report:
    text = f"The resume of {_shown(command)} could not be rehearsed.\n{problem}"
    return Report(False, steps, tuple(at), problem=problem, text=text)


def compare(
    command: Sequence[str], steps: int, first: Outcome, again: Outcome | None, resumed: Mapping[int, Outcome]
) -> Report:
    """`again` is the straight run repeated; None if the resumed ones are equal to the first."""
    at = tuple(resumed)
    if not first.leaves and not first.curves:
        return failed(
            command,
            steps,
            at,
            "It tracks nothing and logs nothing: there is nothing to compare, and nothing that a resume could go on "
            "from. Say run.track(model=..., optimizer=..., rng=True) before the loop.",
        )
    differences: list[Difference] = []
    unsteady: set[tuple[str, str]] = set()
    if again is not None:
        differences += _differences(first, again, Kind.NOT_REPEATABLE, None)
        unsteady = {(each.part, each.leaf) for each in differences}
        for point, outcome in resumed.items():
            found = _differences(first, outcome, Kind.NOT_RESTORED, point)
            differences += [each for each in found if (each.part, each.leaf) not in unsteady]
    varying: list[str] = []
    if _acts_on_nothing(first, differences):
        varying = [f"{each.part}/{each.leaf}" for each in differences if each.kind == Kind.NOT_REPEATABLE]
        differences = [each for each in differences if each.kind != Kind.NOT_REPEATABLE]
    advice = _advice(first, differences)
    report = Report(
        same=not differences,
        steps=steps,
        at=at,
        differences=differences,
        parts={part: len(leaves) for part, leaves in first.leaves.items()},
        metrics={name: len(points) for name, points in first.curves.items()},
        varying=varying,
        advice=advice,
    )
    notes = [each.note for each in (first, *resumed.values()) if each.note]
    return _with_text(report, command, notes)


def _digests(checkpoint: Checkpoint | None) -> dict[str, str]:
    if checkpoint is None:
        return {}
    digests = checkpoint.meta.get("digests")
    if isinstance(digests, dict) and digests:
        return {str(path): str(text) for path, text in digests.items()}
    # Of an SDK that does not hash by leaf, or files only: whole files.
    return {_part_of(name): entry.sha256 for name, entry in checkpoint.files.items()}


def _split(path: str) -> tuple[str, str]:
    """model/layer/weight is layer/weight of model; what each rank keeps for itself is a part of its own: rank-3/rng."""
    pieces = path.split("/")
    depth = 2 if re.fullmatch(r"rank-\d+", pieces[0]) and len(pieces) > 1 else 1
    return "/".join(pieces[:depth]), "/".join(pieces[depth:])


def _part_of(name: str) -> str:
    """parts/model.pickle is the part model; files/hf/state.json is state.json in the part hf."""
    top, _, rest = name.partition("/")
    if top == "parts" and rest.endswith(".pickle"):
        return rest.removesuffix(".pickle")
    return rest if top == "files" and rest else name


def _bits(curves: Curves) -> dict[str, dict[int, bytes]]:
    return {name: {step: struct.pack("<d", value) for step, value in points.items()} for name, points in curves.items()}


def _differences(first: Outcome, other: Outcome, kind: Kind, at: int | None) -> list[Difference]:
    found: list[Difference] = []
    if first.step != other.step:
        found.append(Difference("steps", "", kind, at=at, note=f"it ended at step {other.step}, not {first.step}"))
    for part in sorted({*first.leaves, *other.leaves}):
        mine, others = first.leaves.get(part, {}), other.leaves.get(part, {})
        for leaf in sorted({*mine, *others}, key=_natural):
            if mine.get(leaf) != others.get(leaf):
                note = "" if leaf in mine and leaf in others else "missing" if leaf in mine else "new"
                found.append(Difference(part, leaf, kind, at=at, note=note))
    for name in sorted({*first.curves, *other.curves}):
        one, two = first.curves.get(name, {}), other.curves.get(name, {})
        steps = [step for step in sorted({*one, *two}) if one.get(step) != two.get(step)]
        if steps:
            note = _values(one.get(steps[0]), two.get(steps[0]))
            found.append(Difference(METRICS, name, kind, step=steps[0], at=at, note=note))
    return found


def _acts_on_nothing(first: Outcome, differences: Sequence[Difference]) -> bool:
    """Whether what varies by itself is only measured (a time, a speed), or a random state that nobody seeded and
    nobody draws from: then all that is learned repeats itself."""
    learned = any(not _is_random(part, text) for part, leaves in first.leaves.items() for text in leaves.values())
    unsteady = [each for each in differences if each.kind == Kind.NOT_REPEATABLE]
    return learned and all(
        each.step is not None or _is_random(each.part, first.leaves.get(each.part, {}).get(each.leaf, ""))
        for each in unsteady
    )


def _is_random(part: str, text: str) -> bool:
    # The same word as in sdk.digests: this is how the hash of a random state begins.
    return part.rpartition("/")[2] == "rng" or text.startswith("random ")


def _values(one: bytes | None, two: bytes | None) -> str:
    return f"{_value(two)} instead of {_value(one)}"


def _value(bits: bytes | None) -> str:
    return "nothing" if bits is None else repr(struct.unpack("<d", bits)[0])


def _advice(first: Outcome, differences: Sequence[Difference]) -> list[str]:
    """Only what can be told from what was seen; what the script does besides, nobody knows."""
    lost = [each for each in differences if each.kind == Kind.NOT_RESTORED]
    if not first.leaves:
        return ["Nothing is tracked: only metrics were compared. Say run.track(...) or run.saves(...) before the loop."]
    if not lost:
        return []
    advice = []
    paths = [PurePosixPath(part, leaf) for part, leaves in first.leaves.items() for leaf in leaves]
    if not any(_is_random(part, text) for part, leaves in first.leaves.items() for text in leaves.values()):
        advice.append(
            "No random state is tracked. If the script draws random numbers (shuffling, dropout, noise), say "
            "run.track(..., rng=True), and track the generators that are its own."
        )
    optimizers = sorted({path.parts[0] for path in paths if "param_groups" in path.parts})
    if optimizers and not any(path.name in _SCHEDULE for path in paths):
        rate = any(each.leaf.endswith("/lr") and "param_groups" in each.leaf for each in lost)
        seen = "its learning rate differs after the resume" if rate else "if its learning rate has a schedule"
        advice.append(f"{optimizers[0]} is tracked without a schedule, and {seen}: say run.track(scheduler=...).")
    if all(each.step is not None for each in lost):
        advice.append(
            "Everything that is tracked comes back right; the metric needs something that is not tracked, or the "
            "order of the data in an evaluation."
        )
    return advice


def _with_text(report: Report, command: Sequence[str], notes: Sequence[str]) -> Report:
    where = " and ".join(map(str, report.at))
    lines = [f"{_shown(command)}: {report.steps} steps straight, and paused and resumed at step {where}", ""]
    width = max(map(len, (*report.parts, *report.metrics, "steps")))
    for mark, name, what in _rows(report):
        lines.append(f"{mark} {name:<{width}}  {what}")
    lines += ["", _verdict(report), *(f"  {advice}" for advice in report.advice), *notes]
    values = {name: getattr(report, name) for name in report.__dataclass_fields__}
    return Report(**{**values, "text": "\n".join(lines)})


def _rows(report: Report) -> list[tuple[str, str, str]]:
    rows = []
    states = [each for each in report.differences if each.step is None]
    for part in dict.fromkeys((*report.parts, *(each.part for each in states))):
        mine = [each for each in states if each.part == part]
        total = report.parts.get(part, 0)
        idle = [path.removeprefix(f"{part}/") for path in report.varying if path.startswith(f"{part}/")]
        if mine:
            rows.append(("✗", part, _told(mine, total)))
        elif idle:
            rows.append(("–" if len(idle) == total else "✓", part, _idle(idle, total)))
        else:
            rows.append(("✓", part, _same(total)))
    for name, points in report.metrics.items():
        found = next((each for each in report.differences if each.step is not None and each.leaf == name), None)
        if found is not None:
            rows.append(("✗", name, f"differs from step {found.step} on: {found.note}; {found.kind}"))
        elif f"{METRICS}/{name}" in report.varying:
            rows.append(("–", name, "differs from run to run without acting on the state: a measurement"))
        else:
            rows.append(("✓", name, f"same ({points} point{'s' if points != 1 else ''})"))
    new = [each for each in report.differences if each.step is not None and each.leaf not in report.metrics]
    return rows + [("✗", each.leaf, f"logged only from step {each.step} on; {each.kind}") for each in new]


def _same(total: int) -> str:
    return "same" if total == 1 else f"same ({total} leaves)"


def _idle(names: Sequence[str], total: int) -> str:
    unseeded = f"{', '.join(names)} not seeded, and nothing that is tracked depends on it".removeprefix(" ")
    return unseeded if len(names) == total else f"{_same(total - len(names))}; {unseeded}"


def _told(found: Sequence[Difference], total: int) -> str:
    kinds = " and ".join(dict.fromkeys(each.kind.value for each in found))
    leaves = list(dict.fromkeys(f"{each.leaf} ({each.note})" if each.note else each.leaf for each in found))
    named = ", ".join(leaves[:_NAMED]) + (f" and {len(leaves) - _NAMED} more" if len(leaves) > _NAMED else "")
    if total <= 1:
        return f"differs; {kinds}" + (f": {named.strip()}" if named.strip() else "")
    return f"{len(leaves)} of {total} differ: {named}; {kinds}"


def _verdict(report: Report) -> str:
    if report.same:
        return "The resumed run is the same as the uninterrupted one, bit by bit."
    unsteady = _names(report, Kind.NOT_REPEATABLE)
    lost = _names(report, Kind.NOT_RESTORED)
    if unsteady:
        verdict = (
            f"Not repeatable: two uninterrupted runs already differ in {unsteady}. Something is not seeded, or not "
            "deterministic; seed it, then rehearse again."
        )
        return verdict + (f" Only after the resume: {lost}." if lost else "")
    verdict = f"Not exact: the script repeats itself exactly, but not after a resume: {lost}."
    steps = [each for each in report.differences if each.step is not None]
    if steps:
        first = min(steps, key=lambda each: each.step or 0)
        verdict += f" It shows first in {first.leaf}, at step {first.step}."
    return verdict + " Something that the script needs is not in its checkpoint, or is not loaded from it."


def _names(report: Report, kind: Kind) -> str:
    found = [each for each in report.differences if each.kind == kind]
    return ", ".join(dict.fromkeys(each.leaf if each.step is not None else each.part for each in found))


def _natural(leaf: str) -> list[tuple[int, int, str]]:
    """layers/2 before layers/10."""
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in leaf.split("/")]


def _shown(command: Sequence[str]) -> str:
    scripts = [word for word in command if word.endswith(".py")]
    return PurePath(scripts[0]).name if scripts else " ".join(command)[:80]
