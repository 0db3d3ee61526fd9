"""`alerts:` of a spec: who is told of this run, and of what."""

import re

from whistlestop.domain.alerts import KINDS
from whistlestop.wire import spec_values as values
from whistlestop.wire.mistakes import shown
from whistlestop.wire.spec import AlertSpec
from whistlestop.wire.spec_map import MAX_ENTRIES, Map, Wrong
from whistlestop.wire.yaml_text import Node

ALERT_KEYS = ("to", "on")
RECEIVER_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"


def alerts_of(top: Map) -> tuple[AlertSpec, ...]:
    """Names, or mappings of a name and the kinds that it is told of."""
    found: list[AlertSpec] = []
    for where, item in _items(top, "alerts", "must be a name of a receiver, or a list of them"):
        if isinstance(item.value, dict):
            inside = Map(item, top.at(where), top.mistakes)
            inside.known(ALERT_KEYS)
            name, kinds = inside.take("to", _receiver, ""), _kinds(inside)
            if "to" not in inside.items:
                inside.wrong("to", "is missing", hint="to: the name of a receiver, as `whistle alerts ls` shows it")
        else:
            name, kinds = _taken(top, where, item), ()
        if name and any(name == other.to for other in found):
            top.wrong(where, f'"{name}" is given twice', node=item)
        elif name:
            found.append(AlertSpec(name, kinds))
    return tuple(found)


def kind(node: Node) -> str:
    word = values.text_of(node).strip()
    if word not in KINDS:
        text = f'"{shown(word)}" is nothing that an alert tells of'
        raise Wrong(text, word=word.replace("-", "_").lower(), words=KINDS)
    return word


def _items(entry: Map, key: str, wrong: str) -> list[tuple[str, Node]]:
    node = entry.items.get(key)
    if node is None or node.value is None:
        return []
    if not isinstance(node.value, list):
        return [(key, node)]
    if len(node.value) > MAX_ENTRIES:
        entry.wrong(key, wrong)
        return []
    return [(f"{key}.{index}", item) for index, item in enumerate(node.value)]


def _kinds(inside: Map) -> tuple[str, ...]:
    found: list[str] = []
    for where, item in _items(inside, "on", "must be a kind of alert, or a list of them"):
        try:
            found.append(kind(item))
        except Wrong as wrong:
            inside.mistakes.add(inside.at(where), str(wrong), line=item.line, hint=wrong.hint, **wrong.nearest)
    return tuple(dict.fromkeys(found))


def _taken(top: Map, where: str, item: Node) -> str:
    try:
        return _receiver(item)
    except Wrong as wrong:
        top.mistakes.add(top.at(where), str(wrong), line=item.line, hint=wrong.hint)
        return ""


def _receiver(node: Node) -> str:
    name = values.text_of(node)
    if not re.fullmatch(RECEIVER_NAME, name):
        raise Wrong(f'"{shown(name)}" is not a name of a receiver', hint="letters, digits, . _ and -, at most 100")
    return name
