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
from whistlestop.sdk.lazy import Lazy
from whistlestop.sdk.parts import part_of
from whistlestop.sdk.settled import settled
from whistlestop.testing.wait import until


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


def lazily(run: whistlestop.Run) -> Lazy:
    assert run._saver is not None
    assert run._saver._lazy is not None
    return run._saver._lazy


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


def test_what_the_optimizer_waits_for_is_part_of_what_a_save_costs(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    model, optimizer = made()
    with whistlestop.run("demo", every=4, lazy=True) as run:
        run.track(model=model, optimizer=optimizer)
        for step in run.steps(6):
            if step == 3:
                held.go.clear()
            if step == 4:
                assert run._measured.costs().save_seconds is None
                threading.Thread(target=lambda: (until(lambda: lazily(run)._since is not None), held.go.set())).start()
            if step == 5:
                cost = run._measured.costs().save_seconds
                assert cost is not None
                assert cost > lazily(run).waited > 0
            forward(model, step)
            optimizer.step()
    (told,) = [each.meta["costs"] for each in stored(alone).list("run-001") if each.step == 6]
    assert told["save_seconds"] == cost


def test_a_parameter_that_something_else_changes_meanwhile_fails_that_save_and_ends_laziness(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    held = Held(monkeypatch)
    model = torch.nn.Embedding(500, 64, max_norm=1.0)  # forward makes long rows shorter, in place
    with torch.no_grad():
        model.weight.mul_(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    states = {}
    with whistlestop.run("demo", every=3, keep=9, lazy=True) as run:
        run.track(model=model, optimizer=optimizer)
        for step in unhurried(run, run.steps(9)):
            model(torch.arange(50 * step, 50 * step + 50)).sum().backward()
            held.go.set()
            optimizer.step()
            held.go.clear()
            states[step + 1] = model.weight.detach().clone()
    kept = stored(alone).list("run-001")
    assert [each.step for each in kept] == [9, 6, 5]  # not 3; what was lost is made up for
    assert all(torch.equal(whistlestop.load(each.path)["model"]["weight"], states[each.step]) for each in kept)
    said = capfd.readouterr().err
    assert "step 3 could not be saved (on its cadence): something else than the optimizer's step changed" in said
    assert "shape (500, 64)" in said
    assert said.count("could not be saved") == 1


def test_what_the_program_saves_itself_is_copied_at_once(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    model, optimizer = made()
    with whistlestop.run("demo", lazy=True) as run:
        run.track(model=model, optimizer=optimizer)
        for step in run.steps(3):
            forward(model, step)
            optimizer.step()
            if step == 1:
                held.go.clear()
                saved = run.save()
                assert saved is not None
                weight = model[0].weight.detach().clone()
                with torch.no_grad():
                    model[0].weight.zero_()
                held.go.set()
    found = whistlestop.load(next(each.path for each in stored(alone).list("run-001") if each.step == 2))
    assert torch.equal(found["model"]["0.weight"], weight)


def test_a_save_that_is_due_while_another_is_copied_is_put_off(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    model, optimizer = made()
    forward(model, 0)
    optimizer.step()
    with whistlestop.run("demo", every=2, keep=9, lazy=True) as run:
        run.track(model=model, optimizer=optimizer)
        for step in run.steps(8):  # nobody calls the optimizer
            if step == 1:
                held.go.clear()
            if step == 5:
                held.go.set()
                run._saver.finish()  # type: ignore[union-attr]
    assert [each.step for each in stored(alone).list("run-001")] == [8, 6, 2]


def test_where_nothing_is_in_main_memory_it_is_said_that_lazy_does_nothing(
    alone: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parameter = torch.nn.Parameter(torch.ones(3, device="meta"))
    with whistlestop.run("demo", every=2, lazy=True) as run:
        run.track(optimizer=torch.optim.SGD([parameter], lr=0.1))
        list(unhurried(run, run.steps(7)))
    assert capfd.readouterr().err.count("lazy=True does nothing here: only what is in main memory") == 1


def test_two_optimizers_each_wait_for_the_copy(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    pairs = [made(), made()]
    done: list[int] = []
    with whistlestop.run("demo", every=2, keep=9, lazy=True) as run:
        run.track(**{f"{what}{n}": pair[m] for n, pair in enumerate(pairs) for m, what in enumerate(("model", "opt"))})
        for step in run.steps(3):
            if step == 1:
                held.go.clear()
            for number, (model, optimizer) in enumerate(pairs):
                forward(model, step)
                if step == 2:
                    thread = threading.Thread(target=lambda opt=optimizer, n=number: (opt.step(), done.append(n)))
                    thread.start()
                    if number == 0:
                        until(lambda: lazily(run)._since is not None)
                        assert done == []
                        held.go.set()
                    thread.join(20)
                else:
                    optimizer.step()
    assert done == [0, 1]


def test_what_the_program_changes_meanwhile_is_saved_as_it_was(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    model, optimizer = made()
    with whistlestop.run("demo", every=4, lazy=True) as run:
        run.track(model=model, optimizer=optimizer, counts=(counts := {"n": 7}))
        for step in run.steps(5):
            forward(model, step)
            if step == 4:
                optimizer.param_groups[0].update(lr=0.5, betas=(0.1, 0.2))
                counts["n"] = 8
                held.go.set()
            optimizer.step()
            if step == 3:
                at_boundary = model[1].running_mean.clone()
                held.go.clear()
    found = whistlestop.load(next(each.path for each in stored(alone).list("run-001") if each.step == 4))
    assert torch.equal(found["model"]["1.running_mean"], at_boundary)
    group = found["optimizer"]["param_groups"][0]
    assert (group["lr"], group["betas"], found["counts"]) == (0.1, (0.9, 0.999), {"n": 7})
    assert found["optimizer"]["state"][0]["step"] == 4


class Extra(torch.nn.Module):
    def get_extra_state(self) -> Any:
        return {"anything": []}


def settles(thing: Any, *optimizers: Any) -> bool:
    part = part_of("thing", thing)
    return settled(part, part.save(), Lazy(optimizers).storages()) is not None


def test_only_states_that_are_known_to_stay_are_taken_apart_later() -> None:
    model, optimizer = made()
    forward(model, 0)
    optimizer.step()
    assert settles(model, optimizer)
    assert settles(optimizer, optimizer)
    assert not settles(Extra(), optimizer)
    frozen = torch.nn.Linear(2000, 2000)
    assert not settles(frozen, optimizer)  # copied at once: twice would take too long
    by_tensor = torch.optim.SGD(frozen.parameters(), lr=torch.tensor(0.1))
    assert settles(frozen, by_tensor)
    assert not settles(by_tensor, by_tensor)  # schedules change such a rate in place
    frozen(torch.ones(2000)).sum().backward()
    searching = torch.optim.LBFGS(frozen.parameters(), max_iter=1)
    searching.step(lambda: torch.ones(1))
    assert not settles(searching, searching)
    shared = torch.nn.Module()
    shared.register_buffer("whole", whole := torch.ones(10))
    shared.register_buffer("rest", whole[5:])
    assert not settles(shared, optimizer)


def test_a_state_dict_that_a_hook_returns_is_not_written_to() -> None:
    model, optimizer = made()
    own = dict(model.state_dict())
    before = dict(own)
    model._register_state_dict_hook(lambda *given: own)
    assert settles(model, optimizer)
    assert all(own[name] is before[name] for name in before)
