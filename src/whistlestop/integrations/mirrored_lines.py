"""Metrics in what a program prints: lines are put together from what is written to sys.stdout and sys.stderr."""

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from re import Pattern
from typing import Any

from whistlestop.domain.errors import BadRequest
from whistlestop.integrations.mirror_target import say_once

Reader = Callable[[str], tuple[int | None, dict[str, float]] | None]
Tell = Callable[[str, Any, Mapping[str, Any]], None]  # source, step or None, values

_LONGEST = 10_000  # characters; longer lines are data, not words, and patterns may take very long on them
_MOST_PIECES = 1000
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|nan|inf(?:inity)?)"
_PAIR = re.compile(rf"(?<![\w.])([a-z_][\w./-]*)=({_NUMBER})(?![\w.])", re.IGNORECASE)
_ITEM = re.compile(rf"""['"]([^'"]+)['"]: ['"]?({_NUMBER})['"]?(?=[,}}])""", re.IGNORECASE)
_COUNT = (
    r"\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:_\d+)*"  # 1,000 and 1_000 too, but the comma in `step=3, loss=1` is none of it
)
_STEP = re.compile(rf"\b(?:global_?step|step|iteration|iter)s?\b['\"]?[=: ]+({_COUNT})", re.IGNORECASE)
_STEP_NAMES = frozenset({"step", "global_step", "globalstep", "iteration", "iter"})
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ENDS = re.compile(r"(\r\n|[\r\n])")


def reader(pattern: str | Pattern[str]) -> Reader:
    """What finds the metrics of a line. BadRequest says what is wrong with the pattern."""
    if pattern == "key=value":
        return lambda line: _all_of(_PAIR, line)
    if pattern == "huggingface":  # {'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 1.0}
        return lambda line: _all_of(_ITEM, line) if line.lstrip().startswith("{") and "}" in line else None
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise BadRequest(
            f"lines={pattern!r} is no regular expression ({error}); ready ones are 'key=value' and 'huggingface'"
        ) from error
    if not set(compiled.groupindex) - {"step"}:
        raise BadRequest(f"lines={compiled.pattern!r} names no metric: give each one a group, as in (?P<loss>\\S+)")
    return lambda line: _groups(compiled, line)


def _all_of(pattern: Pattern[str], line: str) -> tuple[int | None, dict[str, float]] | None:
    values = {name: float(value) for name, value in pattern.findall(line) if name.lower() not in _STEP_NAMES}
    step = _STEP.search(line)
    return (int(step[1].replace(",", "")) if step else None, values) if values else None


def _groups(pattern: Pattern[str], line: str) -> tuple[int | None, dict[str, float]] | None:
    match = pattern.search(line)
    if match is None:
        return None
    found = {}
    for name, text in match.groupdict().items():
        try:
            found[name] = float(text.rstrip(",;:)]}|%").replace(",", ""))
        except (ValueError, AttributeError):  # a word, or a group that took no part
            continue
    step = found.pop("step", None)
    return (None if step is None else int(step), found) if found else None


# --- watching ---------------------------------------------------------------------------------------------------------


class _Listener:
    def __init__(self, key: str, read: Reader, tell: Tell) -> None:
        self._key, self._read, self._tell = key, read, tell
        self._last: tuple[int | None, dict[str, float]] | None = None

    def line(self, text: str, *, redrawn: bool) -> None:
        """A progress bar writes the same again and again: that is one point."""
        found = self._read(text)
        if found is None or (found == self._last and (redrawn or found[0] is not None)):
            return
        self._last = found
        self._tell(self._key, *found)


class _Stream:
    """Puts its own `write` over that of a stream. The stream stays the same object, for those who keep it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._process = os.getpid()
        self._turn = threading.RLock()
        self._on = True
        self._busy = 0  # the thread that tells a line
        self._pieces: list[str] = []  # of a line that has not ended
        self._mark = "\n"  # what ended the line before
        self._before = vars(stream).get("write")
        self._original = stream.write
        stream.write = self.write

    def write(self, text: str, /) -> Any:
        answer = self._original(text)
        # What is written while a line is being told is our own word, or that of a signal handler in between.
        if self._on and self._busy != threading.get_ident():
            try:
                self._pieces.append(text)  # print() writes word by word: only the end of a line is looked at closer
                if "\n" in text or "\r" in text or len(self._pieces) > _MOST_PIECES:
                    self._take()
            except Exception:
                pass
        return answer

    def _take(self) -> None:
        # A forked child has no part in it, and our lock may be with a thread that is not there.
        if os.getpid() != self._process:
            self._pieces.clear()
            return
        with self._turn:
            self._busy = threading.get_ident()
            try:
                count = len(self._pieces)
                *lines, rest = _ENDS.split("".join(self._pieces[:count]))
                self._pieces[:count] = [rest[: _LONGEST + 1]]
                for line, mark in zip(lines[::2], lines[1::2], strict=True):
                    # A bar returns to the beginning before it is drawn again, and goes to the next line at its end.
                    _hear(line, redrawn="\r" in (mark, self._mark))
                    self._mark = mark
            finally:
                self._busy = 0

    def end(self) -> None:
        """If somebody has put theirs over ours meanwhile, ours stays below it and only passes on."""
        self._on = False
        _hear("".join(self._pieces), redrawn=True)
        self._pieces.clear()
        if vars(self.stream).get("write") != self.write:
            return
        if self._before is None:
            del self.stream.write
        else:
            self.stream.write = self._before


def _hear(line: str, *, redrawn: bool) -> None:
    if not line or len(line) > _LONGEST:
        return
    if "\x1b" in line:
        line = _COLOURS.sub("", line)
    for listener in tuple(_listeners.values()):
        listener.line(line, redrawn=redrawn)


_listeners: dict[str, _Listener] = {}
_streams: list[_Stream] = []


def begin(key: str, read: Reader, tell: Tell) -> None:
    _listeners.setdefault(key, _Listener(key, read, tell))
    watched = [each.stream for each in _streams]
    for stream in (sys.stdout, sys.stderr):
        if stream is None or any(stream is each for each in watched):
            continue
        try:
            _streams.append(_Stream(stream))
        except (AttributeError, TypeError):
            say_once("mirror: this stream's lines can't be watched, it takes no other write()")


def end(key: str) -> None:
    if len(_listeners) == 1:
        for stream in _streams:
            stream.end()
        _streams.clear()
    _listeners.pop(key, None)
