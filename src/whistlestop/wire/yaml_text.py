"""YAML in and out, for files that strangers wrote: bounded in size, depth and expansion, no tags, line numbers kept.

Not a general YAML library: values are null, bool, number, string, list and mapping with string keys.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from whistlestop.wire.mistakes import Mistakes, shown

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16
MAX_WEIGHT = 600_000  # characters after the aliases are expanded, and _NEST for each value: some 12,000 values
_NEST = 48

Scalar = None | bool | int | float | str

CONTROL = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INT = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Mapping[str, Scalar] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".inf": math.inf, ".Inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan, ".NaN": math.nan,
}  # fmt: skip


@dataclass(frozen=True)
class Node:
    """One value and its place. Nodes are shared by aliases, so nothing ever changes one."""

    value: "Scalar | list[Node] | dict[str, Node]"
    line: int | None = None
    raw: str = ""  # a scalar as it was written: 1e-3 stays 1e-3
    depth: int = 0
    weight: int = _NEST


def scalar(raw: str, line: int | None = None, *, plain: bool = True) -> Node:
    return Node(resolve(raw) if plain else raw, line, raw, 0, _NEST + len(raw))


def listing(items: list[Node], line: int | None = None) -> Node:
    return Node(items, line, "", *_extent(items))


def mapping(items: dict[str, Node], line: int | None = None) -> Node:
    return Node(items, line, "", *_extent(list(items.values())))


def _extent(nodes: list[Node]) -> tuple[int, int]:
    return 1 + max((node.depth for node in nodes), default=0), _NEST + sum(node.weight for node in nodes)


def resolve(raw: str) -> Scalar:
    """A plain scalar in YAML 1.2: `yes`, `on` and dates are words. A number that is too large becomes infinite."""
    if raw in _WORDS:
        return _WORDS[raw]
    if _INT.fullmatch(raw):
        if len(raw) > 20:
            return -math.inf if raw.startswith("-") else math.inf
        return int(raw, 0) if raw[:2] in ("0x", "0o") else int(raw)
    if _FLOAT.fullmatch(raw):
        return float(raw) if len(raw) < 400 else math.inf
    return raw


def plain(node: Node) -> Any:
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    return node.value


# --- reading ---------------------------------------------------------------------------------------------------


def read(text: str, mistakes: Mistakes) -> Node | None:
    """The tree of the one document in `text`. None: the text can't be read at all, and `mistakes` says why."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        mistakes.add("", f"the file is larger than {MAX_BYTES // 1024} KiB", hint="keep data out of the spec")
        return None
    text = text.removeprefix("\ufeff")
    if odd := CONTROL.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        mistakes.add("", f"character {odd.group()!r} is not allowed", line=line, hint="is this a text file?")
        return None
    try:
        return _Builder(mistakes).document(_events(text))
    except _Unreadable as unreadable:
        mistakes.add("", str(unreadable), line=unreadable.line, hint=unreadable.hint)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(shown(part, 120) for part in (error.context, error.problem) if part)
        mistakes.add("", f"this is not YAML: {words or 'unreadable'}", line=mark.line + 1 if mark else None)
    except YAMLError as error:
        mistakes.add("", f"this is not YAML: {shown(error, 120)}")
    except Exception as error:
        # The scanner raises whatever it trips over (ValueError on \U99999999, AssertionError, IndexError …).
        mistakes.add("", f"this is not YAML: {shown(error, 120) or type(error).__name__}")
    return None


