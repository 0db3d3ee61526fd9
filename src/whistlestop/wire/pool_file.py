"""Reads and judges a file of pools, for `whistle pools apply` and `whistle up --pools`: every mistake with its line."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from whistlestop.wire import spec_values as values
from whistlestop.wire.mistakes import Mistakes, shown
from whistlestop.wire.pools import (
    ENGINES,
    HOST_NAME,
    MARKETS,
    MOST_DEVICES,
    MOST_HOSTS,
    MOST_SLOTS,
    SOURCES,
    ClusterSettings,
    NewPool,
    RaySettings,
    SlurmSettings,
    notice_problem,
)
from whistlestop.wire.spec_capacity import label, pool_name
from whistlestop.wire.spec_map import Map, Wrong
from whistlestop.wire.yaml_text import Node, plain, read

POOL_KEYS = (
    "name", "engine", "provider", "region", "class", "market", "slots", "price", "rank", "hosts", "notices", "devices",
    "ray", "slurm",
)  # fmt: skip
HOST_KEYS = ("name", "slots")
MOST_POOLS = 1000


def parse_pools(text: str) -> list[NewPool]:
    """Raise SpecInvalid with every mistake."""
    mistakes = Mistakes()
    root = read(text, mistakes)
    found: list[NewPool] = []
    if root is not None and not isinstance(root.value, dict):
        mistakes.add(
            "", "the file must be a mapping with `pools`", line=root.line or 1, hint="pools: [{name: spot, slots: 4}]"
        )
    elif root is not None:
        found = _pools(Map(root, "", mistakes))
    mistakes.check("The file of pools")
    return found


def _pools(top: Map) -> list[NewPool]:
    top.known(("pools",))
    found: list[NewPool] = []
    for entry in _entries(top, "pools", MOST_POOLS, "must be a list of pools"):
        made = _pool(entry)
        if made is not None and any(each.name == made.name for each in found):
            entry.wrong("name", f'another pool is called "{made.name}" already')
        elif made is not None:
            found.append(made)
    if "pools" not in top.items:
        top.wrong("pools", "is missing", hint="pools: [{name: spot, slots: 4}]")
    return found


def _pool(entry: Map) -> NewPool | None:
    entry.known(POOL_KEYS)
    if "name" not in entry.items or entry.items["name"].value is None:
        entry.wrong("name", "is missing", hint="name: spot")
    given: dict[str, Any] = {
        "name": entry.take("name", pool_name, ""),
        "engine": entry.take("engine", _one_of(ENGINES, "an engine"), None),
        "provider": entry.take("provider", label, None),
        "region": entry.take("region", label, None),
        "kind": entry.take("class", label, None),
        "market": entry.take("market", _one_of(MARKETS, "a market"), None),
        "slots": entry.take("slots", values.integer(0, MOST_SLOTS), None),
        "price": entry.take("price", _price, None),
        "rank": entry.take("rank", values.integer(-1_000_000, 1_000_000), None),
        "hosts": _hosts(entry),
        "notices": _notices(entry),
        "devices": entry.take("devices", _devices, None),
        "ray": _settings(entry, "ray", RaySettings),
        "slurm": _settings(entry, "slurm", SlurmSettings),
    }
    try:
        return NewPool(**given) if given["name"] else None
    except ValidationError as error:
        entry.wrong("engine", error.errors()[0]["msg"])
        return None


def _settings(entry: Map, key: str, shape: type[ClusterSettings]) -> ClusterSettings | None:
    inside = entry.inside(key)
    if inside is None:
        return None
    inside.known(tuple(shape.model_fields))
    try:
        return shape.model_validate({name: plain(node) for name, node in inside.items.items()})
    except ValidationError as error:
        for each in error.errors():
            name = str(each["loc"][0]) if each["loc"] else ""
            if name in inside.items or each["type"] == "missing":
                inside.wrong(name, "is missing" if each["type"] == "missing" else each["msg"].lower())
        return None


def _hosts(entry: Map) -> list[dict[str, Any]] | None:
    if "hosts" not in entry.items or entry.items["hosts"].value is None:
        return None
    found: list[dict[str, Any]] = []
    for host in _entries(entry, "hosts", MOST_HOSTS, "must be a list of hosts, each with `name` and `slots`"):
        host.known(HOST_KEYS)
        for key in HOST_KEYS:
            if key not in host.items or host.items[key].value is None:
                host.wrong(key, "is missing", hint="{name: node-1, slots: 4}")
        name = host.take("name", _host_name, "")
        slots = host.take("slots", values.integer(1, MOST_SLOTS), 0)
        if name and any(each["name"] == name for each in found):
            host.wrong("name", f'another host is called "{name}" already')
        elif name and slots:
            found.append({"name": name, "slots": slots})
    return found


def _notices(entry: Map) -> dict[str, str] | None:
    inside = entry.inside("notices")
    if inside is None:
        return None
    inside.known(SOURCES)
    return {key: where for key in SOURCES if (where := inside.take(key, _address(key), ""))}


def _entries(top: Map, key: str, most: int, wanted: str) -> list[Map]:
    node = top.items.get(key)
    if node is None:
        return []
    if not isinstance(node.value, list) or len(node.value) > most:
        top.wrong(key, wanted if not isinstance(node.value, list) else f"has more than {most} entries")
        return []
    found = []
    for index, item in enumerate(node.value):
        if isinstance(item.value, dict):
            found.append(Map(item, top.at(f"{key}.{index}"), top.mistakes))
        else:
            top.wrong(f"{key}.{index}", "must be a mapping with `name`", node=item)
    return found


def _one_of(words: Sequence[str], what: str) -> Any:
    def convert(node: Node) -> str:
        word = values.text_of(node)
        if word not in words:
            said = f'"{shown(word)}" is not {what}: it is {" or ".join(words)}'
            raise Wrong(said, word=word.replace("-", "_").lower(), words=words)
        return word

    return convert


def _host_name(node: Node) -> str:
    name = values.text_of(node)
    if not re.fullmatch(HOST_NAME, name):
        raise Wrong(f'"{shown(name)}" is not a name for a host', hint="letters, digits, . _ : and -, at most 200")
    return name


def _price(node: Node) -> float:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e9:
        raise Wrong(f'must be a number of credits, 0 or more, not "{shown(values.bare(node))}"')
    return float(value)


def _address(source: str) -> Callable[[Node], str]:
    def convert(node: Node) -> str:
        text = values.text_of(node).strip()
        if not text or len(text) > 1000:
            raise Wrong("must be an address or a path", hint="aws: http://169.254.169.254")
        if (problem := notice_problem(source, text)) is not None:
            raise Wrong(problem, hint="file: /run/notice" if source == "file" else f"{source}: http://169.254.169.254")
        return text

    return convert


def _devices(node: Node) -> list[int]:
    found = [item.value for item in node.value] if isinstance(node.value, list) else [None]
    numbers = [each for each in found if type(each) is int and 0 <= each <= 100_000]
    if len(numbers) != len(found) or len(numbers) > MOST_DEVICES:
        raise Wrong("must be a list of device numbers, one for each slot", hint="devices: [0, 1]")
    return numbers
