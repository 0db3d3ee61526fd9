"""Single values of a file that a person wrote: each takes a node and raises ValueError with words."""

import posixpath
import re
from collections.abc import Callable
from datetime import timedelta

from whistlestop.wire.durations import FORMS, parse_duration
from whistlestop.wire.mistakes import shown
from whistlestop.wire.spec import PhaseKind
from whistlestop.wire.spec_map import Wrong
from whistlestop.wire.yaml_text import Node, plain

MODES = ("min", "max")
CADENCE_UNITS = ("steps", "seconds", "minutes", "hours", "epochs")
MOST_KEPT = 100_000
MAX_COMMAND = 128 * 1024  # what Linux takes as one argument

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,99}")
_PHASE_NAME = re.compile(r"(?![0-9]+$)[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SECRET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_CADENCE = re.compile(r"([0-9]{1,12})\s+([a-z]+)")


def text_of(node: Node) -> str:
    """Words and numbers alike: a run may be called 2026."""
    if isinstance(node.value, list | dict):
        raise Wrong("must be a single value")
    return node.raw


def name(node: Node) -> str:
    name = text_of(node)
    if not _NAME.fullmatch(name):
        raise Wrong(f'"{shown(name)}" is not a name', hint="letters, digits, . _ - and spaces, at most 100")
    return name.strip()


def phase_name(node: Node) -> str | None:
    name = text_of(node)
    if not _PHASE_NAME.fullmatch(name):
        raise Wrong(
            f'"{shown(name)}" is not a name for a phase', hint="letters, digits, _ and -, at most 64, not only digits"
        )
    return name


def secret_name(node: Node) -> str:
    name = text_of(node)
    if not _SECRET_NAME.fullmatch(name):
        raise Wrong(f'"{shown(name)}" is not a name for a secret')
    return name


def phase_kind(node: Node) -> PhaseKind:
    kinds = [kind.value for kind in PhaseKind]
    word = text_of(node)
    if word not in kinds:
        raise Wrong(f'"{shown(word)}" is not a kind: it is train or task', word=word, words=kinds)
    return PhaseKind(word)


def command(node: Node) -> tuple[str, ...]:
    if isinstance(node.value, dict):
        raise Wrong("must be a text for the shell, or a list of words")
    if not isinstance(node.value, list):
        if not node.raw.strip():
            raise Wrong("is empty", hint="command: python train.py")
        return ("/bin/bash", "-c", _argument(node.raw))
    if not node.value or any(isinstance(item.value, list | dict) or item.value is None for item in node.value):
        raise Wrong("must be a text for the shell, or a list of words")
    words = tuple(_argument(item.raw) for item in node.value)
    if not words[0].strip():
        raise Wrong("its first word, the program, is empty")
    return words


def _argument(text: str) -> str:
    if len(text.encode("utf-8", "replace")) >= MAX_COMMAND:
        raise Wrong(f"is longer than {MAX_COMMAND // 1024} KiB", hint="put it into a script")
    return text


def workdir(node: Node) -> str:
    text = text_of(node).strip()
    path = posixpath.normpath(text)
    if posixpath.isabs(path) or text.startswith("~") or re.match(r"[A-Za-z]:[\\/]", text):
        raise Wrong("must be a directory inside the bundle, not an absolute path")
    if path == ".." or path.startswith("../") or "\\" in path:
        raise Wrong("leaves the bundle")
    return path


def integer(low: int, high: int) -> Callable[[Node], int]:
    def convert(node: Node) -> int:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Wrong(f'must be a whole number from {low} to {high}, not "{shown(bare(node))}"')
        return value

    return convert


def positive(node: Node) -> float | None:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e12:
        raise Wrong(f'must be a number above zero, not "{shown(bare(node))}"')
    return float(value)


def length(node: Node) -> timedelta:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Wrong(f"not a length of time; write {FORMS}")
    return parse_duration(value)


def lasting(node: Node) -> timedelta | None:
    lasts = length(node)
    if not lasts:
        raise Wrong("must be longer than zero")
    return lasts


def cadence(node: Node) -> str:
    """ "500 steps", "10 minutes", "1 epoch", "auto", in one spelling."""
    forms = 'write "500 steps", "10 minutes", "1 epoch" or "auto"'
    word = node.raw.strip().lower() if not isinstance(node.value, list | dict) else ""
    if word == "auto":
        return word
    match = _CADENCE.fullmatch(word)
    if not match:
        raise Wrong(f'"{shown(bare(node))}" is not a cadence', hint=forms)
    count, unit = int(match[1]), match[2]
    unit = unit if unit.endswith("s") else unit + "s"
    if unit not in CADENCE_UNITS:
        raise Wrong(f'"{shown(match[2])}" is not a unit of a cadence', hint=None, word=unit, words=CADENCE_UNITS)
    if not count:
        raise Wrong("must be at least 1")
    return f"{count} {unit if count > 1 else unit[:-1]}"


def kept(node: Node) -> int:
    if isinstance(node.value, bool) or not isinstance(node.value, int) or not 1 <= node.value <= MOST_KEPT:
        raise Wrong(
            f'must be a whole number from 1 to {MOST_KEPT}, or a mapping, not "{shown(bare(node))}"',
            hint="keep: 3, or keep: {last: 3, best: 2, by: val/loss, every: 10000}",
        )
    return node.value


def metric(node: Node) -> str:
    name = text_of(node).strip()
    if not name or len(name) > 200:
        raise Wrong("must be the name of a metric, as it is logged", hint="by: val/loss")
    return name


def mode(node: Node) -> str:
    word = text_of(node)
    if word not in MODES:
        raise Wrong(f'"{shown(word)}" is not a mode: the best value is the min or the max', word=word, words=MODES)
    return word


def step_count(node: Node) -> int:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**12:
        raise Wrong(f'must be a number of steps, not "{shown(bare(node))}"', hint="every: 10000")
    return value


def bare(node: Node) -> str:
    return node.raw if not isinstance(node.value, list | dict) else str(plain(node))
