"""Signals: which one ended it, whether it came from inside, and what a launcher says of one that ended its child."""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from whistlestop.diagnosis.evidence import End, Evidence, Line
from whistlestop.diagnosis.findings import Cause
from whistlestop.diagnosis.tracebacks import Frame, plain

_INSIDE = {
    "SIGSEGV": "it touched memory that is not its own",
    "SIGABRT": "it gave up by itself, as native code does",
    "SIGBUS": "it touched memory that is not there",
    "SIGILL": "it has an instruction that this processor does not know",
    "SIGFPE": "a division by zero in native code",
    "SIGTRAP": "it ran into a trap",
    "SIGSYS": "it called what it may not",
}
_NUMBERS = {each.value: each.name for each in signal.Signals}
_FATAL = re.compile(r"^Fatal Python error: (.+)")
_STACK = re.compile(r'^\s*File "(.+?)", line (\d+),? in (\S+)')
_CHILD = re.compile(
    r"(?:Signal (\d+) \(SIG\w+\) received|exitcode\s*: -(\d+)|terminated with signal (SIG\w+)"
    r"|killed by signal: (\w[\w ]*)"
    r"|died with <Signals\.(SIG\w+)|returned non-zero exit status -(\d+))"
)
_WORDS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
    "Killed": "SIGKILL",
    "Terminated": "SIGTERM",
}
_DIED = re.compile(r"rank ([\d, ]+) died first")


@dataclass(frozen=True)
class Sent:
    name: str

    @property
    def inside(self) -> bool:
        """By the program itself."""
        return self.name in _INSIDE

    @property
    def says(self) -> str:
        return _INSIDE.get(self.name, "")


def of(end: End) -> Sent | None:
    """By the kernel's word, or by the code that a shell makes of it."""
    name = _name(str(end.signal)) if end.signal is not None else ""
    if not name and end.exit_code is not None and 128 < end.exit_code < 160:
        name = _NUMBERS.get(end.exit_code - 128, "")
    return Sent(name) if name else None


def of_child(lines: Sequence[Line]) -> tuple[Cause, float, str] | None:
    """What ended the process that a launcher, or a loader, waited for; the first one that is told of."""
    for line in lines[-60:]:
        text = plain(line)[1]
        found = _CHILD.search(text)
        bare = next(
            (name for words, name in _WORDS.items() if re.search(rf"\b{words}\b\s*(?:\(core dumped\))?\s*$", text)), ""
        )
        name = _name(next((part for part in found.groups() if part), "")) if found else bare
        if not name:
            continue
        if Sent(name).inside:
            return Cause.CRASHED, 0.9, text.strip()
        if name == "SIGKILL":
            return Cause.KILLED_OUTSIDE, 0.75, text.strip()
    return None


def shared_memory_left(evidence: Evidence) -> str:
    """Shared memory that nobody gave back, or processes that shared it and outlived it: with a bus error, there was too
    little of it."""
    leaked = (line.text for line in reversed(evidence.lines[-60:]) if "leaked shared_memory" in line.text)
    outlived = (each.text for each in reversed(evidence.told) if each.kind == "leftovers")
    return next(leaked, "") or next(outlived, "")


def crashed_in(lines: Sequence[Line]) -> Frame | None:
    """Where it was, as faulthandler tells: the newest call comes first."""
    began = next((at for at in range(len(lines) - 1, -1, -1) if _FATAL.match(plain(lines[at])[1])), None)
    if began is None:
        return None
    frames = [_STACK.match(plain(line)[1]) for line in lines[began : began + 60]]
    found = [Frame(each[1], int(each[2]), each[3]) for each in frames if each]
    return next((frame for frame in found if frame.own), found[0] if found else None)


def first_rank(evidence: Evidence, end: End) -> int | None:
    """The one that ended first, as the SDK saw it."""
    found = _DIED.search(end.text)
    if found:
        return int(found[1].split(",")[0])
    for told in evidence.told:
        rank = told.data.get("rank")
        if told.data.get("kind") == "rank_died" and isinstance(rank, int):
            return rank
    return None


def _name(said: str) -> str:
    said = _WORDS.get(said.strip(), said.strip())
    if said.lstrip("-").isdigit():
        return _NUMBERS.get(abs(int(said)), "")
    said = said.upper()
    said = said if said.startswith("SIG") else f"SIG{said}"
    return said if said in signal.Signals.__members__ else ""
