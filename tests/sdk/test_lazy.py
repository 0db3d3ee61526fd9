"""Saves that are copied while forward and backward run."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.sdk.conftest import unhurried

import whistlestop
from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.sdk import staging


class Held:
    """Copies that wait until the test lets them go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()
        real = staging.Laid.finish

        def finish(laid: Any) -> None:
            self.begun.set()
            assert self.go.wait(20)
            real(laid)

        monkeypatch.setattr(staging.Laid, "finish", finish)


def made() -> tuple[Any, Any]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.BatchNorm1d(300))
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def forward(model: Any, step: int) -> None:
    model(torch.randn(8, 300, generator=torch.Generator().manual_seed(step))).square().mean().backward()


def stored(alone: Path) -> CheckpointStore:
    return CheckpointStore(alone / "whistle-checkpoints" / "demo")


@pytest.mark.parametrize("lazy", [True, False])
def test_what_is_saved_is_the_state_of_the_boundary(alone: Path, monkeypatch: pytest.MonkeyPatch, lazy: bool) -> None:
    model, optimizer = made()
    states = {}
    with whistlestop.run("demo", every=2, keep=10, lazy=lazy) as run:
        run.track(model=model, optimizer=optimizer, counts=(counts := {"n": 0}))
        for step in unhurried(run, run.steps(9)):
            forward(model, step)
            optimizer.step()
            optimizer.zero_grad()
            counts["n"] += 1
            states[step + 1] = {name: each.clone() for name, each in model.state_dict().items()}
    kept = stored(alone).list("run-001")
    assert [each.step for each in kept] == [9, 8, 6, 4, 2]
    for each in kept:
        found = whistlestop.load(each.path)
        assert found["counts"] == {"n": each.step}
        assert all(torch.equal(found["model"][name], state) for name, state in states[each.step].items())


def test_the_optimizer_waits_for_the_copy_and_forward_does_not(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    model, optimizer = made()
    saved_weights: dict[str, Any] = {}
    with whistlestop.run("demo", every=4, lazy=True) as run:
        run.track(model=model, optimizer=optimizer)
        for step in run.steps(6):
            if step == 3:
                held.go.clear()
            if step == 4:
                assert held.begun.wait(20)
                saved_weights = {name: each.clone() for name, each in model.state_dict().items()}
                forward(model, step)
                assert not torch.equal(model[1].running_mean, saved_weights["1.running_mean"])
                assert stored(alone).list("run-001") == []
                threading.Timer(0.05, held.go.set).start()
            else:
                forward(model, step)
            optimizer.step()
            assert held.go.is_set() or step == 3
            optimizer.zero_grad()
        assert run._saver is not None
    found = whistlestop.load(next(each.path for each in stored(alone).list("run-001") if each.step == 4))
    assert all(torch.equal(found["model"][name], each) for name, each in saved_weights.items())


def test_a_copy_that_fails_is_a_warning(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    model, optimizer = made()

    def fail(laid: Any) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(staging.Laid, "finish", fail)
    with whistlestop.run("demo", every=4, lazy=True) as run:
        run.track(model=model, optimizer=optimizer)
        for step in run.steps(6):
            forward(model, step)
            optimizer.step()
    assert "step 4 could not be saved (on its cadence)" in capfd.readouterr().err
    assert [each.step for each in stored(alone).list("run-001")] == [6]  # the last one is copied at once


def test_without_an_optimizer_it_is_said_that_it_does_nothing(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with whistlestop.run("demo", every=2, lazy=True) as run:
        run.track(state={"a": 1})
        list(run.steps(4))
    assert "lazy=True does nothing here" in capfd.readouterr().err
    assert len(stored(alone).list("run-001")) == 2
