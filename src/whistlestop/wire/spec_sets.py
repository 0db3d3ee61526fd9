"""`--set phases.0.env.LR=0.1`: changes to a spec from the command line, applied to its tree before it is judged."""

from collections.abc import Collection, Sequence

from whistlestop.wire.mistakes import Mistakes, nearest, shown
from whistlestop.wire.yaml_text import CONTROL, MAX_BYTES, MAX_DEPTH, Node, listing, mapping, read, scalar

MAX_SETS = 200
MAIN = "main"  # the phase of a spec without `phases`


def put_all(root: Node, sets: Sequence[str], mistakes: Mistakes) -> Node:
    if len(sets) > MAX_SETS or sum(len(text) for text in sets) > MAX_BYTES:
        mistakes.add("", f"more than {MAX_SETS} changes with --set, or more than {MAX_BYTES // 1024} KiB of them")
        return root
    for text in sets:
        root = _put_one(root, text, mistakes)
    return root


def _put_one(root: Node, text: str, mistakes: Mistakes) -> Node:
    path, equals, value_text = text.partition("=")
    parts = path.strip().split(".")
    if not equals or not all(parts) or len(parts) >= MAX_DEPTH:
        mistakes.add(shown(path), "can't be set", hint="write --set phases.0.env.LR=0.1")
        return root
    if odd := CONTROL.search(text):
        mistakes.add(shown(path, 80), f"character {odd.group()!r} is not allowed")
        return root
    value = _value(path, value_text.strip(), mistakes)
    if value is None:
        return root
    try:
        return _put(root, without_main(_names(root), parts), value, parts)
    except _NoSuchPlace as no:
        mistakes.add(shown(path, 80), str(no), hint=no.hint)
        return root


def _value(path: str, text: str, mistakes: Mistakes) -> Node | None:
    """A flow value (`[a, b]`, `{secret: X}`, quoted text) as YAML; anything else as the plain scalar it is."""
    if text[:1] not in ("[", "{", '"', "'"):
        return scalar(text, plain=bool(text))  # an empty value is the empty string
    own = Mistakes()
    node = read(text, own)
    for problem in own.problems:
        mistakes.add(shown(path, 80), f"its value can't be read: {problem.text}", hint=problem.hint)
    return _unplaced(node) if node is not None and not own.problems else None


def _unplaced(node: Node) -> Node:
    """Without line numbers: they would be taken for lines of the file."""
    if isinstance(node.value, list):
        return listing([_unplaced(item) for item in node.value])
    if isinstance(node.value, dict):
        return mapping({key: _unplaced(item) for key, item in node.value.items()})
    return Node(node.value, None, node.raw, node.depth, node.weight)


def value_of(parts: Sequence[str], text: str) -> Node | None:
    """What a change puts at its place; None if it can't be read."""
    return _value(".".join(parts), text, Mistakes())


class _NoSuchPlace(Exception):
    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint


def without_main(names: Collection[str], parts: list[str]) -> list[str]:
    """`phases.0.env.LR` means `env.LR` where the file has one phase and no `phases`."""
    short = "phases" not in names and "command" in names
    return parts[2:] if short and parts[0] == "phases" and parts[1:2] in (["0"], [MAIN]) and parts[2:] else parts


def _names(root: Node) -> Collection[str]:
    return root.value.keys() if isinstance(root.value, dict) else ()


def _put(node: Node, parts: Sequence[str], value: Node, whole: Sequence[str]) -> Node:
    """A copy of `node` with `value` at `parts`: nodes are shared by aliases and must not change."""
    if not parts:
        return value
    first, rest = parts[0], parts[1:]
    done = ".".join(whole[: len(whole) - len(parts)]) or "the spec"
    if node.value is None:
        node = mapping({}, node.line)
    if isinstance(node.value, dict):
        child = node.value.get(first, scalar(""))
        return mapping({**node.value, first: _put(child, rest, value, whole)}, node.line)
    if isinstance(node.value, list):
        index = _index(node.value, first, done)
        items = list(node.value)
        items[index] = _put(items[index], rest, value, whole)
        return listing(items, node.line)
    raise _NoSuchPlace(f"{done} is a single value and has nothing inside")


def _index(items: list[Node], word: str, done: str) -> int:
    names = [
        str(item.value["name"].value) if isinstance(item.value, dict) and "name" in item.value else "" for item in items
    ]
    if word in names:
        return names.index(word)
    if word.isascii() and word.isdigit() and len(word) < 6 and int(word) < len(items):
        return int(word)
    if word.isascii() and word.isdigit():
        raise _NoSuchPlace(f"{done} has {len(items)} entries, counted from 0")
    raise _NoSuchPlace(f'{done} has no entry called "{shown(word)}"', nearest(word, filter(None, names)))
