"""A loop with JAX, Flax (nnx), Optax and Orbax. Seconds on a CPU.

python train.py                 by itself: Ctrl-C stops it gracefully, starting it again goes on
whistle submit .                under a server: watch, stop, pause, resume, kill
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import whistlestop
from whistlestop.integrations.jax import Held, saves_with_orbax

EPOCHS, BATCH, SAMPLES = int(os.environ.get("EPOCHS", "5")), 32, 1024


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(2, 32, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.out = nnx.Linear(32, 3, rngs=rngs)

    def __call__(self, inputs: jax.Array) -> jax.Array:
        return self.out(self.dropout(nnx.relu(self.hidden(inputs))))


def loss_of(network: Network, inputs: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(network(inputs), labels).mean()


@nnx.jit
def train_step(network: Network, optimizer: nnx.Optimizer, key: jax.Array, inputs: jax.Array, labels: jax.Array):
    key, now = jax.random.split(key)
    inputs += 0.05 * jax.random.normal(now, inputs.shape)
    loss, gradients = nnx.value_and_grad(loss_of)(network, inputs, labels)
    optimizer.update(network, gradients)
    return key, loss


def main() -> None:
    inputs, labels = rings(SAMPLES, 1)
    held_out = rings(300, 2)
    network = Network(nnx.Rngs(1))
    optimizer = nnx.Optimizer(network, optax.adam(0.01), wrt=nnx.Param)
    state = Held(network=network, optimizer=optimizer, key=jax.random.key(2))
    batches = whistlestop.Batches(SAMPLES, BATCH, seed=3)
    with whistlestop.run("jax", every=50, stop_when=[whistlestop.plateau("val_loss", patience=3)]) as run:
        saves_with_orbax(run, state)  # or, without Orbax: run.track(state=state)
        for step, chosen in run.each(batches, epochs=EPOCHS):
            chosen = np.asarray(chosen)
            state.key, loss = train_step(network, optimizer, state.key, inputs[chosen], labels[chosen])
            run.log(loss=loss)  # not waited for: JAX goes on computing
            if step.every(len(batches)):
                with run.evaluating():
                    network.eval()
                    run.log(val_loss=loss_of(network, *held_out))
                    network.train()
        network.eval()
        accuracy = float(jnp.mean(jnp.argmax(network(held_out[0]), axis=1) == held_out[1]))
        run.summary["accuracy"] = accuracy
        print(f"accuracy on held-out data: {accuracy:.3f}")


def rings(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three rings around each other, with noise."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    angle = generator.uniform(0, 2 * np.pi, count)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (labels + 1)[:, None]
    return (points + generator.normal(0, 0.15, points.shape)).astype("float32"), labels


if __name__ == "__main__":
    main()
