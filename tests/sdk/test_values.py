"""Whatever people log: nothing raises into the loop, nothing waits for a device, nothing is lost."""

import math
from typing import Any

import pytest

import whistlestop
from whistlestop.sdk import values
from whistlestop.sdk.values import LateValues, is_late, is_plain
from whistlestop.testing.missing import needed


class Device:
    type = "cuda"


class Scalar:
    """A number on a device: reading it is counted. Its type says that it is torch's, as the real one does."""

    reads = 0

    def __init__(self, value: float) -> None:
        self.value = value
        self.device = Device()

    def numel(self) -> int:
        return 2  # one by one: what is stacked is the business of a real torch

    def detach(self) -> "Scalar":
        return self

    def __float__(self) -> float:
        Scalar.reads += 1
        return self.value


Scalar.__module__ = "torch"


@pytest.fixture(autouse=True)
def _no_reads() -> None:
    Scalar.reads = 0


@pytest.fixture
def _young(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, none of them is surely computed yet."""
    monkeypatch.setattr(values, "AGE_SECONDS", 600.0)


@pytest.mark.usefixtures("_young")
def test_values_on_a_device_are_not_read_in_the_loop(attached: Any) -> None:
    with whistlestop.run() as run:
        for step in run.steps(40):
            run.log(loss=Scalar(float(step)), lr=0.1)
            assert Scalar.reads == 0
    assert Scalar.reads == 40
    losses = [(step, seen["loss"]) for step, seen in attached.points() if "loss" in seen]
    assert losses == [(step, float(step)) for step in range(40)]
    assert [step for step, seen in attached.points() if "lr" in seen] == list(range(40))


@pytest.mark.usefixtures("_young")
def test_many_of_them_are_read_in_lots(attached: Any) -> None:
    lots = []
    with whistlestop.run() as run:
        for _ in run.steps(200):
            run.log(loss=Scalar(1.0))
            if Scalar.reads != (lots[-1] if lots else 0):
                lots.append(Scalar.reads)
    assert 2 <= len(lots) <= 8
    assert len(attached.points()) == 200


def test_a_save_has_the_newest_values(attached: Any) -> None:
    with whistlestop.run(every=5) as run:
        for step in run.steps(5):
            run.log(loss=Scalar(float(step)))
    assert attached.store.list("train")[0].meta["metrics"] == {"loss": 4.0}


def test_a_late_value_that_is_no_number_is_left_out() -> None:
    class Bad(Scalar):
        def __float__(self) -> float:
            raise ValueError("no")

    Bad.__module__ = "torch"
    written, refused = list[Any](), list[str]()
    late = LateValues(lambda step, at, good: written.append((step, good)), lambda name, value: refused.append(name))
    late.keep(1, 0.0, {"a": Bad(1.0), "b": Scalar(2.0)})
    late.settle()
    assert (written, refused) == ([(1, {"b": 2.0})], ["a"])


def test_what_is_plain_and_what_is_late() -> None:
    assert all(map(is_plain, (1.0, 1, True)))
    assert not any(map(is_plain, ("1", None, Scalar(1.0))))
    assert is_late(Scalar(1.0))
    assert not is_late(1.0)


def test_real_scalars_of_every_framework_arrive(attached: Any) -> None:
    numpy = needed("numpy")
    torch = needed("torch")
    jax = needed("jax")
    with whistlestop.run() as run:
        for _ in run.steps(3):
            run.log(
                n32=numpy.float32(0.5),
                n0=numpy.array(0.5),
                i=numpy.int64(3),
                t=torch.tensor(0.5, requires_grad=True) * 1,
                half=torch.tensor(0.5, dtype=torch.bfloat16),
                j=jax.numpy.float32(0.5),
            )
    flat: dict[str, list[float]] = {}
    for _, seen in attached.points():
        for name, value in seen.items():
            flat.setdefault(name, []).append(value)
    assert flat == {name: [0.5] * 3 for name in ("n32", "n0", "t", "half", "j")} | {"i": [3.0] * 3}
    assert is_late(jax.numpy.float32(0.5))
    assert not is_late(torch.tensor(0.5))


def test_real_torch_scalars_are_read_in_one_transfer() -> None:
    torch = needed("torch")
    mixed = [torch.tensor(1.5), torch.tensor([2.5]), torch.tensor(3), "four", torch.zeros(2)]
    assert values._numbers(mixed) == [1.5, 2.5, 3.0, None, None]


def test_odd_values_never_raise_into_the_loop(attached: Any) -> None:
    class Rude:
        def __float__(self) -> float:
            raise RuntimeError("no")

    with whistlestop.run() as run:
        for _ in run.steps(2):
            run.log(a=math.nan, b=math.inf, c="text", d=None, e=Rude(), f=[1], g=1.0, h=10**400)
            run.log(**{"train/loss": 1.0, "ünïcode": 2.0, "": 3.0})
            run.log_at(7, {"x y": 1.0})
            run.log()
    names = {name for _, seen in attached.points() for name in seen}
    assert {"a", "b", "g", "train/loss", "ünïcode", "", "x y"} == names
    assert [step for step, seen in attached.points() if "x y" in seen] == [7, 7]


def test_names_that_a_rule_watches_are_seen_at_once(attached: Any) -> None:
    with whistlestop.run(stop_when=[whistlestop.below("loss", 0.5)]) as run:
        for step in run.steps(100):
            run.log(lr=0.1)
            run.log(loss=1.0 - step / 10)
    assert run._at[0] == 7
    (told,) = attached.events("stop_reasons")
    assert told["reasons"][0]["reason"] == "threshold_reached"
    assert len(attached.points()) == 14


def test_a_rule_sees_every_late_value_and_stops_at_a_fixed_step(attached: Any) -> None:
    ends = []
    for _ in range(2):
        with whistlestop.run(stop_when=[whistlestop.plateau("loss", patience=5)]) as run:
            for _ in run.steps(100):
                run.log(loss=Scalar(1.0))
        ends.append(run._at[0])
    assert ends[0] == 16


def test_a_late_value_that_is_not_finite_makes_the_checkpoint_unhealthy(attached: Any) -> None:
    with whistlestop.run(stop_when=[whistlestop.non_finite()], every=10) as run:
        for step in run.steps(100):
            run.log(loss=Scalar(math.nan if step == 6 else 1.0))
    assert {each.step: each.healthy for each in attached.store.list("train")} == {10: False, 11: False}


def test_a_late_value_is_the_one_that_was_logged(attached: Any) -> None:
    torch = needed("torch")
    jax = needed("jax")
    total, donated = torch.zeros(()), jax.numpy.float32(0)
    grow = jax.jit(lambda value: value + 1, donate_argnums=0)
    late = list[tuple[int, dict[str, float]]]()
    kept = LateValues(lambda step, at, good: late.append((step, dict(good))), lambda name, value: None)
    for step in range(3):
        total += 1
        kept.keep(step, 0.0, {"torch": total, "jax": donated})
        donated = grow(donated)
    total.zero_()
    kept.settle()
    assert late == [(step, {"torch": step + 1.0, "jax": float(step)}) for step in range(3)]


def test_late_values_do_not_wait_for_the_next_log_call(attached: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("whistlestop.sdk.looping._time", lambda: clock[0])
    monkeypatch.setattr("whistlestop.sdk.training.time.time", lambda: clock[0])
    with whistlestop.run() as run:
        for step in run.steps(10):
            if step == 0:
                run.log(loss=Scalar(1.0))
            clock[0] += 0.6
            if step == 5:
                assert len(attached.points()) == 1
