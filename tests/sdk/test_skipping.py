"""Data that a roll-back passes over is not trained on, whatever the loader, and also when the loop is resumed."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whistlestop
from whistlestop.channel import layout


class Stream:
    """Something that can only be gone over; with its length, or without."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class Stateful:
    """As torchdata's loaders: it goes on where its state says."""

    def __init__(self) -> None:
        self.next = 0

    def __iter__(self) -> Iterator[int]:
        while self.next < 10:
            self.next += 1
            yield self.next - 1
        self.next = 0

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


LOADERS: dict[str, Callable[[], Iterable[Any]]] = {
    "a sequence": lambda: list(range(10)),
    "batches": lambda: whistlestop.Batches(10, 1, shuffle=False, rank=0, world=1),
    "a stream": Stream,
    "a loader with a state": Stateful,
    "a generator": lambda: (number for number in range(10)),
}
AGAIN = [name for name in LOADERS if name != "a generator"]  # it can be gone over only once


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    def go(loader: str, skip: str = "[]", leave: int | None = None, epochs: int | None = 2) -> list[int]:
        monkeypatch.setenv(layout.ENV_SKIP, skip)
        seen: list[int] = []
        with contextlib.suppress(KeyError), whistlestop.run("x", checkpoints=tmp_path / loader) as run:
            for step, item in run.each(LOADERS[loader](), epochs=epochs):
                seen.append(item[0] if isinstance(item, list) else item)
                if step == leave:
                    run.save()
                    raise KeyError("it crashed")
        return seen

    return go


@pytest.mark.parametrize("loader", AGAIN)
def test_what_is_passed_over_is_not_trained_on_also_over_the_end_of_an_epoch(
    train: Callable[..., list[int]], loader: str
) -> None:
    whole = [*range(10), *range(10)]
    assert train(loader, "[[3, 6], [9, 12]]") == [*whole[:3], *whole[6:9], *whole[12:]]


@pytest.mark.parametrize("loader", AGAIN)
def test_a_loop_that_is_resumed_passes_over_what_was_added_since_and_nothing_twice(
    train: Callable[..., list[int]], loader: str
) -> None:
    assert train(loader, leave=4) == [0, 1, 2, 3, 4]
    assert train(loader, "[[5, 8]]", leave=6) == [8, 9]
    assert train(loader, "[[5, 8], [12, 14]]") == [0, 1, 4, 5, 6, 7, 8, 9]  # of the second epoch


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("behind", [10, 11, 504])
def test_a_range_that_reaches_behind_the_end_ends_the_training_there(
    train: Callable[..., list[int]], loader: str, behind: int
) -> None:
    assert train(loader, f"[[5, {behind}]]", epochs=1) == list(range(5))


def test_data_that_can_not_be_gone_over_again_ends_where_it_ends(train: Callable[..., list[int]]) -> None:
    assert train("a generator", "[[5, 504]]", epochs=None) == list(range(5))


def test_it_ends_there_also_after_a_change_of_the_batch_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def go(size: int, leave: int | None = None) -> list[int]:
        seen: list[int] = []
        with contextlib.suppress(KeyError), whistlestop.run("x", checkpoints=tmp_path) as run:
            for step, item in run.each(whistlestop.Batches(12, size, shuffle=False, rank=0, world=1), epochs=1):
                seen += item
                if step == leave:
                    run.save()
                    raise KeyError("it crashed")
        return seen

    assert go(2, leave=1) == [0, 1, 2, 3]
    monkeypatch.setenv(layout.ENV_SKIP, "[[4, 500]]")
    assert go(1) == [4, 5]


def test_an_epoch_that_begins_in_what_is_passed_over_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(layout.ENV_SKIP, "[[9, 12]]")
    with whistlestop.run("x", checkpoints=tmp_path) as run:
        told: list[Any] = []
        monkeypatch.setattr(run, "_tell", told.append)
        steps = [int(step) for step, _ in run.each(Stream(), epochs=2)]
    assert steps == list(range(17))
    assert [(each["epoch"], each["step"]) for each in told if each["kind"] == "epoch"] == [(1, 9)]


def test_a_variable_that_makes_no_sense_passes_over_nothing(
    train: Callable[..., list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("a sequence", '[[5, "x"]]') == [*range(10), *range(10)]
    assert "no data is passed over" in capsys.readouterr().err


def test_a_loop_of_its_own_asks_for_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(layout.ENV_SKIP, "[[3, 6]]")
    with whistlestop.run("x", checkpoints=tmp_path) as run:
        assert [run.batch_of(step) for step in run.steps(total=5)] == [0, 1, 2, 6, 7]
        assert run.skipped == ((3, 6),)
