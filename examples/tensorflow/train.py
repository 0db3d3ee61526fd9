"""A loop of one's own in TensorFlow, with tf.train.Checkpoint and tf.data. Seconds on a CPU.

python train.py                 by itself: Ctrl-C stops it gracefully, starting it again goes on
whistle submit .                under a server: watch, stop, pause, resume, kill
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import whistlestop

EPOCHS, BATCH, SAMPLES = int(os.environ.get("EPOCHS", "5")), 32, 1024
PER_EPOCH = SAMPLES // BATCH


class Network(tf.Module):
    def __init__(self, noise: tf.random.Generator) -> None:
        super().__init__()
        self.noise = noise
        self.hidden = tf.Variable(noise.normal((2, 32)))
        self.bias = tf.Variable(tf.zeros(32))
        self.out = tf.Variable(noise.normal((32, 3)) / 6)

    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if training:
            inputs += self.noise.normal(tf.shape(inputs), stddev=0.05)
        return tf.nn.relu(inputs @ self.hidden + self.bias) @ self.out


def main() -> None:
    network = Network(tf.random.Generator.from_seed(1))
    momentum = [tf.Variable(tf.zeros_like(each)) for each in network.trainable_variables]
    iterator = iter(
        tf.data.Dataset.from_tensor_slices(rings(SAMPLES, 1)).shuffle(SAMPLES, seed=1).repeat().batch(BATCH)
    )
    held_out = rings(300, 2)

    @tf.function
    def train_step(inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels, network(inputs, training=True))
            )
        gradients = tape.gradient(loss, network.trainable_variables)
        for variable, velocity, gradient in zip(network.trainable_variables, momentum, gradients, strict=True):
            variable.assign_sub(0.05 * velocity.assign(0.9 * velocity + gradient))
        return loss

    with whistlestop.run("tensorflow", every=50, stop_when=[whistlestop.plateau("val_loss", patience=3)]) as run:
        # TensorFlow saves them: the network with its generator, the momentum, and where the iterator is in the data.
        model, data = tf.train.Checkpoint(network=network, momentum=momentum), tf.train.Checkpoint(iterator=iterator)
        run.track(model=model, data=data)
        for step in run.steps(total=EPOCHS * PER_EPOCH, per_epoch=PER_EPOCH):
            run.log(loss=train_step(*next(iterator)))
            if step.every(PER_EPOCH):
                with run.evaluating():
                    logits = network(held_out[0])
                    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(held_out[1], logits)
                    run.log(val_loss=tf.reduce_mean(losses))
        accuracy = float(np.mean(np.argmax(network(held_out[0]), axis=1) == held_out[1]))
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
