"""The shares of a save that several nodes make: each node's runner brings its own ranks' files to the storage and says
there what it has brought; the first node's makes one checkpoint of them when all have come.

A share is known by the step, the attempt and the save it belongs to: another try of the same step by the same attempt
is another save. It counts for nothing by itself, and what nobody joins is swept.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from whistlestop.blobs.manifest import BadName, Damaged, FileEntry, SaveFailed, check_name, check_names
from whistlestop.blobs.staged import Staged
from whistlestop.channel.plain import plain_value

NAME: Final = re.compile(r"(\d{12,})-(\d{1,9})-([0-9a-f]{1,16})-(\d{1,9})\.(\d{1,6})")


@dataclass(frozen=True)
class Brought:
    """What one node has brought: its files, in the storage and read back. `refused`: it never will, and why."""

    node: int
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True)
class Shares:
    """Of one save: what has come so far."""

    nodes: int
    brought: Mapping[int, Brought]
    passed: frozenset[int] = frozenset()  # nodes that have brought a later save's: this one's never comes

    @property
    def missing(self) -> list[int]:
        return [node for node in range(self.nodes) if node not in self.brought]

    def check(self, step: int) -> None:
        """SaveFailed, in words, if some never come."""
        for each in self.brought.values():
            if each.refused:
                raise SaveFailed(f"node {each.node} could not save its ranks' part of step {step}: {each.refused}")
        if never := [node for node in self.missing if node in self.passed]:
            raise SaveFailed(f"node {never[0]} has gone on to a later save without its ranks' part of step {step}")

    def files(self) -> dict[str, FileEntry]:
        """All of them. SaveFailed if they are not one checkpoint."""
        names = [name for each in self.brought.values() for name in each.files]
        if len(set(names)) != len(names):
            raise SaveFailed("two nodes have brought a file of the same name")
        check_names(names)
        return dict(sorted((name, entry) for each in self.brought.values() for name, entry in each.files.items()))

    def meta(self, staged: Staged) -> dict[str, Any]:
        """The first node's, with the others' digests, and which save it was."""
        digests = {leaf: each for node in self.brought.values() for leaf, each in node.digests.items()}
        assert staged.share is not None
        return {**staged.meta, **({"digests": digests} if digests else {}), "save": staged.share.save}


def share_name(staged: Staged, node: int | None = None) -> str:
    share = staged.share
    assert share is not None
    number = share.node if node is None else node
    return f"{staged.step:012d}-{staged.attempt_number}-{share.save}.{number}"


def brought_of(staged: Staged, files: Mapping[str, FileEntry]) -> Brought:
    assert staged.share is not None
    digests = staged.meta.get("digests")
    return Brought(staged.share.node, files, digests if isinstance(digests, dict) else {})


def encode(brought: Brought) -> bytes:
    content = {
        "node": brought.node,
        "files": {name: [entry.size, entry.sha256] for name, entry in brought.files.items()},
        "digests": plain_value(brought.digests),
        "refused": brought.refused,
    }
    return json.dumps({"content": content, "sha256": _digest(content)}).encode()


def decode(data: bytes, name: str) -> Brought:
    """Damaged unless it is whole."""
    try:
        whole = json.loads(data)
        content = whole["content"]
        if whole["sha256"] != _digest(content):
            raise ValueError("it has changed since it was written")
        files = {check_name(each): FileEntry(int(size), str(sha)) for each, (size, sha) in content["files"].items()}
        return Brought(int(content["node"]), files, dict(content["digests"]), str(content["refused"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, BadName) as error:
        raise Damaged(f"the share {name} can't be read: {error!r}") from error


def nodes_of(staged: Staged, names: Iterable[str]) -> tuple[dict[int, str], frozenset[int]]:
    """Of these names of shares: those of this save, by node, and the nodes that have brought a later one."""
    assert staged.share is not None
    series, _, number = staged.share.save.rpartition("-")
    own: dict[int, str] = {}
    later: set[int] = set()
    for name in names:
        match = NAME.fullmatch(name)
        if match is None or (int(match[2]), match[3]) != (staged.attempt_number, series):
            continue
        if (int(match[1]), match[4]) == (staged.step, number):
            own[int(match[5])] = name
        elif int(match[4]) > int(number):
            later.add(int(match[5]))
    return own, frozenset(later)


def is_left(name: str, attempt_number: int, committed: int, *, nodes: int) -> bool:
    """Nobody is going to join it. `committed`: the newest step of this attempt that counts. Saves are joined in their
    order; what a node of several has brought for a later one is waited for, unless nobody is at work."""
    match = NAME.fullmatch(name)
    if match is None:
        return False
    number = int(match[2])
    return number < attempt_number or (number == attempt_number and (nodes == 1 or int(match[1]) <= committed))


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
