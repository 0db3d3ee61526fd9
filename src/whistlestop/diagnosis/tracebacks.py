"""Python's tracebacks out of log lines: who raised what where, and what followed from it. Of every rank apart."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from whistlestop.diagnosis.evidence import Line

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK = re.compile(r"^\[(?:rank|default|trainer|worker)?(\d+)\]:\s?")  # torch's, torchrun's
_RAY = re.compile(r"^\([^()]*pid=\d+[^()]*\)\s?")
_GROUP = re.compile(r"^\s*(?:\| ?)+")
_HEAD = "Traceback (most recent call last)"
_FRAME = re.compile(r'^\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:,? in (?P<name>.+))?\s*$')
_RICH = re.compile(r"^\s*│\s+(?P<file>/?[^\s:]+\.py):(?P<line>\d+) in (?P<name>\S+)")
_RAISED = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::\s?(?P<message>.*))?$")
_LIKELY = re.compile(
    r"(?:[Ee]rror|Exception|Interrupt|Exit|Failure|Fault|Warning|Group|Stop|[Tt]imeout|Refused|Mandatory\w*)$"
)
_LINK = {
    "During handling of the above exception": "handling",
    "The above exception was the direct cause": "cause",
}
# Said before a traceback that ends nothing.
_IGNORED = ("Exception ignored in", "--- Logging error ---", "Error in atexit", "Error in sys.excepthook")
_ASIDE = re.compile(r"^Exception in thread |Task exception was never retrieved|^Future exception was never retrieved")
_NOT_OWN = re.compile(
    r"site-packages|dist-packages|/lib/python3|lib\\python|^<(?:frozen|string|__array)|/whistlestop/(?:sdk|integrations)/"
    r"|/runpy\.py$|/multiprocessing/|/torch/(?:nn|utils|distributed)/|/importlib/"
)
_WIDE = 6  # lines of a message that has several


@dataclass(frozen=True)
class Frame:
    file: str
    line: int
    name: str = ""
    code: str = ""

    @property
    def own(self) -> bool:
        """Of the user's program, as far as a path can tell."""
        return _NOT_OWN.search(self.file) is None

    def __str__(self) -> str:
        place = f"{self.file.rsplit('/', 1)[-1]}:{self.line}" + (f" in {self.name}" if self.name else "")
        return f"{place}: {self.code}" if self.code else place


class Aside(StrEnum):
    NO = "no"
    THREAD = "thread"  # of a thread: the program goes on without it, or is ended by what it leaves undone
    IGNORED = "ignored"  # Python said itself that nothing comes of it


@dataclass(frozen=True)
class Raised:
    """One exception of a chain."""

    type: str
    message: str
    frames: tuple[Frame, ...] = ()
    more: tuple[str, ...] = ()  # lines of the message behind its first
    link: str = ""  # what it has to do with the one before it: "", handling or cause
    rank: int = 0
    at: float = 0.0
    place: int = 0  # of its last line among all
    aside: Aside = Aside.NO

    @property
    def name(self) -> str:
        return self.type.rsplit(".", 1)[-1]

    @property
    def text(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def whole(self) -> str:
        return "\n".join((self.text, *self.more))

    @property
    def own(self) -> Frame | None:
        """The user's own line that led to it; else the last one of all."""
        return next((frame for frame in reversed(self.frames) if frame.own), self.frames[-1] if self.frames else None)


@dataclass
class _Reading:
    """One stream of one rank."""

    rank: int
    frames: list[Frame] | None = None  # None: in no traceback
    link: str = ""
    aside: Aside = Aside.NO
    done: Raised | None = None  # its message may go on
    chain: list[Raised] = field(default_factory=list)


def plain(line: Line) -> tuple[int, str]:
    """The rank that said it, and what, without what launchers put before it."""
    text = _COLOUR.sub("", line.text) if "\x1b" in line.text else line.text
    text = _RAY.sub("", text) if text.startswith("(") else text
    found = _RANK.match(text) if text.startswith("[") else None
    return (int(found[1]), text[found.end() :]) if found else (line.rank, text)


def chains(lines: Sequence[Line]) -> list[tuple[Raised, ...]]:
    """All of them in the order of their ends: in each the first exception first."""
    found = list[tuple[Raised, ...]]()
    readings = dict[tuple[int, str], _Reading]()
    for place, line in enumerate(lines):
        rank, text = plain(line)
        reading = readings.setdefault((rank, line.stream), _Reading(rank))
        found += _read(reading, text, line.at, place)
    for reading in readings.values():
        found += _close(reading)
    return sorted(found, key=lambda chain: chain[-1].place)


def _read(reading: _Reading, text: str, at: float, place: int) -> Iterator[tuple[Raised, ...]]:
    link = next((link for words, link in _LINK.items() if words in text), "")
    if link:
        _settle(reading)
        reading.link = link
    elif _HEAD in text:
        _settle(reading)
        if reading.chain and not reading.link and "Original Traceback" not in text:
            yield from _close(reading)
        reading.frames = []
    elif text.startswith(_IGNORED) or _ASIDE.search(text):
        yield from _close(reading)
        reading.aside = Aside.IGNORED if text.startswith(_IGNORED) else Aside.THREAD
    elif reading.frames is not None:
        _inside(reading, reading.frames, text, at, place)
    elif reading.done is not None:
        _goes_on(reading, text)
    elif _FRAME.match(text) and text.startswith("  File"):  # a SyntaxError of the program itself has no head
        yield from _close(reading)
        reading.frames = []
        _inside(reading, reading.frames, text, at, place)


def _inside(reading: _Reading, frames: list[Frame], text: str, at: float, place: int) -> None:
    text = _GROUP.sub("", text) if text.lstrip().startswith("|") else text
    frame = _FRAME.match(text) or _RICH.match(text)
    if frame:
        frames.append(Frame(frame["file"], int(frame["line"]), frame["name"] or ""))
    elif text.startswith((" ", "\t", "│", "╭", "╰")) or not text.strip():
        code = text.strip(" │\t")
        if frames and not frames[-1].code and code and not set(code) <= set("^~ "):
            frames[-1] = replace(frames[-1], code=code[:200])
    else:
        raised = _RAISED.match(text)
        if raised and (_LIKELY.search(raised["type"]) or raised["type"].rsplit(".", 1)[-1][:1].isupper()):
            reading.done = Raised(
                raised["type"], (raised["message"] or "").strip(), tuple(frames), (), reading.link, reading.rank, at,
                place, reading.aside,
            )  # fmt: skip
            reading.frames, reading.link = None, ""


def _goes_on(reading: _Reading, text: str) -> None:
    done = reading.done
    if done is None:
        return
    if len(done.more) >= _WIDE:
        _settle(reading)
    elif text.strip():
        reading.done = replace(done, more=(*done.more, text.strip()))


def _settle(reading: _Reading) -> None:
    if reading.done is not None:
        reading.chain.append(reading.done)
        reading.done = None


def _close(reading: _Reading) -> Iterable[tuple[Raised, ...]]:
    _settle(reading)
    chain, reading.chain = tuple(reading.chain), []
    reading.frames, reading.link, reading.aside = None, "", Aside.NO
    return (chain,) if chain else ()
