"""Which GPUs of a node are an attempt's. Ray numbers them only for an actor: where a node has more than the attempt
takes, one sits on the reservation for as long as it stands."""

import os
from collections.abc import Mapping

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from whistlestop.engines.ray import groups
from whistlestop.engines.ray.agent import ALL
from whistlestop.engines.ray.groups import Node

WAIT = 60.0


class Holder:
    def devices(self) -> str:
        return os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, ray.get_gpu_ids()))


def devices_of(
    attempt_id: str,
    number: int,
    bundle: Mapping[str, float],
    node: Node,
    *,
    index: int | None = None,
    wait: float = WAIT,
) -> str | None:
    """As CUDA_VISIBLE_DEVICES has them; ALL: all of the node's; None: none. `index`: of its bundle in the group, where
    that is not the number of its node."""
    share = bundle.get("GPU", 0)
    if not share:
        return None
    if share >= node.resources.get("GPU", 0):
        return ALL
    group = groups.find(attempt_id)
    if group is None:
        raise RayError(f"Ray holds nothing for {attempt_id}")
    holder = (
        ray.remote(Holder)
        .options(
            name=f"holder-{attempt_id}-{number}",
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            num_gpus=share,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=number if index is None else index
            ),
        )
        .remote()
    )
    return str(ray.get(holder.devices.remote(), timeout=wait))
