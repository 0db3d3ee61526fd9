"""What the example of Keras does not show: stops inside the evaluation, other callbacks, data that can't be moved."""

import importlib.util
import json
import subprocess
import sys

import pytest

from whistlestop.testing.example_program import quiet_environment
from whistlestop.testing.missing import missing

SCRIPT = '''
import json, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import keras, numpy, torch
import whistlestop
from whistlestop.integrations.keras import fit

x = numpy.random.default_rng(0).normal(size=(100, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)

class Pull(keras.callbacks.Callback):
    """Ctrl-C at that moment, once."""
    def __init__(self, moment, count):
        super().__init__()
        self.moment, self.seen, self.count = moment, 0, count
    def pull(self, moment):
        self.seen += moment == self.moment
        if moment == self.moment and self.seen == self.count:
            os.kill(os.getpid(), signal.SIGINT)
    def on_test_batch_begin(self, batch, logs=None):
        self.pull("test")
    def on_train_batch_begin(self, batch, logs=None):
        self.pull("train")

def go(where, data, *moment):
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential([keras.Input((4,)), layers.Dense(8), layers.Dropout(0.2), layers.Dense(1)])
    model.compile("adam", "mse")
    early = keras.callbacks.EarlyStopping(patience=10, min_delta=1000)
    with whistlestop.run("fit", checkpoints=where) as run:
        callbacks = [early, *([Pull(*moment)] if moment else [])]
        given = dict(epochs=3, validation_data=(x, y), verbose=0, callbacks=callbacks)
        history = fit(run, model, *data, batch_size=10, **given)
        return {
            "loss": history.history.get("loss"), "val_loss": history.history.get("val_loss"), "epochs": history.epoch,
            "weights": [weight.tolist() for weight in model.get_weights()], "wait": early.wait, "best": early.best,
            "iterations": int(model.optimizer.iterations),
        }

loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y)), batch_size=10)
print(json.dumps({
    "straight": go("straight", (x, y)),
    "cut": go("evaluation", (x, y), "test", 6),  # the second evaluation: one has 4 batches
    "resumed": go("evaluation", (x, y)),
    "foreign": go("foreign", (loader,), "train", 14),
    "again": go("foreign", (loader,)),
}))
'''


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    for name in ("keras", "torch"):
        if importlib.util.find_spec(name) is None:
            missing(f"{name} is not installed")
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path_factory.mktemp("fit"),
        env=quiet_environment(KERAS_BACKEND="torch"),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert child.returncode == 0, child.stderr
    return {**json.loads(child.stdout), "stderr": child.stderr}


def test_a_stop_inside_the_evaluation_ends_it_and_a_resume_makes_it_whole(told: dict[str, object]) -> None:
    cut, resumed, straight = (told[name] for name in ("cut", "resumed", "straight"))
    assert isinstance(cut, dict)
    assert len(cut["loss"]) == 2
    assert len(cut["val_loss"]) == 1  # the second is half a result: nobody sees it
    assert resumed == straight  # history, weights, and the patience of EarlyStopping


def test_data_that_cannot_be_moved_is_trained_again_with_a_warning(told: dict[str, object]) -> None:
    foreign, again = told["foreign"], told["again"]
    assert isinstance(foreign, dict)
    assert isinstance(again, dict)
    assert foreign["iterations"] == 14
    assert again["iterations"] == 14 + 20  # the second epoch's 10 batches, 4 of them once more, and the third's
    assert "first 4 batches are trained again" in str(told["stderr"])
    assert "ran out of data" not in str(told["stderr"])
