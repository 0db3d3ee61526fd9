"""Reads and judges a whistle.yaml: every mistake in one answer, with its line and the nearest valid word."""

import math
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from whistlestop.domain.errors import SpecInvalid
from whistlestop.domain.stop_rules import judge_rules
from whistlestop.domain.stops import Ladder
from whistlestop.wire.durations import FORMS, parse_duration
from whistlestop.wire.mistakes import Mistakes, shown
from whistlestop.wire.spec import CheckpointSpec, PhaseKind, PhaseSpec, Secret, Spec
from whistlestop.wire.spec_sets import MAIN, put_all
from whistlestop.wire.yaml_text import MAX_BYTES, Node, mapping, plain, read, write

RUN_KEYS = ("name", "project", "priority", "budget", "deadline", "phases")
SHORT_KEYS = (  # of a phase; also at the top of a file without `phases`
    "kind", "command", "workdir", "env", "slots", "time_limit", "retries", "checkpoint", "stop_when", "grace",
)  # fmt: skip
PHASE_KEYS = ("name", "needs", *SHORT_KEYS)
CHECKPOINT_KEYS = ("every", "keep")
KEEP_KEYS = ("last", "best", "by", "mode", "every")
MODES = ("min", "max")
GRACE_KEYS = ("flag", "interrupt", "terminate", "attach", "kill_save")
SECRET_KEYS = ("secret",)
CADENCE_UNITS = ("steps", "seconds", "minutes", "hours", "epochs")

