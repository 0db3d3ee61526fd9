"""Log lines on the terminal: colours of the program are kept, anything that could steer the terminal is not."""

import os
import re
import sys
from typing import TYPE_CHECKING

from whistlestop.cli import words

if TYPE_CHECKING:
    from whistlestop.wire.api import LogLineView

_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_STEERS = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LEVELS = {"warning": "33", "error": "31"}


def colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def tame(text: str, *, coloured: bool) -> str:
    parts = _COLOUR.split(text)
    clean = [_STEERS.sub("", part) for part in parts]
    if not coloured:
        return "".join(clean)
    kept = _COLOUR.findall(text)
    ending = "\x1b[0m" if kept else ""
    return "".join(part + (kept[at] if at < len(kept) else "") for at, part in enumerate(clean)) + ending


def full_line(line: "LogLineView", *, coloured: bool) -> str:
    """22:01:07 train/1 text"""
    rank = f":{line.rank}" if line.rank else ""
    head = f"{words.local_time(line.at, date=False)} {line.phase}/{line.attempt}{rank}"
    text = ("whistle: " if line.stream == "sys" else "") + tame(line.text, coloured=coloured)
    if not coloured:
        return f"{head} {text}"
    tint = _LEVELS.get(line.level)
    return f"\x1b[2m{head}\x1b[0m " + (f"\x1b[{tint}m{text}\x1b[0m" if tint else text)


def print_as_program(line: "LogLineView") -> None:
    """As if the program ran here: its output is ours, its errors are ours."""
    target = sys.stdout if line.stream == "out" else sys.stderr
    mark = "whistle: " if line.stream == "sys" else ""
    print(mark + tame(line.text, coloured=target.isatty() and not os.environ.get("NO_COLOR")), file=target, flush=True)
