"""Placement groups: how an attempt's slots are reserved. A group is named by its attempt, and outlives every driver.

While Ray has no room for it, it waits there: that is the demand that an autoscaler sees.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ray.exceptions import RaySystemError
from ray.util import get_placement_group, placement_group, placement_group_table, remove_placement_group

_SOME = 0.001  # of a node's own resource: that it is this node and no other


class Node(NamedTuple):
    id: str
    address: str
    resources: Mapping[str, float]
    labels: Mapping[str, str]
    leaves_at: float | None = None  # it was told to be gone by then (Unix time; 0: nobody said when)

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether it is one of a pool's nodes. Ray's own operators (!, in) are left to Ray."""
        plain = {name: value for name, value in labels.items() if not value.startswith(("!", "in("))}
        return all(self.labels.get(name) == value for name, value in plain.items())

    @property
    def has_slots(self) -> bool:
        """Something that a runner could be given."""
        own = ("memory", "object_store_memory")
        return any(not name.startswith("node:") and name not in own for name in self.resources)


def find(name: str) -> Any | None:
    try:
        return get_placement_group(name)
    except ValueError:
        return None


def make(
    name: str, nodes: int, bundle: Mapping[str, float], *, labels: Mapping[str, str], avoid: Collection[str]
) -> Any:
    """One bundle on each of so many nodes, none of those with the ids in `avoid`."""
    selector = dict(labels) | ({"ray.io/node-id": f"!in({','.join(sorted(avoid))})"} if avoid else {})
    more = {"bundle_label_selector": [selector] * nodes} if selector else {}
    return _make(name, [dict(bundle)] * nodes, strategy="STRICT_SPREAD" if nodes > 1 else "PACK", **more)


def pin(name: str, addresses: Sequence[str], bundle: Mapping[str, float]) -> Any:
    """On these very nodes, where its runners are already."""
    bundles = [{**bundle, f"node:{address}": _SOME} for address in addresses]
    return _make(name, bundles, strategy="SPREAD")


def _make(name: str, bundles: list[dict[str, float]], **more: Any) -> Any:
    try:
        return placement_group(bundles, name=name, lifetime="detached", **more)
    except RaySystemError:
        if (found := find(name)) is not None:  # another one was quicker
            return found
        raise


def remove(name: str) -> None:
    if (found := find(name)) is not None:
        remove_placement_group(found)


def places(group: Any) -> list[str]:
    """The ids of its nodes, in the order of its bundles; an empty one is not placed."""
    found = placement_group_table(group)["bundles_to_node_id"]
    return [found[index] for index in sorted(found)]


def reserved() -> dict[str, list[str]]:
    """All groups that stand, by name, with the nodes that they are on."""
    return {
        str(each["name"]): [each["bundles_to_node_id"][index] for index in sorted(each["bundles_to_node_id"])]
        for each in placement_group_table().values()
        if each["state"] != "REMOVED"
    }


def why_it_waits(group: Any, nodes: int, bundle: Mapping[str, float], there: Sequence[Node]) -> str:
    """In words that change only when something else does."""
    wanted = " and ".join(f"{amount:g} {name}" for name, amount in bundle.items())
    large = sum(all(node.resources.get(name, 0) >= amount for name, amount in bundle.items()) for node in there)
    asks = f"it needs {nodes} node{'s' if nodes > 1 else ''} with {wanted}{' each' if nodes > 1 else ''}"
    has = f"Ray has {large} of that size"
    if placement_group_table(group)["stats"]["scheduling_state"] == "INFEASIBLE" or large < nodes:
        return f"{asks}, and {has}; an autoscaler sees this as demand"
    return f"{asks}; {has}, and not enough of them are free"
