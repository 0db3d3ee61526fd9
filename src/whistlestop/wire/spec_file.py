"""Reads and judges a whistle.yaml: every mistake in one answer, with its line and the nearest valid word."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from whistlestop.domain.errors import SpecInvalid
from whistlestop.domain.stop_rules import judge_rules
from whistlestop.domain.stops import Ladder
from whistlestop.wire import spec_values as values
from whistlestop.wire.mistakes import Mistakes, shown
from whistlestop.wire.spec import CapacitySpec, CheckpointSpec, PhaseKind, PhaseSpec, Secret, Spec
from whistlestop.wire.spec_alerts import alerts_of
from whistlestop.wire.spec_capacity import capacity_of
from whistlestop.wire.spec_guards import Guarded, guards_of
from whistlestop.wire.spec_map import MAX_ENTRIES, Map
from whistlestop.wire.spec_sets import MAIN, put_all
from whistlestop.wire.yaml_text import MAX_BYTES, Node, mapping, plain, read, write

RUN_KEYS = ("name", "project", "priority", "budget", "deadline", "alerts", "phases")
SHORT_KEYS = (  # of a phase; also at the top of a file without `phases`
    "kind", "command", "workdir", "env", "slots", "nodes", "ranks", "time_limit", "retries", "checkpoint",
    "stop_when", "grace", "capacity", "work", "guards", "guards_dry",
)  # fmt: skip
FOR_ALL = ("capacity", "guards", "guards_dry")  # at the top they hold for every phase that has none of its own
PHASE_KEYS = ("name", "needs", *SHORT_KEYS)
CHECKPOINT_KEYS = ("every", "keep")
KEEP_KEYS = ("last", "best", "by", "mode", "every")
GRACE_KEYS = ("flag", "interrupt", "terminate", "attach", "kill_save")
SECRET_KEYS = ("secret",)

MAX_PHASES = 100
MAX_NODES = 10_000

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


def parse_spec(text: str, sets: Sequence[str] = ()) -> Spec:
    """The meaning of `text` with `sets` applied. Raise SpecInvalid with every mistake."""
    mistakes = Mistakes()
    root = _tree(text, sets, mistakes)
    spec = _spec(Map(root, "", mistakes))
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


# --- the run ---------------------------------------------------------------------------------------------------


def _spec(top: Map) -> Spec | None:
    short = "phases" not in top.items
    if short:
        top.known((*RUN_KEYS, *SHORT_KEYS))
    else:
        top.known((*RUN_KEYS, *SHORT_KEYS))
        for key in top.items:
            if key in SHORT_KEYS and key not in FOR_ALL:
                top.wrong(key, "belongs to a phase", hint="move it into the phase, or drop `phases`")
    name = top.take("name", values.name, "")
    if "name" not in top.items or top.items["name"].value is None:
        top.wrong("name", "is missing", hint="name: my-run")
    if short and "command" not in top.items:
        top.wrong("phases", "is missing", hint="give `phases`, or `command` for a run of one phase")
    phases = (_phase(top, MAIN, (), CapacitySpec(), Guarded()),) if short else _phases(top)
    return Spec(
        name=name,
        phases=phases,
        project=top.take("project", values.name, "default"),
        priority=top.take("priority", values.integer(-1_000_000, 1_000_000), 0),
        budget=top.take("budget", values.positive, None),
        deadline=top.take("deadline", values.lasting, None),
        alerts=alerts_of(top),
    )


def _phases(top: Map) -> tuple[PhaseSpec, ...]:
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
    capacity, guarded = capacity_of(top, CapacitySpec()), guards_of(top, Guarded())
    phases: list[PhaseSpec] = []
    for entry, name in zip(maps, names, strict=True):
        if entry is None:
            continue
        entry.known(PHASE_KEYS)
        if name and any(phase.name == name for phase in phases):
            entry.wrong("name", f'another phase is called "{name}" already')
        above = (phases[-1].name,) if phases and phases[-1].name else ()
        phases.append(_phase(entry, name or "", _needs(entry, name, known, above), capacity, guarded))
    _acyclic(top, phases)
    return tuple(phases)


def _entry(node: Node, path: str, mistakes: Mistakes) -> Map | None:
    if isinstance(node.value, dict):
        return Map(node, path, mistakes)
    mistakes.add(path, "must be a mapping with `name` and `command`", line=node.line)
    return None


def _phase_name(entry: Map) -> str | None:
    if "name" not in entry.items or entry.items["name"].value is None:
        entry.wrong("name", "is missing", hint="name: train")
        return None
    return entry.take("name", values.phase_name, None)


def _needs(entry: Map, name: str | None, known: list[str], above: tuple[str, ...]) -> tuple[str, ...]:
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


def _acyclic(top: Map, phases: list[PhaseSpec]) -> None:
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


def _phase(entry: Map, name: str, needs: tuple[str, ...], capacity: CapacitySpec, guarded: Guarded) -> PhaseSpec:
    """`capacity` and `guarded`: what holds where the phase says nothing of it."""
    kind = entry.take("kind", values.phase_kind, PhaseKind.TRAIN)
    if "command" not in entry.items and name != MAIN:
        entry.wrong("command", "is missing", hint="command: python train.py")
    if "command" in entry.items and entry.items["command"].value is None:
        entry.wrong("command", "is empty", hint="command: python train.py")
    if kind is PhaseKind.TASK:
        for key in ("checkpoint", "stop_when", "guards", "guards_dry"):
            if key in entry.items:
                entry.wrong(key, "only train phases have it", hint="kind: train")
    return PhaseSpec(
        name=name,
        command=entry.take("command", values.command, ()),
        kind=kind,
        needs=needs,
        workdir=entry.take("workdir", values.workdir, "."),
        env=_env(entry.inside("env")),
        slots=entry.take("slots", values.integer(1, 100_000), 1),
        nodes=entry.take("nodes", values.integer(1, MAX_NODES), 1),
        ranks=entry.take("ranks", values.integer(0, 10_000), 0),
        time_limit=entry.take("time_limit", values.lasting, None),
        retries=entry.take("retries", values.integer(0, 1000), 0),
        checkpoint=_checkpoint(entry.inside("checkpoint")),
        stop_when=_stop_when(entry),
        grace=_grace(entry),
        capacity=capacity_of(entry, capacity),
        work=entry.take("work", values.lasting, None),
        guards=guards_of(entry, guarded).rules() if kind is PhaseKind.TRAIN else (),
    )


def _env(entry: Map | None) -> dict[str, str | Secret]:
    env: dict[str, str | Secret] = {}
    for key, node in entry.items.items() if entry else ():
        assert entry is not None
        if not _VARIABLE.fullmatch(key):
            entry.wrong(shown(key), "is not a name for an environment variable", node=node)
        elif node.value is None:
            entry.wrong(key, "has no value", hint=f'write {key}: "" for an empty one', node=node)
        elif isinstance(node.value, dict):
            secret = Map(node, entry.at(key), entry.mistakes)
            secret.known(SECRET_KEYS)
            env[key] = Secret(secret.take("secret", values.secret_name, ""))
            if "secret" not in node.value or node.value["secret"].value is None:
                entry.wrong(key, "must be a value or {secret: NAME}", node=node)
        elif isinstance(node.value, list):
            entry.wrong(key, "must be a value or {secret: NAME}, not a list", node=node)
        else:
            env[key] = node.raw  # as it was written: 1e-3 stays 1e-3
    return env


def _checkpoint(entry: Map | None) -> CheckpointSpec:
    if entry is None:
        return CheckpointSpec()
    entry.known(CHECKPOINT_KEYS)
    node = entry.items.get("every")
    every: list[str] = []
    if node is not None and isinstance(node.value, list) and len(node.value) <= MAX_ENTRIES:
        own = Map(
            mapping({str(index): item for index, item in enumerate(node.value)}), entry.at("every"), entry.mistakes
        )
        every = [cadence for key in own.items if (cadence := own.take(key, values.cadence, ""))]
    elif cadence := entry.take("every", values.cadence, ""):
        every = [cadence]
    return _keep(entry, CheckpointSpec(every=tuple(every)))


def _keep(entry: Map, spec: CheckpointSpec) -> CheckpointSpec:
    node = entry.items.get("keep")
    if node is None or not isinstance(node.value, dict):
        return replace(spec, keep=entry.take("keep", values.kept, spec.keep))
    inside = Map(node, entry.at("keep"), entry.mistakes)
    inside.known(KEEP_KEYS)
    by = inside.take("by", values.metric, "")
    if not by:
        for key in ("best", "mode"):
            if key in inside.items:
                inside.wrong(key, "says nothing without `by`, the metric that was logged", hint="by: val/loss")
    return replace(
        spec,
        keep=inside.take("last", values.integer(1, values.MOST_KEPT), spec.keep),
        best=inside.take("best", values.integer(1, values.MOST_KEPT), 1 if by else 0),
        by=by,
        mode=inside.take("mode", values.mode, spec.mode),
        keep_every=inside.take("every", values.step_count, 0),
    )


def _stop_when(entry: Map) -> tuple[Mapping[str, Any], ...]:
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


def _grace(entry: Map) -> Ladder:
    node = entry.items.get("grace")
    if node is None or node.value is None:
        return Ladder()
    if not isinstance(node.value, dict):
        return Ladder(flag=entry.take("grace", values.length, Ladder.flag))
    inside = Map(node, entry.at("grace"), entry.mistakes)
    inside.known(GRACE_KEYS)
    return Ladder(**{key: inside.take(key, values.length, getattr(Ladder, key)) for key in GRACE_KEYS})
