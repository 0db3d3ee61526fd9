"""Values that come back from a checkpoint are bound to devices only where those before them were."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from whistlestop.testing.example_program import QUIET, quiet_environment
from whistlestop.testing.missing import missing

SCRIPT = """
import jax, numpy, optax
from jax.sharding import NamedSharding, PartitionSpec
from whistlestop.integrations.jax import Held

spread = NamedSharding(jax.make_mesh((2,), ("data",)), PartitionSpec("data"))
whole = NamedSharding(spread.mesh, PartitionSpec())
optimizer = optax.adam(0.1)
params = jax.device_put(numpy.ones(4, "float32"), spread)

@jax.jit
def step(params, state, key, bound):
    noise = jax.random.normal(key, params.shape) + jax.random.normal(bound, params.shape)
    updates, state = optimizer.update(params + noise, state)
    return optax.apply_updates(params, updates), state

keys = {"key": jax.random.key(1), "bound": jax.device_put(jax.random.key(2), whole)}
held = Held(params=params, state=optimizer.init(params), **keys)
before = [each.committed for each in jax.tree.leaves(vars(held))]
straight, _ = step(**vars(held))
held.load_state_dict(held.state_dict())
assert [each.committed for each in jax.tree.leaves(vars(held))] == before
assert held.params.sharding == spread and held.bound.sharding == whole
resumed, _ = step(**vars(held))
assert (straight == resumed).all()
assert True in before and False in before
"""


def test_a_restored_state_runs_in_a_program_over_several_devices(tmp_path: Path) -> None:
    for name in ("jax", "optax"):
        if importlib.util.find_spec(name) is None:
            missing(f"{name} is not installed")
    flags = f"{QUIET['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=quiet_environment(XLA_FLAGS=flags),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr[-3000:]