class _Unreadable(Exception):
    def __init__(self, text: str, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(text)
        self.line, self.hint = line, hint


def _events(text: str) -> Iterator[Any]:
    return iter(YAML(typ="safe", pure=True).parse(text))


class _Builder:
    """Builds nodes from events, so that depth and expansion are bounded before anything is built."""

    def __init__(self, mistakes: Mistakes) -> None:
        self.mistakes = mistakes
        self.anchors: dict[str, Node] = {}
        self.written = 0

    def document(self, events: Iterator[Any]) -> Node:
        root: Node | None = None
        for event in events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    raise _Unreadable("there is more than one document (`---`)", _line(event), "keep the first")
                root = self.node(next(events), events, "", 0)
        return root if root is not None else scalar("", 1)

    def node(self, event: Any, events: Iterator[Any], path: str, depth: int) -> Node:
        line = _line(event)
        if depth > MAX_DEPTH:
            raise _Unreadable(f"nested deeper than {MAX_DEPTH} levels", line)
        if isinstance(event, AliasEvent):
            known = self.anchors.get(str(event.anchor))
            if known is None:
                raise _Unreadable(f"*{shown(event.anchor)} has no anchor above it", line)
            self.count(known.weight, depth + known.depth, line)
            return known
        if event.tag is not None and str(event.tag) != "!":
            self.mistakes.add(path, f"tags such as {shown(event.tag)} are not allowed", line=line)
        node = self.value(event, events, path, depth)
        if event.anchor is not None:
            self.anchors[str(event.anchor)] = node
        return node

    def value(self, event: Any, events: Iterator[Any], path: str, depth: int) -> Node:
        line = _line(event)
        if isinstance(event, ScalarEvent):
            raw = str(event.value)
            self.count(_NEST + len(raw), depth, line)
            if odd := CONTROL.search(raw):
                self.mistakes.add(path, f"character {odd.group()!r} is not allowed", line=line)
            return scalar(raw, line, plain=event.style in (None, ""))
        self.count(_NEST, depth, line)
        if isinstance(event, SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(event := next(events), SequenceEndEvent):
                items.append(self.node(event, events, _join(path, len(items)), depth + 1))
            return listing(items, line)
        assert isinstance(event, MappingStartEvent)
        return self.pairs(events, path, depth, line)

    def pairs(self, events: Iterator[Any], path: str, depth: int, line: int) -> Node:
        pairs: dict[str, Node] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            key_line = _line(event)
            key = self.node(event, events, path, depth + 1)
            name = key.value if isinstance(key.value, str) else None
            value = self.node(next(events), events, _join(path, shown(key.raw)), depth + 1)
            if name is None:
                what = f"{shown(key.raw)} is not a word" if key.raw else "a key must be a word"
                self.mistakes.add(path, what, line=key_line, hint="keys are words; put it in quotes")
            elif name in pairs:
                self.mistakes.add(_join(path, shown(name)), f"given twice, first in line {lines[name]}", line=key_line)
            else:
                # A mistake in a value is shown at its key: that is where people look.
                pairs[name], lines[name] = replace(value, line=key_line), key_line
        return mapping(pairs, line)

    def count(self, weight: int, depth: int, line: int) -> None:
        self.written += weight
        if self.written > MAX_WEIGHT:
            raise _Unreadable("too many values, or aliases that expand without end", line)
        if depth > MAX_DEPTH:
            raise _Unreadable(f"nested deeper than {MAX_DEPTH} levels", line)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _join(path: str, part: str | int) -> str:
    return f"{path}.{part}" if path else str(part)


# --- writing ---------------------------------------------------------------------------------------------------

_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./@%+=~^-]*(?: [A-Za-z0-9_./@%+=~^-]+)*")


def write(value: Node | Mapping[str, Any]) -> str:
    """Text that `read` reads back as the same values."""
    return "\n".join(_lines(value if isinstance(value, Node) else _node(value))) + "\n"


def _node(value: Any) -> Node:
    if isinstance(value, Mapping):
        return mapping({str(key): _node(item) for key, item in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return listing([_node(item) for item in value])
    if isinstance(value, str):
        return scalar(value, plain=False)
    return scalar("null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value))


def _lines(node: Node) -> list[str]:
    if isinstance(node.value, dict) and node.value:
        return [line for key, item in node.value.items() for line in _entry(f"{string(key)}:", item)]
    if isinstance(node.value, list) and node.value:
        return [line for item in node.value for line in _item(item)]
    return [flow(node)]


def _entry(key: str, item: Node) -> list[str]:
    if isinstance(item.value, dict | list) and item.value:
        return [key, *("  " + line for line in _lines(item))]
    if isinstance(item.value, str) and is_block(item.value):
        return [f"{key} {_chomp(item.value)}", *_block(item.value)]
    return [f"{key} {flow(item)}"]


def _item(item: Node) -> list[str]:
    if isinstance(item.value, str) and is_block(item.value):
        return [f"- {_chomp(item.value)}", *_block(item.value)]
    if isinstance(item.value, list) and item.value:
        return ["-", *("  " + line for line in _lines(item))]
    first, *rest = _lines(item)
    return [f"- {first}", *("  " + line for line in rest)]


def flow(node: Node) -> str:
    """In one line."""
    if isinstance(node.value, dict):
        return "{" + ", ".join(f"{string(key)}: {flow(item)}" for key, item in node.value.items()) + "}"
    if isinstance(node.value, list):
        return "[" + ", ".join(flow(item) for item in node.value) + "]"
    if isinstance(node.value, str):
        return string(node.value)
    return node.raw or "null"


def is_block(text: str) -> bool:
    """A script of several lines reads best as a `|` block; anything delicate is quoted instead."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and bool(lines[0].strip())
        and bool(lines[-1].strip())
        and not lines[0].startswith(" ")
        and all(re.fullmatch(r"[ -~\xa1-\ud7ff]*", line) for line in lines)
        and "\u2028" not in text
        and "\u2029" not in text
    )


def block(text: str, column: int) -> str:
    """A text of several lines as the value of a key that stands at `column`."""
    lines = (f"{' ' * (column + 2)}{line}" if line else "" for line in text.removesuffix("\n").split("\n"))
    return "\n".join((_chomp(text), *lines))


def _chomp(text: str) -> str:
    return "|" if text.endswith("\n") else "|-"


def _block(text: str) -> list[str]:
    return ["  " + line if line else "" for line in text.removesuffix("\n").split("\n")]


def string(text: str) -> str:
    if _PLAIN.fullmatch(text) and isinstance(resolve(text), str) and not text.startswith("..."):
        return text
    return '"' + re.sub(r'["\\]|[^ -~\xa1-\ud7ff]|[\u2028\u2029]', _escaped, text) + '"'


def _escaped(match: re.Match[str]) -> str:
    letter = match.group()
    return f"\\{letter}" if letter in '"\\' else "\\n" if letter == "\n" else f"\\U{ord(letter):08x}"