MOST_KEPT = 100_000
MAX_PHASES = 100
MAX_ENTRIES = 1000  # of one list or mapping
MAX_COMMAND = 128 * 1024  # what Linux takes as one argument

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,99}")
_PHASE_NAME = re.compile(r"(?![0-9]+$)[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_SECRET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_CADENCE = re.compile(r"([0-9]{1,12})\s+([a-z]+)")

T = TypeVar("T")


def parse_spec(text: str, sets: Sequence[str] = ()) -> Spec:
    """The meaning of `text` with `sets` applied. Raise SpecInvalid with every mistake."""
    mistakes = Mistakes()
    root = _tree(text, sets, mistakes)
    spec = _spec(_Map(root, "", mistakes))
    mistakes.check()
    assert spec is not None
    return spec


def apply_sets(text: str, sets: Sequence[str]) -> str:
    """The YAML that a run with these changes really runs: `parse_spec` of it gives the same Spec."""
    return written(tree_of(text, sets)) if sets else text


def tree_of(text: str, sets: Sequence[str]) -> Node:
    """The text with `sets` applied, not yet judged as a spec. Raise SpecInvalid if it can't be read or changed."""
    mistakes = Mistakes()
    root = _tree(text, sets, mistakes)
    mistakes.check()
    return root


def written(root: Node) -> str:
    resolved = write(root)
    if len(resolved.encode()) > MAX_BYTES:
        raise SpecInvalid(f"With its changes the spec is larger than {MAX_BYTES // 1024} KiB.")
    return resolved


def spec_to_text(spec: Mapping[str, Any]) -> str:
    """A spec given as plain values, as the text of a whistle.yaml."""
    return write(spec)


def _tree(text: str, sets: Sequence[str], mistakes: Mistakes) -> Node:
    root = read(text, mistakes)
    if root is None:
        mistakes.check()
        raise AssertionError("a text that can't be read has a mistake")
    if root.value is None:
        if not sets:
            mistakes.add("", "the file is empty", line=1, hint="it needs at least `name` and `command`")
            mistakes.check()
        root = mapping({}, 1)
    if not isinstance(root.value, dict):
        mistakes.add("", "the file must be a mapping of keys to values", line=root.line, hint="name: my-run")
        mistakes.check()
    return put_all(root, sets, mistakes)


class _Map:
    """A mapping of the file, its path, and how to take values out of it."""

    def __init__(self, node: Node, path: str, mistakes: Mistakes) -> None:
        assert isinstance(node.value, dict)
        self.items, self.line, self.path, self.mistakes = node.value, node.line, path, mistakes

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def wrong(self, key: str, text: str, *, hint: str | None = None, node: Node | None = None) -> None:
        found = node or self.items.get(key)
        self.mistakes.add(self.at(key), text, line=found.line if found else self.line, hint=hint)

    def known(self, keys: Sequence[str]) -> None:
        for key, node in self.items.items():
            if key not in keys:
                self.mistakes.add(self.at(shown(key)), "unknown key", line=node.line, word=key.lower(), words=keys)

    def take(self, key: str, convert: Callable[[Node], T], default: T) -> T:
        """`convert` raises ValueError with words. A key without a value is as good as absent."""
        node = self.items.get(key)
        if node is None or node.value is None:
            return default
        try:
            return convert(node)
        except _Wrong as wrong:
            self.mistakes.add(self.at(key), str(wrong), line=node.line, hint=wrong.hint, **wrong.nearest)
        except ValueError as error:
            self.wrong(key, str(error))
        return default

    def inside(self, key: str) -> "_Map | None":
        node = self.items.get(key)
        if node is None or node.value is None:
            return None
        if not isinstance(node.value, dict):
            self.wrong(key, f'must be a mapping, not "{shown(plain(node))}"')
            return None
        if len(node.value) > MAX_ENTRIES:
            self.wrong(key, f"has more than {MAX_ENTRIES} entries")
            return None
        return _Map(node, self.at(key), self.mistakes)


class _Wrong(ValueError):
    def __init__(
        self, text: str, *, hint: str | None = None, word: str | None = None, words: Sequence[str] = ()
    ) -> None:
        super().__init__(text)
        self.hint = hint
        self.nearest: dict[str, Any] = {"word": word, "words": words}


# --- the run ---------------------------------------------------------------------------------------------------


def _spec(top: _Map) -> Spec | None:
    short = "phases" not in top.items
    if short:
        top.known((*RUN_KEYS, *SHORT_KEYS))
    else:
        top.known(RUN_KEYS + tuple(key for key in top.items if key in SHORT_KEYS))
        for key in top.items:
            if key in SHORT_KEYS:
                top.wrong(key, "belongs to a phase", hint="move it into the phase, or drop `phases`")
    name = top.take("name", _name, "")
    if "name" not in top.items or top.items["name"].value is None:
        top.wrong("name", "is missing", hint="name: my-run")
    if short and "command" not in top.items:
        top.wrong("phases", "is missing", hint="give `phases`, or `command` for a run of one phase")
    phases = (_phase(top, MAIN, ()),) if short else _phases(top)
    return Spec(
        name=name,
        phases=phases,
        project=top.take("project", _name, "default"),
        priority=top.take("priority", _integer(-1_000_000, 1_000_000), 0),
        budget=top.take("budget", _positive, None),
        deadline=top.take("deadline", _lasting, None),
    )


def _phases(top: _Map) -> tuple[PhaseSpec, ...]:
    node = top.items["phases"]
    if not isinstance(node.value, list) or not node.value:
        top.wrong("phases", "must be a list of phases", hint="- name: train")
        return ()
    if len(node.value) > MAX_PHASES:
        top.wrong("phases", f"has more than {MAX_PHASES} phases")
        return ()
    maps = [_entry(item, f"phases.{index}", top.mistakes) for index, item in enumerate(node.value)]
    names = [_phase_name(entry) if entry else None for entry in maps]
    known = [name for name in names if name]
    phases: list[PhaseSpec] = []
    for entry, name in zip(maps, names, strict=True):
        if entry is None:
            continue
        entry.known(PHASE_KEYS)
        if name and any(phase.name == name for phase in phases):
            entry.wrong("name", f'another phase is called "{name}" already')
        above = (phases[-1].name,) if phases and phases[-1].name else ()
        phases.append(_phase(entry, name or "", _needs(entry, name, known, above)))
    _acyclic(top, phases)
    return tuple(phases)


def _entry(node: Node, path: str, mistakes: Mistakes) -> _Map | None:
    if isinstance(node.value, dict):
        return _Map(node, path, mistakes)
    mistakes.add(path, "must be a mapping with `name` and `command`", line=node.line)
    return None


def _phase_name(entry: _Map) -> str | None:
    if "name" not in entry.items or entry.items["name"].value is None:
        entry.wrong("name", "is missing", hint="name: train")
        return None
    return entry.take("name", _phase_word, None)


def _needs(entry: _Map, name: str | None, known: list[str], above: tuple[str, ...]) -> tuple[str, ...]:
    node = entry.items.get("needs")
    if node is None or node.value is None:
        return above
    items = node.value if isinstance(node.value, list) else [node]
    needs: list[str] = []
    for index, item in enumerate(items):
        where = f"needs.{index}" if items is node.value else "needs"
        word = item.raw
        if isinstance(item.value, list | dict) or not word:
            entry.wrong(where, "must be the name of a phase", node=item)
        elif word == name:
            entry.wrong(where, "a phase can't need itself", node=item)
        elif word not in known:
            entry.mistakes.add(
                entry.at(where),
                f'there is no phase called "{shown(word)}"',
                line=item.line,
                word=word,
                words=known,
            )
        elif word not in needs:
            needs.append(word)
    return tuple(needs)


def _acyclic(top: _Map, phases: list[PhaseSpec]) -> None:
    left = {phase.name: set(phase.needs) for phase in phases}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    if left:
        circle = _circle(left)
        top.wrong("phases", f"need each other in a circle: {' → '.join(circle)}", hint="take out one `needs`")


def _circle(left: Mapping[str, set[str]]) -> list[str]:
    walked = [next(iter(left))]
    while walked.count(walked[-1]) < 2:
        walked.append(min(left[walked[-1]] & left.keys()))
    return walked[walked.index(walked[-1]) :]


# --- a phase ---------------------------------------------------------------------------------------------------


def _phase(entry: _Map, name: str, needs: tuple[str, ...]) -> PhaseSpec:
    kind = entry.take("kind", _kind, PhaseKind.TRAIN)
    if "command" not in entry.items and name != MAIN:
        entry.wrong("command", "is missing", hint="command: python train.py")
    if "command" in entry.items and entry.items["command"].value is None:
        entry.wrong("command", "is empty", hint="command: python train.py")
    if kind is PhaseKind.TASK:
        for key in ("checkpoint", "stop_when"):
            if key in entry.items:
                entry.wrong(key, "only train phases have it", hint="kind: train")
    return PhaseSpec(
        name=name,
        command=entry.take("command", _command, ()),
        kind=kind,
        needs=needs,
        workdir=entry.take("workdir", _workdir, "."),
        env=_env(entry.inside("env")),
        slots=entry.take("slots", _integer(1, 100_000), 1),
        time_limit=entry.take("time_limit", _lasting, None),
        retries=entry.take("retries", _integer(0, 1000), 0),
        checkpoint=_checkpoint(entry.inside("checkpoint")),
        stop_when=_stop_when(entry),
        grace=_grace(entry),
    )


def _env(entry: _Map | None) -> dict[str, str | Secret]:
    env: dict[str, str | Secret] = {}
    for key, node in entry.items.items() if entry else ():
        assert entry is not None
        if not _VARIABLE.fullmatch(key):
            entry.wrong(shown(key), "is not a name for an environment variable", node=node)
        elif node.value is None:
            entry.wrong(key, "has no value", hint=f'write {key}: "" for an empty one', node=node)
        elif isinstance(node.value, dict):
            secret = _Map(node, entry.at(key), entry.mistakes)
            secret.known(SECRET_KEYS)
            env[key] = Secret(secret.take("secret", _secret_name, ""))
            if "secret" not in node.value or node.value["secret"].value is None:
                entry.wrong(key, "must be a value or {secret: NAME}", node=node)
        elif isinstance(node.value, list):
            entry.wrong(key, "must be a value or {secret: NAME}, not a list", node=node)
        else:
            env[key] = node.raw  # as it was written: 1e-3 stays 1e-3
    return env


def _checkpoint(entry: _Map | None) -> CheckpointSpec:
    if entry is None:
        return CheckpointSpec()
    entry.known(CHECKPOINT_KEYS)
    node = entry.items.get("every")
    every: list[str] = []
    if node is not None and isinstance(node.value, list) and len(node.value) <= MAX_ENTRIES:
        own = _Map(
            mapping({str(index): item for index, item in enumerate(node.value)}), entry.at("every"), entry.mistakes
        )
        every = [cadence for key in own.items if (cadence := own.take(key, _cadence, ""))]
    elif cadence := entry.take("every", _cadence, ""):
        every = [cadence]
    return _keep(entry, CheckpointSpec(every=tuple(every)))


def _keep(entry: _Map, spec: CheckpointSpec) -> CheckpointSpec:
    node = entry.items.get("keep")
    if node is None or not isinstance(node.value, dict):
        return replace(spec, keep=entry.take("keep", _kept, spec.keep))
    inside = _Map(node, entry.at("keep"), entry.mistakes)
    inside.known(KEEP_KEYS)
    by = inside.take("by", _metric, "")
    if not by:
        for key in ("best", "mode"):
            if key in inside.items:
                inside.wrong(key, "says nothing without `by`, the metric that was logged", hint="by: val/loss")
    return replace(
        spec,
        keep=inside.take("last", _integer(1, MOST_KEPT), spec.keep),
        best=inside.take("best", _integer(1, MOST_KEPT), 1 if by else 0),
        by=by,
        mode=inside.take("mode", _mode, spec.mode),
        keep_every=inside.take("every", _step_count, 0),
    )


def _stop_when(entry: _Map) -> tuple[Mapping[str, Any], ...]:
    """Rules for the SDK, kept as they were written: a text as {rule: TEXT}."""
    node = entry.items.get("stop_when")
    if node is None or node.value is None:
        return ()
    if not isinstance(node.value, list) or len(node.value) > MAX_ENTRIES:
        entry.wrong("stop_when", "must be a list of rules")
        return ()
    rules: list[Mapping[str, Any]] = []
    for index, item in enumerate(node.value):
        rule = plain(item)
        if not _finite(rule):
            entry.wrong(f"stop_when.{index}", "has a number that is not finite or too large", node=item)
            continue
        _, problems = judge_rules([rule])
        for problem in problems:
            inside = problem.path.split(".")[1:]  # its first part is the index in a list of one
            where = ".".join(["stop_when", str(index), *inside])
            entry.wrong(where, problem.text, hint=problem.hint, node=_deeper(item, inside))
        if not problems:
            rules.append(rule if isinstance(rule, dict) else {"rule": rule.strip()})
    return tuple(rules)


def _deeper(node: Node, path: Sequence[str]) -> Node:
    """The value at `path`, or the last one on the way to it."""
    for key in path:
        if isinstance(node.value, dict) and key in node.value:
            node = node.value[key]
        elif isinstance(node.value, list) and key.isdigit() and int(key) < len(node.value):
            node = node.value[int(key)]
        else:
            break
    return node


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_finite(item) for item in value.values())
    if isinstance(value, list):
        return all(_finite(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)


def _grace(entry: _Map) -> Ladder:
    node = entry.items.get("grace")
    if node is None or node.value is None:
        return Ladder()
    if not isinstance(node.value, dict):
        return Ladder(flag=entry.take("grace", _length, Ladder.flag))
    inside = _Map(node, entry.at("grace"), entry.mistakes)
    inside.known(GRACE_KEYS)
    return Ladder(**{key: inside.take(key, _length, getattr(Ladder, key)) for key in GRACE_KEYS})


# --- single values: each raises ValueError with words ------------------------------------------------------------


def _text(node: Node) -> str:
    """Words and numbers alike: a run may be called 2026."""
    if isinstance(node.value, list | dict):
        raise _Wrong("must be a single value")
    return node.raw


def _name(node: Node) -> str:
    name = _text(node)
    if not _NAME.fullmatch(name):
        raise _Wrong(f'"{shown(name)}" is not a name', hint="letters, digits, . _ - and spaces, at most 100")
    return name.strip()


def _phase_word(node: Node) -> str | None:
    name = _text(node)
    if not _PHASE_NAME.fullmatch(name):
        raise _Wrong(
            f'"{shown(name)}" is not a name for a phase', hint="letters, digits, _ and -, at most 64, not only digits"
        )
    return name


def _secret_name(node: Node) -> str:
    name = _text(node)
    if not _SECRET_NAME.fullmatch(name):
        raise _Wrong(f'"{shown(name)}" is not a name for a secret')
    return name


def _kind(node: Node) -> PhaseKind:
    kinds = [kind.value for kind in PhaseKind]
    word = _text(node)
    if word not in kinds:
        raise _Wrong(f'"{shown(word)}" is not a kind: it is train or task', word=word, words=kinds)
    return PhaseKind(word)


def _command(node: Node) -> tuple[str, ...]:
    if isinstance(node.value, dict):
        raise _Wrong("must be a text for the shell, or a list of words")
    if not isinstance(node.value, list):
        if not node.raw.strip():
            raise _Wrong("is empty", hint="command: python train.py")
        return ("/bin/bash", "-c", _argument(node.raw))
    if not node.value or any(isinstance(item.value, list | dict) or item.value is None for item in node.value):
        raise _Wrong("must be a text for the shell, or a list of words")
    words = tuple(_argument(item.raw) for item in node.value)
    if not words[0].strip():
        raise _Wrong("its first word, the program, is empty")
    return words


def _argument(text: str) -> str:
    if len(text.encode("utf-8", "replace")) >= MAX_COMMAND:
        raise _Wrong(f"is longer than {MAX_COMMAND // 1024} KiB", hint="put it into a script")
    return text


def _workdir(node: Node) -> str:
    text = _text(node).strip()
    path = posixpath.normpath(text)
    if posixpath.isabs(path) or text.startswith("~") or re.match(r"[A-Za-z]:[\\/]", text):
        raise _Wrong("must be a directory inside the bundle, not an absolute path")
    if path == ".." or path.startswith("../") or "\\" in path:
        raise _Wrong("leaves the bundle")
    return path


def _integer(low: int, high: int) -> Callable[[Node], int]:
    def convert(node: Node) -> int:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _Wrong(f'must be a whole number from {low} to {high}, not "{shown(_bare(node))}"')
        return value

    return convert


def _positive(node: Node) -> float | None:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e12:
        raise _Wrong(f'must be a number above zero, not "{shown(_bare(node))}"')
    return float(value)


def _length(node: Node) -> timedelta:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _Wrong(f"not a length of time; write {FORMS}")
    return parse_duration(value)


def _lasting(node: Node) -> timedelta | None:
    length = _length(node)
    if not length:
        raise _Wrong("must be longer than zero")
    return length


def _cadence(node: Node) -> str:
    """ "500 steps", "10 minutes", "1 epoch", "auto", in one spelling."""
    forms = 'write "500 steps", "10 minutes", "1 epoch" or "auto"'
    word = node.raw.strip().lower() if not isinstance(node.value, list | dict) else ""
    if word == "auto":
        return word
    match = _CADENCE.fullmatch(word)
    if not match:
        raise _Wrong(f'"{shown(_bare(node))}" is not a cadence', hint=forms)
    count, unit = int(match[1]), match[2]
    unit = unit if unit.endswith("s") else unit + "s"
    if unit not in CADENCE_UNITS:
        raise _Wrong(f'"{shown(match[2])}" is not a unit of a cadence', hint=None, word=unit, words=CADENCE_UNITS)
    if not count:
        raise _Wrong("must be at least 1")
    return f"{count} {unit if count > 1 else unit[:-1]}"


def _kept(node: Node) -> int:
    if isinstance(node.value, bool) or not isinstance(node.value, int) or not 1 <= node.value <= MOST_KEPT:
        raise _Wrong(
            f'must be a whole number from 1 to {MOST_KEPT}, or a mapping, not "{shown(_bare(node))}"',
            hint="keep: 3, or keep: {last: 3, best: 2, by: val/loss, every: 10000}",
        )
    return node.value


def _metric(node: Node) -> str:
    name = _text(node).strip()
    if not name or len(name) > 200:
        raise _Wrong("must be the name of a metric, as it is logged", hint="by: val/loss")
    return name


def _mode(node: Node) -> str:
    word = _text(node)
    if word not in MODES:
        raise _Wrong(f'"{shown(word)}" is not a mode: the best value is the min or the max', word=word, words=MODES)
    return word


def _step_count(node: Node) -> int:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**12:
        raise _Wrong(f'must be a number of steps, not "{shown(_bare(node))}"', hint="every: 10000")
    return value


def _bare(node: Node) -> str:
    return node.raw if not isinstance(node.value, list | dict) else str(plain(node))
