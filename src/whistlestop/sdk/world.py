"""Which rank this process is, and of how many: what the launcher or the framework says."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1  # 1 also where nobody has said: then ranks can't agree on anything
    local_rank: int = 0
    local_size: int = 1  # ranks on this node
    node: int = 0

    @property
    def nodes(self) -> int:
        return -(-self.size // self.local_size)


def find_world(env: Mapping[str, str] | None = None) -> World:
    """torchrun's variables first, then what torch.distributed, TF_CONFIG or JAX know. Never imports any of them."""
    env = os.environ if env is None else env
    rank, size = _number(env, "RANK"), _number(env, "WORLD_SIZE")
    if rank is not None:
        return _placed(rank, max(size or 1, 1), env)
    for find in (_from_torch, _from_tensorflow, _from_jax):
        try:
            found = find(env)
        except Exception:  # a half-imported framework, a TF_CONFIG that is no JSON: then nobody has said
            found = None
        if found is not None:
            return _placed(*found, env)
    return World()


def _placed(rank: int, size: int, env: Mapping[str, str]) -> World:
    local_size = _number(env, "LOCAL_WORLD_SIZE") or size
    local_rank = _number(env, "LOCAL_RANK")
    node = _number(env, "GROUP_RANK")
    if local_rank is None or local_rank >= local_size:
        local_rank = rank % local_size
    return World(rank, size, local_rank, local_size, rank // local_size if node is None else node)


def _from_torch(env: Mapping[str, str]) -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _from_tensorflow(env: Mapping[str, str]) -> tuple[int, int] | None:
    if not env.get("TF_CONFIG"):
        return None
    import json

    config = json.loads(env["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    ranked = [("chief", index) for index in range(len(cluster.get("chief", ())))]
    ranked += [("worker", index) for index in range(len(cluster.get("worker", ())))]
    return ranked.index((task["type"], int(task["index"]))), len(ranked)


def _from_jax(env: Mapping[str, str]) -> tuple[int, int] | None:
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return None
    return jax.process_index(), jax.process_count()


def _number(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    return int(value) if value.isdecimal() else None
