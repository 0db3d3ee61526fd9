"""Changes to a spec's text that leave the rest as it was written: comments, order, quotes, blank lines.

Each change is cut into the text at the place of its value, and believed only if what is read back is what
`spec_sets` makes of the tree; otherwise the text is written anew, and its comments go.
"""

from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from whistlestop.wire import yaml_text
from whistlestop.wire.mistakes import Mistakes
from whistlestop.wire.spec_file import tree_of, written
from whistlestop.wire.spec_sets import value_of, without_main

MOST_WORK = 60_000  # letters times changes: each change is another look at the whole text, at some 100 KB a second


def edit(text: str, sets: Sequence[str]) -> str:
    """The text with `sets` applied. Raise SpecInvalid if one of them can't be."""
    if not sets:
        return text
    wanted = tree_of(text, sets)
    edited = _cut_all(text, sets) if len(text) * len(sets) <= MOST_WORK else None
    found = yaml_text.read(edited, Mistakes()) if edited is not None else None
    return edited if edited is not None and found is not None and _shape(found) == _shape(wanted) else written(wanted)


def _cut_all(text: str, sets: Sequence[str]) -> str | None:
    edited: str | None = text
    for change in sets:
        path, _, value = change.partition("=")
        try:
            edited = _cut(edited or "", path.strip().split("."), value.strip())
        except Exception:  # a text that the composer trips over: the tree's own writing is good enough
            return None
        if edited is None:
            return None
    return edited


def _shape(node: yaml_text.Node) -> Any:
    """A key without a value is as good as absent."""
    if isinstance(node.value, dict):
        return {key: _shape(item) for key, item in node.value.items() if item.value is not None}
    if isinstance(node.value, list):
        return [_shape(item) for item in node.value]
    return type(node.value).__name__, node.raw


def _cut(text: str, parts: list[str], value: str) -> str | None:
    root = YAML(typ="safe", pure=True).compose(text)
    if not isinstance(root, MappingNode):
        return None
    names = {str(key.value) for key, _ in root.value}
    parts = without_main(names, parts)
    found = value_of(parts, value)
    if found is None:
        return None
    holder, key, node, rest = _find(root, parts)
    if node is not None and found.value is None and isinstance(holder, MappingNode):
        return _without(text, holder, key, node)
    if node is not None:
        return _replaced(text, holder, key, node, found, value)
    if found.value is None:
        return text
    return _added(text, holder, rest, found, value) if isinstance(holder, MappingNode) else None


def _find(root: MappingNode, parts: list[str]) -> tuple[Node, Node | None, Node | None, list[str]]:
    """The innermost collection on the way, the key and the value in it, and the parts that are not there yet."""
    holder: Node = root
    for at, part in enumerate(parts):
        key, node = _inside(holder, part)
        if node is None or at == len(parts) - 1:
            return holder, key, node, parts[at:]
        if not isinstance(node, MappingNode | SequenceNode):
            raise ValueError("nothing inside")
        holder = node
    raise ValueError("no path")


def _inside(holder: Node, part: str) -> tuple[Node | None, Node | None]:
    if isinstance(holder, MappingNode):
        return next(((key, node) for key, node in holder.value if str(key.value) == part), (None, None))
    for node in holder.value:
        if isinstance(node, MappingNode) and str(getattr(_inside(node, "name")[1], "value", "")) == part:
            return None, node
    return None, holder.value[int(part)]


def _replaced(text: str, holder: Node, key: Node | None, node: Node, found: yaml_text.Node, value: str) -> str:
    start, end = node.start_mark.index, _end(text, node)
    column = key.start_mark.column if key is not None else node.start_mark.column
    written = _written(found, value, column, flow=_is_flow(holder))
    if key is not None and start == end:  # nothing but the colon
        start = end = text.index(":", key.end_mark.index) + 1
        written = f" {written}"
    return text[:start] + written + text[end:]


def _without(text: str, holder: MappingNode, key: Node | None, node: Node) -> str | None:
    """The whole entry, if it has its lines to itself."""
    if key is None:
        return None
    first = text.rfind("\n", 0, key.start_mark.index) + 1
    alone = not text[first : key.start_mark.index].strip()
    if holder.flow_style or not alone or len(holder.value) == 1:
        return _replaced(text, holder, key, node, yaml_text.scalar("null"), "null")
    last = text.find("\n", max(_end(text, node), key.end_mark.index))
    return text[:first] + ("" if last < 0 else text[last + 1 :])


def _added(text: str, holder: MappingNode, rest: list[str], found: yaml_text.Node, value: str) -> str:
    if holder.flow_style:
        inner = "".join(f"{yaml_text.string(part)}: {{" for part in rest[:-1])
        entry = inner + f"{yaml_text.string(rest[-1])}: {_written(found, value, 0, flow=True)}" + "}" * (len(rest) - 1)
        at = _end(text, holder) - 1
        return text[:at].rstrip() + (", " if holder.value else "") + entry + text[at:]
    column = holder.value[0][0].start_mark.column
    names = [str(key.value) for key, _ in holder.value]
    # What is said of the run stands above its phases.
    key, node = holder.value[names.index("phases") - 1 if "phases" in names[1:] else -1]
    at = max(_end(text, node), key.end_mark.index)
    line_end = text.find("\n", at)
    at = len(text) if line_end < 0 else line_end
    lines = [f"{' ' * (column + 2 * deep)}{yaml_text.string(part)}:" for deep, part in enumerate(rest)]
    lines[-1] += f" {_written(found, value, column + 2 * (len(rest) - 1), flow=False)}"
    return text[:at] + "\n" + "\n".join(lines) + text[at:]


def _is_flow(node: Node) -> bool:
    return bool(getattr(node, "flow_style", False))


def _end(text: str, node: Node) -> int:
    """Where its own letters end: a block's mark is behind the blank lines and comments that follow it."""
    if isinstance(node, ScalarNode):
        end = int(node.end_mark.index)
        if node.style in ("|", ">"):
            while end > node.start_mark.index and text[end - 1] in " \n":
                end -= 1
        return end
    if _is_flow(node) or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(text, last[1]) if isinstance(node, MappingNode) else _end(text, last)


def _written(found: yaml_text.Node, value: str, column: int, *, flow: bool) -> str:
    if isinstance(found.value, list | dict) or (isinstance(found.value, str) and value[:1] in ('"', "'")):
        return value if "\n" not in value else yaml_text.flow(found)
    if isinstance(found.value, str) and not flow and yaml_text.is_block(found.value):
        return yaml_text.block(found.value, column)
    return yaml_text.flow(found)
