"""A spec as a form: what is in it, where, and what is wrong with it. The text itself stays the truth."""

from collections.abc import Iterator, Sequence

from whistlestop.domain.errors import Problem, SpecInvalid
from whistlestop.domain.stops import Ladder
from whistlestop.wire import yaml_text
from whistlestop.wire.api import CheckedForm, FieldView, ProblemItem
from whistlestop.wire.mistakes import Mistakes
from whistlestop.wire.spec_edit import edit
from whistlestop.wire.spec_file import parse_spec
from whistlestop.wire.yaml_text import Node, flow

MOST_FIELDS = 500
KINDS = ["train", "task"]
MARKETS = ["any", "spot", "on_demand"]
GRACE = f"{Ladder.flag.total_seconds() / 60:g}m"


def check(text: str, sets: Sequence[str]) -> CheckedForm:
    """Lines in the answer are lines of the `spec` in the answer: what was sent, with the changes in it."""
    wrong: list[Problem] = []
    try:
        text = edit(text, sets)
    except SpecInvalid as error:
        wrong += error.problems or [Problem("", error.text)]
    try:
        spec = parse_spec(text)
    except SpecInvalid as error:
        wrong += [problem for problem in error.problems if problem not in wrong]
        return CheckedForm(ok=False, problems=[_item(each) for each in wrong], spec=text, fields=_fields(text, wrong))
    return CheckedForm(
        ok=not wrong,
        problems=[_item(each) for each in wrong],
        name=spec.name,
        phases=[phase.name for phase in spec.phases],
        spec=text,
        fields=_fields(text, wrong),
    )


def _fields(text: str, problems: Sequence[Problem]) -> list[FieldView]:
    root = yaml_text.read(text, Mistakes())
    if root is None or not isinstance(root.value, dict):
        return []
    found: list[FieldView] = []
    for field in _of_run(root.value):
        if len(found) == MOST_FIELDS:
            break
        wrong = next((each for each in problems if each.path == field.path), None)
        if wrong is None and field.path == "command":  # a spec with neither lacks this one for people
            wrong = next((each for each in problems if each.path == "phases"), None)
        if wrong is None and field.kind == "list":  # a mistake inside it
            wrong = next((each for each in problems if each.path.startswith(f"{field.path}.")), None)
        if wrong is not None:
            field.problem, field.hint = wrong.text, wrong.hint
        found.append(field)
    return found


def _of_run(top: dict[str, Node]) -> Iterator[FieldView]:
    yield _field(top, "", "name", "Name")
    yield _field(top, "", "project", "Project", default="default")
    yield _field(top, "", "priority", "Priority", kind="number", default="0")
    yield _field(top, "", "budget", "Budget in credits", kind="number", default="none")
    yield _field(top, "", "deadline", "Deadline", default="none")
    if "alerts" in top:
        yield _field(top, "", "alerts", "Alerts", kind="list", fixed=True)
    phases = top.get("phases")
    if phases is None:
        yield from _of_phase(top, "", "main")
        return
    market = "any"
    if "capacity" in top:  # the default of its phases
        yield _field(top, "", "capacity", "Capacity", kind="list", fixed=True)
        own = _inside(top, "capacity").get("market")
        market = own.raw if own is not None and own.raw in MARKETS else market
    for index, node in enumerate(phases.value if isinstance(phases.value, list) else ()):
        if isinstance(node.value, dict):
            name = node.value.get("name")
            group = name.raw if name and name.raw else f"phase {index}"
            yield from _of_phase(node.value, f"phases.{index}", group, market)


def _of_phase(items: dict[str, Node], at: str, group: str, market: str = "any") -> Iterator[FieldView]:
    yield _field(items, at, "command", "Command", group=group)
    yield _field(items, at, "kind", "Kind", group=group, kind="choice", default="train", choices=KINDS)
    if at:
        above = "none" if at == "phases.0" else "the phase above"
        yield _field(items, at, "needs", "Needs", group=group, kind="list", default=above, fixed=True)
    yield _field(items, at, "slots", "Slots", group=group, kind="number", default="1")
    for key, label, default in (("nodes", "Nodes", "1"), ("ranks", "Ranks on each node", "none")):
        if key in items:
            yield _field(items, at, key, label, group=group, kind="number", default=default)
    yield _field(items, at, "retries", "Retries", group=group, kind="number", default="0")
    yield _field(items, at, "time_limit", "Time limit", group=group, default="none")
    yield _field(items, at, "workdir", "Working directory", group=group, default=".")
    inside, below = _inside(items, "env"), f"{at}.env" if at else "env"
    for name in inside:
        yield _field(inside, below, name, name, group=group)
    task = "kind" in items and items["kind"].raw == "task"
    if not task or "checkpoint" in items:
        inside, below = _inside(items, "checkpoint"), f"{at}.checkpoint" if at else "checkpoint"
        yield _field(inside, below, "every", "Checkpoint every", group=group, default="at the end and on request")
        yield _field(inside, below, "keep", "Checkpoints kept", group=group, kind="number", default="3")
    if not task or "stop_when" in items:
        yield _field(items, at, "stop_when", "Stop rules", group=group, kind="list", default="none", fixed=True)
    yield _field(items, at, "grace", "Grace for a stop", group=group, default=GRACE)
    inside, below = _inside(items, "capacity"), f"{at}.capacity" if at else "capacity"
    yield _field(inside, below, "pools", "Pools", group=group, kind="list", default="any")
    yield _field(inside, below, "market", "Market", group=group, kind="choice", default=market, choices=MARKETS)
    yield _field(items, at, "work", "Estimated work", group=group, default="none")


def _inside(items: dict[str, Node], key: str) -> dict[str, Node]:
    node = items.get(key)
    return node.value if node is not None and isinstance(node.value, dict) else {}


def _field(
    items: dict[str, Node],
    at: str,
    key: str,
    label: str,
    *,
    group: str = "",
    kind: str = "text",
    default: str = "",
    choices: Sequence[str] = (),
    fixed: bool = False,
) -> FieldView:
    node = items.get(key)
    nested = node is not None and isinstance(node.value, list | dict)
    return FieldView(
        path=f"{at}.{key}" if at else key,
        label=label,
        group=group,
        value="" if node is None or node.value is None else flow(node) if nested else node.raw,
        default=default,
        kind="list" if nested else kind,
        choices=list(choices),
        line=node.line if node is not None else None,
        fixed=fixed or (nested and isinstance(node.value, dict)) if node is not None else fixed,
    )


def _item(problem: Problem) -> ProblemItem:
    return ProblemItem(path=problem.path, text=problem.text, line=problem.line, hint=problem.hint)
