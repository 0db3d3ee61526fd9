"""Several processes that train together, on one node or on several: where they meet, and what each is told of it.

The variables are those that torchrun sets; TF_CONFIG for TensorFlow; JAX finds its coordinator. A command that is
started once for each node (torchrun itself, mpirun) finds how many nodes there are and which one it is on.
"""

import hashlib
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from whistlestop.channel import layout

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch

KEY = "WHISTLE_AGREE_KEY"  # as in sdk/nodes.py
NODE, NODES = "WHISTLE_NODE", "WHISTLE_NODES"
PIPE = "rank"  # files of the attempt's directory, for starting.py: rank-0.out, rank-0.err, …
OWN = "WHISTLE_RANK_ENV"  # JSON: the variables of each rank of this node, for starting.py
_MASTER, _AGREE, _OTHERS = 0, 1, 2  # which port is for what; from the last one on one for each rank


class Met(NamedTuple):
    """A node, as the others reach it."""

    address: str
    ports: Sequence[int]


class Ports:
    """Ports that nobody else gets until the program starts."""

    def __init__(self, count: int) -> None:
        self._sockets: list[socket.socket] = []
        for _ in range(count):
            held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.bind(("", 0))  # never listens
            self._sockets.append(held)
        self.numbers = [int(held.getsockname()[1]) for held in self._sockets]

    def release(self) -> None:
        """For the program, which is started now."""
        for held in self._sockets:
            held.close()
        self._sockets = []


def ports_of(launch: "Launch") -> Ports | None:
    """None: it is one process on one node, and there is nobody to meet."""
    if launch.nodes == 1 and not launch.ranks:
        return None
    return Ports(_OTHERS + max(1, launch.ranks))


def alone(launch: "Launch") -> Met:
    """Several ranks on one node: they meet here."""
    ports = ports_of(launch)
    assert ports is not None
    ports.release()
    return Met("127.0.0.1", ports.numbers)


def pipes(launch: "Launch") -> dict[int, tuple[str, int]]:
    """A pipe for each rank's output and errors, so that their lines don't mix: our ends, with stream and rank."""
    found = {}
    for local in range(launch.ranks):
        for stream in ("out", "err"):
            path = Path(launch.directory) / f"{PIPE}-{local}.{stream}"
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
            end = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            found[end] = (stream, launch.node * launch.ranks + local)
    return found


def environment(launch: "Launch", met: Sequence[Met]) -> dict[str, str]:
    """Of what is started on this node."""
    first, nodes, node = met[0], launch.nodes, launch.node
    env = {
        NODE: str(node),
        NODES: str(nodes),
        "NODE_RANK": str(node),
        "NNODES": str(nodes),
        "MASTER_ADDR": first.address,
        "MASTER_PORT": str(first.ports[_MASTER]),
    }
    if nodes > 1:
        env[layout.ENV_AGREE] = f"{first.address}:{first.ports[_AGREE]}"
        env[KEY] = hashlib.sha256(f"agree:{launch.token}".encode()).hexdigest()[:32]
    if launch.ranks:
        return env | {OWN: json.dumps([_of_rank(launch, met, local) for local in range(launch.ranks)])}
    # What torchrun takes for its own options, unless they are given.
    return env | {
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": str(node),
        "PET_NPROC_PER_NODE": str(len(launch.slots)),
        "PET_MASTER_ADDR": first.address,
        "PET_MASTER_PORT": str(first.ports[_MASTER]),
    }


def command(launch: "Launch") -> list[str]:
    """What is started on this node: the user's command, or what starts it once for each rank."""
    if not launch.ranks:
        return list(launch.command)
    return [sys.executable, "-S", "-E", str(Path(__file__).with_name("starting.py")), *launch.command]


def _of_rank(launch: "Launch", met: Sequence[Met], local: int) -> Mapping[str, str]:
    ranks, size = launch.ranks, launch.ranks * launch.nodes
    rank = launch.node * ranks + local
    workers = [f"{each.address}:{port}" for each in met for port in each.ports[_OTHERS : _OTHERS + ranks]]
    env = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": str(launch.node),
        "GROUP_WORLD_SIZE": str(launch.nodes),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(size),
        "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}),
        "JAX_COORDINATOR_ADDRESS": f"{met[0].address}:{met[0].ports[_MASTER]}",
        "JAX_NUM_PROCESSES": str(size),
        "JAX_PROCESS_ID": str(rank),
    }
    if size == 1:
        del env["TF_CONFIG"]  # of one worker it would be a cluster all the same
    devices = os.environ.get("CUDA_VISIBLE_DEVICES") if launch.devices is None else None
    if devices is None and launch.devices is not None:
        devices = ",".join(map(str, launch.devices))
    if devices and launch.ranks > 1:
        env["CUDA_VISIBLE_DEVICES"] = devices  # all of the node's: a rank takes the one with its LOCAL_RANK
    return env
