"""A small classifier with Keras's own fit(), on TensorFlow or on torch (KERAS_BACKEND). Seconds on a CPU.

python train.py                 by itself: Ctrl-C stops it gracefully, starting it again goes on
whistle submit .                under a server: watch, stop, pause, resume, kill
"""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import whistlestop
from whistlestop.integrations.keras import fit

EPOCHS = int(os.environ.get("EPOCHS", "5"))
keras.utils.set_random_seed(1)


def main() -> None:
    inputs, labels = rings(1000, seed=1)
    held_out = rings(300, seed=2)
    model = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    with whistlestop.run("keras", every="1 epoch", stop_when=[whistlestop.plateau("val_loss", patience=3)]) as run:
        # model.fit's arguments: it goes on at the very batch where it was left.
        fit(run, model, inputs, labels, batch_size=32, epochs=EPOCHS, validation_data=held_out, verbose=0)
        _, accuracy = model.evaluate(*held_out, verbose=0)
        run.summary["accuracy"] = accuracy
        print(f"accuracy on held-out data: {accuracy:.3f}")


def rings(count: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three rings around each other, with noise."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    angle = generator.uniform(0, 2 * np.pi, count)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (labels + 1)[:, None]
    return (points + generator.normal(0, 0.15, points.shape)).astype("float32"), labels


if __name__ == "__main__":
    main()
