"""What the example of Keras does not show: stops inside the evaluation, other callbacks, data that can't be moved."""

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from whistlestop.testing.example_program import quiet_environment
from whistlestop.testing.missing import missing

SCRIPT = '''
import json, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import keras, numpy
import whistlestop
from whistlestop.channel.layout import Word
from whistlestop.integrations.keras import Resumable, callbacks_for, fit

x = numpy.random.default_rng(0).normal(size=(100, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)

class Given(keras.utils.PyDataset):
    def __len__(self):
        return 10
    def __getitem__(self, index):
        return x[index * 10 : index * 10 + 10], y[index * 10 : index * 10 + 10]

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

if keras.backend.backend() == "torch":
    from torch import tensor
    from torch.utils.data import DataLoader, TensorDataset
    loader = DataLoader(TensorDataset(tensor(x), tensor(y)), batch_size=10)
else:
    import tensorflow
    loader = tensorflow.data.Dataset.from_tensor_slices((x, y)).batch(10)

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
keras.utils.set_random_seed(1)  # fit() shuffles by it, and does not begin with batch 0
with whistlestop.run("direct", checkpoints="direct") as run:
    data = Resumable(x, y, batch_size=10)
    model.fit(data, shuffle=True, callbacks=callbacks_for(run, data), verbose=0)

def some_epochs(*moment):
    """The last quarter is for validation; the first two epochs are of another fit."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with whistlestop.run("some", checkpoints="some" + "-parted" * bool(moment)) as run:
        pulls = [Pull(*moment)] if moment else []
        given = dict(validation_split=0.25, initial_epoch=2, epochs=4, verbose=0, callbacks=pulls)
        history = fit(run, model, x, y, batch_size=5, **given)
        total = run._attachment.progress[Word.TOTAL]
    return {
        "epochs": history.epoch, "total": total, "iterations": int(model.optimizer.iterations),
        "val_loss": history.history.get("val_loss"), "after": model.evaluate(x[75:], y[75:], verbose=0),
    }

print(json.dumps({
    "some": some_epochs(),
    "some cut": some_epochs("train", 20),
    "straight": go("straight", (x, y)),
    "cut": go("evaluation", (x, y), "test", 6),  # the second evaluation: one has 4 batches
    "resumed": go("evaluation", (x, y)),
    "parted": go("middle", (x, y), "train", 14),
    "joined": go("middle", (x, y)),
    "given": go("given", (Given(),)),
    "given parted": go("given-parted", (Given(),), "train", 14),
    "given joined": go("given-parted", (Given(),)),
    "foreign": go("foreign", (loader,), "train", 14),
    "again": go("foreign", (loader,)),
}))
'''


@pytest.fixture(scope="module", params=["tensorflow", pytest.param("torch", marks=pytest.mark.long)])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    for name in ("keras", request.param):
        if importlib.util.find_spec(name) is None:
            missing(f"{name} is not installed")
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path_factory.mktemp("fit"),
        env=quiet_environment(KERAS_BACKEND=request.param),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert child.returncode == 0, child.stderr
    return {**json.loads(child.stdout), "stderr": child.stderr}


def test_a_stop_inside_the_evaluation_ends_it_and_a_resume_makes_it_whole(told: dict[str, Any]) -> None:
    cut, resumed, straight = (told[name] for name in ("cut", "resumed", "straight"))
    assert len(cut["loss"]) == 2
    assert len(cut["val_loss"]) == 1  # the second is half a result: nobody sees it
    assert resumed == straight  # history, weights, and the patience of EarlyStopping


@pytest.mark.parametrize("kind", ["", "given "])
def test_a_stop_in_mid_epoch_and_a_resume_give_the_straight_result(told: dict[str, Any], kind: str) -> None:
    assert told[f"{kind}parted"]["iterations"] == 14
    assert told[f"{kind}joined"] == told[kind.strip() or "straight"]


def test_a_part_of_the_arrays_can_be_kept_for_validation(told: dict[str, Any]) -> None:
    some = told["some"]
    assert some["iterations"] == 2 * 75 / 5
    assert some["val_loss"][-1] == pytest.approx(some["after"], rel=1e-5)  # the last quarter, as Keras has it


def test_the_total_counts_only_the_epochs_that_run(told: dict[str, Any]) -> None:
    assert told["some"]["epochs"] == [2, 3]
    assert told["some"]["total"] == told["some"]["iterations"]
    assert told["some cut"]["iterations"] == 20  # in the second of them


def test_data_that_fit_shuffles_again_is_warned_of(told: dict[str, Any]) -> None:
    assert "give it shuffle=False to resume exactly" in told["stderr"]


def test_data_that_cannot_be_moved_is_trained_again_with_a_warning(told: dict[str, Any]) -> None:
    foreign, again = told["foreign"], told["again"]
    assert foreign["iterations"] == 14
    assert again["iterations"] == 14 + 20  # the second epoch's 10 batches, 4 of them once more, and the third's
    assert "first 4 batches are trained again" in told["stderr"]
    assert "ran out of data" not in told["stderr"]
