"""`python -m whistlestop.testing.score_cases`: how often the diagnosis is right on the recorded cases, by cause, for
those that rules were tuned on and for the held-out ones apart."""

import argparse
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from whistlestop.diagnosis.evidence import Evidence
from whistlestop.diagnosis.findings import Weight
from whistlestop.diagnosis.judge import judge
from whistlestop.diagnosis.recording import cut
from whistlestop.testing.case_library import Case, load
from whistlestop.testing.case_plans import HEALTHY, SPLITS

RECORDED = Path("tests/cases/recorded")
EARLIER = (0.4, 0.75)  # parts of a healthy run at which it is looked at too, while it runs
NOTHING = "nothing"


@dataclass(frozen=True)
class Verdict:
    """What was found in one case: of a faulty one the first cause, of a healthy one its worst view."""

    case: Case
    found: str  # a Cause, or nothing
    says: str = ""
    view: str = "recorded"

    @property
    def right(self) -> bool:
        return self.found == (NOTHING if self.case.label == HEALTHY else self.case.label)


def verdicts(cases: Iterable[Case]) -> list[Verdict]:
    return [_of_healthy(case) if case.label == HEALTHY else _of_faulty(case) for case in cases]


def share_right(found: Sequence[Verdict], split: str, *, replayed: bool | None = None) -> float:
    """Of the faulty ones."""
    some = [each for each in found if each.case.split == split and each.case.label != HEALTHY]
    some = [each for each in some if replayed is None or each.case.replayed is replayed]
    return sum(each.right for each in some) / max(1, len(some))


def share_alarmed(found: Sequence[Verdict], split: str) -> float:
    """Of the healthy ones."""
    some = [each for each in found if each.case.split == split and each.case.label == HEALTHY]
    return sum(not each.right for each in some) / max(1, len(some))


def _of_faulty(case: Case) -> Verdict:
    found = judge(case.evidence)
    return Verdict(case, found[0].cause, found[0].says) if found else Verdict(case, NOTHING)


def _of_healthy(case: Case) -> Verdict:
    """As it was recorded and at earlier times: whatever is fatal or bad at any of them is a false alarm."""
    for view, evidence in _views(case.evidence):
        alarms = [each for each in judge(evidence) if each.weight is not Weight.HINT]
        if alarms:
            return Verdict(case, alarms[0].cause, alarms[0].says, view)
    return Verdict(case, NOTHING)


def _views(evidence: Evidence) -> Iterator[tuple[str, Evidence]]:
    yield "recorded", evidence
    times = sorted(at for series in evidence.series if series.kind == "program" for at in series.times)
    newest = evidence.place.started_at  # an earlier attempt can't be looked at again: its place is not known
    times = [at for at in times if at >= newest]
    for part in EARLIER if len(times) > 4 else ():
        yield f"at {part:.0%}", cut(evidence, times[int(part * (len(times) - 1))])


def table(found: Sequence[Verdict]) -> str:
    """As Markdown: by split and label how many, how many right, precision and recall, and what was said instead."""
    lines = []
    for split in SPLITS:
        mine = [each for each in found if each.case.split == split]
        faulty = [each for each in mine if each.case.label != HEALTHY]
        healthy = [each for each in mine if each.case.label == HEALTHY]
        real = [each for each in faulty if not each.case.replayed]
        lines += [
            f"## {split.replace('_', ' ')}",
            "",
            f"Right first cause: {_share(faulty)} of the faulty ones, {_share(real)} without the replayed ones.",
            f"False alarms: {sum(not each.right for each in healthy)} of {len(healthy)} healthy ones.",
            "",
            "| label | cases | replayed | right | recall | precision | instead |",
            "|---|---:|---:|---:|---:|---:|---|",
        ]
        for label in sorted({each.case.label for each in mine}, key=lambda label: (label == HEALTHY, label)):
            lines.append(_row(label, mine))
        lines.append("")
    return "\n".join(lines)


def _row(label: str, mine: Sequence[Verdict]) -> str:
    some = [each for each in mine if each.case.label == label]
    right = sum(each.right for each in some)
    said = NOTHING if label == HEALTHY else label
    claimed = [each for each in mine if each.found == said]
    precise = sum(each.right for each in claimed) / len(claimed) if claimed else 0.0
    instead = Counter(each.found for each in some if not each.right)
    words = ", ".join(f"{name} {count}" for name, count in instead.most_common())
    replayed = sum(each.case.replayed for each in some)
    return f"| {label} | {len(some)} | {replayed} | {right} | {right / len(some):.0%} | {precise:.0%} | {words} |"


def _share(some: Sequence[Verdict]) -> str:
    right = sum(each.right for each in some)
    return f"{right} of {len(some)} ({right / max(1, len(some)):.1%})"


def mistakes(found: Sequence[Verdict]) -> list[str]:
    return [
        f"{each.case.name}: found {each.found} ({each.view}) {each.says}".rstrip() for each in found if not each.right
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, default=RECORDED)
    parser.add_argument("--split", choices=SPLITS, help="one half only; who tunes rules looks at tuning alone")
    parser.add_argument("--mistakes", action="store_true", help="name every case that was judged wrongly")
    parser.add_argument("--write", type=Path, help="a Markdown file, as bench/results has them")
    chosen = parser.parse_args()
    found = verdicts(load(chosen.cases, chosen.split))
    text = table(found)
    print(text)
    if chosen.mistakes:
        print(*mistakes(found), sep="\n")
    if chosen.write is not None:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        head = [
            "# Diagnosis on the recorded cases",
            "",
            f"`python -m whistlestop.testing.score_cases --write …` at {commit.stdout.strip()}, Python "
            f"{platform.python_version()}. Healthy runs count as alarmed if anything fatal or bad is said of them at "
            "their end, or when 40 % or 75 % of their points are there.",
            "",
        ]
        chosen.write.write_text("\n".join(head) + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
