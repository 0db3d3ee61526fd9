"""`capacity:` of a spec: which pools a phase may run on, and what it takes for granted about them."""

import re
from dataclasses import replace

from whistlestop.wire import spec_values as values
from whistlestop.wire.mistakes import shown
from whistlestop.wire.spec import CapacitySpec
from whistlestop.wire.spec_map import MAX_ENTRIES, Map, Wrong
from whistlestop.wire.yaml_text import Node, mapping

CAPACITY_KEYS = ("pools", "class", "region", "market", "changeover", "preemptible")
MARKETS = ("any", "spot", "on_demand")
POOL_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"
LABEL = r"[A-Za-z0-9][A-Za-z0-9._/ -]{0,99}"


def capacity_of(entry: Map, default: CapacitySpec) -> CapacitySpec:
    """What `entry` says under `capacity`; what it does not say is as in `default`."""
    inside = entry.inside("capacity")
    if inside is None:
        return default
    inside.known(CAPACITY_KEYS)
    return replace(
        default,
        pools=_pools(inside, default.pools),
        kind=inside.take("class", label, default.kind),
        region=inside.take("region", label, default.region),
        market=inside.take("market", _market, default.market),
        changeover=inside.take("changeover", values.lasting, default.changeover),
        preemptible=inside.take("preemptible", truth, default.preemptible),
    )


def pool_name(node: Node) -> str:
    name = values.text_of(node)
    if not re.fullmatch(POOL_NAME, name):
        raise Wrong(f'"{shown(name)}" is not a name for a pool', hint="letters, digits, . _ and -, at most 100")
    return name


def label(node: Node) -> str:
    """A class of machine, a region, a provider: words that are compared, letter by letter."""
    text = values.text_of(node).strip()
    if not re.fullmatch(LABEL, text):
        raise Wrong(f'"{shown(text)}" can\'t be used here', hint="letters, digits, . _ / - and spaces, at most 100")
    return text


def truth(node: Node) -> bool:
    if not isinstance(node.value, bool):
        raise Wrong(f'must be true or false, not "{shown(values.bare(node))}"')
    return node.value


def _pools(inside: Map, default: tuple[str, ...]) -> tuple[str, ...]:
    node = inside.items.get("pools")
    if node is None or node.value is None:
        return default
    if not isinstance(node.value, list):
        name = inside.take("pools", pool_name, "")
        return (name,) if name else ()
    if len(node.value) > MAX_ENTRIES:
        inside.wrong("pools", f"has more than {MAX_ENTRIES} entries")
        return ()
    own = Map(mapping({str(index): item for index, item in enumerate(node.value)}), inside.at("pools"), inside.mistakes)
    found: list[str] = []
    for key, item in own.items.items():
        name = own.take(key, pool_name, "")
        if item.value is None:
            own.wrong(key, "must be the name of a pool")
        elif name in found:
            own.wrong(key, f'"{name}" is given twice')
        elif name:
            found.append(name)
    return tuple(found)


def _market(node: Node) -> str:
    word = values.text_of(node)
    if word not in MARKETS:
        text = f'"{shown(word)}" is not a market: it is spot, on_demand or any'
        raise Wrong(text, word=word.replace("-", "_").lower(), words=MARKETS)
    return word
