"""Which rank this process is, of how many, and which ranks share its node: what the launcher or the framework says."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class World:
    """Ranks of a node have consecutive numbers."""

    rank: int = 0
    size: int = 1  # 1 also where nobody has said: then ranks can't agree on anything
    local_rank: int = 0
    local_size: int = 1  # ranks on this node
    node: int = 0
    count: int = 0  # of nodes, where their sizes differ; 0: they don't
    assumed: bool = field(default=False, compare=False)  # nobody has said that all ranks are on this node
    unknown: str = field(default="", compare=False)  # several nodes, and why we can't tell who shares this one

    @property
    def nodes(self) -> int:
        return self.count or -(-self.size // self.local_size)


def find_world(env: Mapping[str, str] | None = None) -> World:
    """torchrun's variables first, then what torch.distributed, TF_CONFIG, JAX or Slurm know. Never imports any of
    them."""
    env = os.environ if env is None else env
    rank, size = _number(env, "RANK"), _number(env, "WORLD_SIZE")
    if rank is not None:
        return _placed(rank, max(size or 1, 1), env)
    for find in (_from_torch, _from_tensorflow, _from_jax, _from_slurm):
        try:
            found = find(env)
        except Exception:  # a half-imported framework, a TF_CONFIG that is no JSON: then nobody has said
            found = None
        if found is not None:
            return _placed(*found, env)
    return World()


def _placed(rank: int, size: int, env: Mapping[str, str]) -> World:
    """Who shares this node. Whatever tells it must tell it to all ranks alike."""
    local_rank, local_size = _number(env, "LOCAL_RANK"), _number(env, "LOCAL_WORLD_SIZE")
    if local_size or size == 1:
        local_size = local_size or size
        node = _number(env, "GROUP_RANK")
        if local_rank is None or local_rank >= local_size:
            local_rank = rank % local_size
        return World(rank, size, local_rank, local_size, rank // local_size if node is None else node)
    for find in (_by_slurm, _by_mpi, _by_hosts):
        try:
            world = find(rank, size, env)
        except Exception:
            world = None
        if world is not None:
            return world
    if local_rank is not None and local_rank != rank:
        return _alone(rank, size, f"RANK={rank} with LOCAL_RANK={local_rank}, and LOCAL_WORLD_SIZE is not set")
    return World(rank, size, rank, size, 0, assumed=True)


def _alone(rank: int, size: int, why: str) -> World:
    return World(rank, size, 0, 1, rank, unknown=why)


def _blocks(rank: int, size: int, local_rank: int, sizes: list[int], node: int) -> World:
    """Nodes with these numbers of ranks."""
    if sum(sizes) != size or sum(sizes[:node]) + local_rank != rank or local_rank >= sizes[node]:
        return _alone(rank, size, f"rank {rank} is number {local_rank} of node {node}: ranks are dealt out in turn")
    return World(rank, size, local_rank, sizes[node], node, 0 if len(set(sizes)) == 1 else len(sizes))


def _by_slurm(rank: int, size: int, env: Mapping[str, str]) -> World | None:
    """Only if srun started this very process: its variables are also there for what a batch script starts."""
    if _number(env, "SLURM_PROCID") != rank or _slurm_size(env) != size:
        return None
    local_rank, node = _number(env, "SLURM_LOCALID"), _number(env, "SLURM_NODEID")
    tasks = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE")
    sizes: list[int] = []
    for each in tasks.split(",") if tasks else ():  # "2(x3),1"
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", each.strip())
        if found is None:
            return None
        sizes += [int(found[1])] * int(found[2] or 1)
    per_node = _number(env, "SLURM_NTASKS_PER_NODE")
    if not sizes and per_node:
        sizes = [per_node] * (size // per_node) + ([size % per_node] if size % per_node else [])
    if local_rank is None or node is None or not 0 <= node < len(sizes):
        return None
    return _blocks(rank, size, local_rank, sizes, node)


def _by_mpi(rank: int, size: int, env: Mapping[str, str]) -> World | None:
    if _number(env, "OMPI_COMM_WORLD_RANK") != rank or _number(env, "OMPI_COMM_WORLD_SIZE") != size:
        return None
    local_rank, local = _number(env, "OMPI_COMM_WORLD_LOCAL_RANK"), _number(env, "OMPI_COMM_WORLD_LOCAL_SIZE")
    if local_rank is None or not local:
        return None
    if size % local or rank % local != local_rank:
        return _alone(rank, size, f"{size} ranks, {local} of them on this node")
    return World(rank, size, local_rank, local, rank // local)


def _by_hosts(rank: int, size: int, env: Mapping[str, str]) -> World | None:
    """The host names in TF_CONFIG."""
    config = _tensorflow(env)
    if config is None:
        return None
    ranked = [*config["cluster"].get("chief", ()), *config["cluster"].get("worker", ())]
    hosts = [str(each).rpartition(":")[0] for each in ranked]
    if len(hosts) != size:
        return None
    names = list(dict.fromkeys(hosts))
    if hosts != sorted(hosts, key=names.index):  # mixed: each rank for itself
        return World(rank, size, 0, 1, rank)
    sizes = [hosts.count(name) for name in names]
    node = names.index(hosts[rank])
    return _blocks(rank, size, rank - sum(sizes[:node]), sizes, node)


def _from_torch(env: Mapping[str, str]) -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _from_tensorflow(env: Mapping[str, str]) -> tuple[int, int] | None:
    config = _tensorflow(env)
    if config is None:
        return None
    cluster, task = config["cluster"], config["task"]
    ranked = [("chief", index) for index in range(len(cluster.get("chief", ())))]
    ranked += [("worker", index) for index in range(len(cluster.get("worker", ())))]
    return ranked.index((task["type"], int(task["index"]))), len(ranked)


def _from_jax(env: Mapping[str, str]) -> tuple[int, int] | None:
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return None
    return jax.process_index(), jax.process_count()


def _from_slurm(env: Mapping[str, str]) -> tuple[int, int] | None:
    """MASTER_ADDR says that the tasks are one training, and not many."""
    rank, size = _number(env, "SLURM_PROCID"), _slurm_size(env)
    if rank is None or size is None or size < 2 or rank >= size or not env.get("MASTER_ADDR"):
        return None
    return rank, size


def _slurm_size(env: Mapping[str, str]) -> int | None:
    return _number(env, "SLURM_STEP_NUM_TASKS") or _number(env, "SLURM_NTASKS")


def _tensorflow(env: Mapping[str, str]) -> Any:
    if not env.get("TF_CONFIG"):
        return None
    import json

    return json.loads(env["TF_CONFIG"])


# What all ranks of a training know of it.


def tensorflow_cluster(env: Mapping[str, str]) -> str:
    """The same text in all ranks; empty if there is none."""
    import json

    try:
        config = _tensorflow(env)
        return json.dumps(config["cluster"], sort_keys=True) if config else ""
    except Exception:
        return ""


def coordinator() -> str:
    """host:port at which the processes of JAX have met; empty if they have not."""
    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    return str(getattr(state, "coordinator_address", None) or "")


def is_elsewhere(env: Mapping[str, str] | None = None) -> str:
    """The host at which this training's ranks meet, if it is not this one: then they can't all be here."""
    import errno
    import socket

    env = os.environ if env is None else env
    host = coordinator().rpartition(":")[0].strip("[]") or env.get("MASTER_ADDR", "")
    if not host:
        return ""
    try:
        for family, kind, number, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, number) as probe:
                try:
                    probe.bind(address)  # only an address of this machine can be
                    return ""
                except OSError as error:
                    if error.errno != errno.EADDRNOTAVAIL:
                        return ""
    except OSError:  # nobody knows that name: then it tells nothing
        return ""
    return host


def _number(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    return int(value) if value.isdecimal() else None
