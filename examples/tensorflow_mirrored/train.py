"""tf.distribute.MirroredStrategy over two devices, here two logical CPUs. Seconds.

python train.py                 by itself: Ctrl-C stops it gracefully, starting it again goes on
whistle submit .                under a server: watch, stop, pause, resume, kill
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import whistlestop
from whistlestop.integrations.tensorflow import Epochs

EPOCHS, BATCH, SAMPLES = int(os.environ.get("EPOCHS", "5")), 32, 1024
keras.utils.set_random_seed(1)
if not tf.config.list_physical_devices("GPU"):
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)


def main() -> None:
    strategy = tf.distribute.MirroredStrategy(tf.config.list_logical_devices("GPU") or ["CPU:0", "CPU:1"])
    samples = tf.data.Dataset.from_tensor_slices(rings(SAMPLES, 1))
    data = Epochs(lambda epoch: samples.shuffle(SAMPLES, seed=epoch).batch(BATCH), strategy=strategy)
    held_out = rings(300, 2)
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(3)])
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)  # what is to be restored has to be there

    def replica_step(inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(inputs, training=True))
            loss = tf.reduce_sum(losses) / BATCH
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def train_step(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_step, args=batch), axis=None)

    with whistlestop.run("mirrored", every=50, stop_when=[whistlestop.plateau("val_loss", patience=3)]) as run:
        run.track(model=tf.train.Checkpoint(model=model, optimizer=optimizer), data=data, rng=True)
        for step in run.steps(total=EPOCHS * len(data), per_epoch=len(data)):
            run.log(loss=train_step(next(data)))
            if step.every(len(data)):
                with run.evaluating():
                    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(held_out[1], model(held_out[0]))
                    run.log(val_loss=tf.reduce_mean(losses))
        accuracy = float(np.mean(np.argmax(model(held_out[0]), axis=1) == held_out[1]))
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
