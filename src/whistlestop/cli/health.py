"""What `whistle doctor` looks at on this machine. It changes nothing that stays."""

import os
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from whistlestop.cli.options import connect

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.pools import ClusterView

_TIGHT_BYTES = 1 << 30
_FRAMEWORKS = (
    "torch", "lightning", "transformers", "accelerate", "tensorflow", "tensorflow-cpu", "keras", "jax", "flax", "numpy",
)  # fmt: skip


class Check(NamedTuple):
    name: str
    fit: bool | None  # None: worth knowing, neither good nor bad
    text: str


def look() -> list[Check]:
    from whistlestop import __version__

    return [
        Check("whistle", True, f"{__version__}, Python {platform.python_version()} on {platform.system()}"),
        *_server(__version__),
        *_disk(),
        _containment(),
        _frameworks(),
    ]


def _server(version: str) -> list[Check]:
    from whistlestop.domain.errors import WhistleError

    with connect() as client:
        try:
            who = client.whoami()
        except WhistleError as error:
            return [Check("server", None, error.text)]
        same = who.version == version
        hint = "" if same else f"; this command is {version}: install the same version"
        server = Check("server", same, f"{who.version} at {client.url}, as {who.name} ({who.role}){hint}")
        return [server, _storage(client), *_clusters(client)]


def _storage(client: "Client") -> Check:
    """Where the server keeps checkpoints: it writes something small there, reads it and removes it."""
    from whistlestop.domain.errors import WhistleError

    try:
        found = client.probe_storage()
    except WhistleError as error:
        return Check("checkpoints", None, f"not looked at: {error.text}")
    return Check("checkpoints", found.fit, found.text)


def _clusters(client: "Client") -> list[Check]:
    """Of each pool on Ray or Slurm, as the server sees it."""
    from whistlestop.domain.errors import WhistleError

    try:
        found = client.clusters()
    except WhistleError as error:
        return [Check("pools", None, f"their clusters were not looked at: {error.text}")]
    return [_cluster(each) for each in found]


def _cluster(found: "ClusterView") -> Check:
    if not found.reachable:
        return Check(f"pool {found.pool}", False, f"{found.on} can't be reached. {found.text}")
    nodes = f"{found.nodes} node{'' if found.nodes == 1 else 's'} to use" if found.nodes else "no node to use now"
    more = f"; {found.text}" if found.text else ""
    text = f"{found.version}, {nodes} ({found.on}){more}"
    return Check(f"pool {found.pool}", True if found.nodes else None, text)


def _disk() -> list[Check]:
    from whistlestop.client.discovery import data_dir

    place = data_dir()
    there = _existing(place)
    writable = os.access(there, os.W_OK)
    free = shutil.disk_usage(there).free
    made = str(place) if place == there else f"{place}, not made yet"
    return [
        Check("data", writable, made if writable else f"{place} can't be written: choose another one by WHISTLE_DATA"),
        Check(
            "disk",
            free >= _TIGHT_BYTES,
            f"{free / (1 << 30):,.1f} GiB free" + ("" if free >= _TIGHT_BYTES else ": too little for checkpoints"),
        ),
    ]


def _existing(path: Path) -> Path:
    return next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())


def _containment() -> Check:
    from whistlestop.domain.ids import new_id
    from whistlestop.engines import cgroups

    if platform.system() != "Linux":
        return Check("processes", False, "runs need Linux: it is the only system on which a process tree can be held")
    group = cgroups.create(new_id("doctor"))
    if group is None:
        return Check("processes", None, "no cgroup may be made here: process trees are walked instead, which is slower")
    cgroups.remove(group)
    return Check("processes", True, "held by cgroups")


def _frameworks() -> Check:
    found = []
    for name in _FRAMEWORKS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return Check("frameworks", None, ", ".join(found) or "none in this Python")
