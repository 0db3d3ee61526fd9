import json
import pickle

from whistlestop.sdk.step import step_type


def test_a_step_is_an_int_that_knows_its_epoch() -> None:
    make = step_type(total=10, per_epoch=4)
    step = make(9)
    assert (step, step + 1, [0] * 10 + [7], json.dumps(step)) == (9, 10, [0] * 10 + [7], "9")
    assert (step.epoch, step.batch, step.last) == (2, 1, True)
    assert repr(step) == str(step) == f"{step}" == "9"


def test_every_is_true_on_the_step_that_completes_that_many() -> None:
    make = step_type(total=None, per_epoch=None)
    assert [index for index in range(10) if make(index).every(3)] == [2, 5, 8]


def test_without_epochs_the_batch_is_the_step() -> None:
    step = step_type(total=None, per_epoch=None)(7)
    assert (step.epoch, step.batch, step.last) == (0, 7, False)


def test_a_step_is_pickled_as_a_plain_int() -> None:
    copied = pickle.loads(pickle.dumps(step_type(total=3, per_epoch=None)(2)))
    assert type(copied) is int
    assert copied == 2
