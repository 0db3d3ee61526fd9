"""What a training consumes over many interruptions, with real loaders: the same samples, in the same order."""

import gc
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.sdk.batches import Batches, position_of
from whistlestop.testing.forks import Forks
from whistlestop.testing.missing import missing

try:
    from torch.utils.data import DataLoader, Dataset
except ImportError:
    missing("torch")

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than this machine has cores
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata calls it
]

EPOCHS = 3
LENGTH = 203
SIZE = 4
INTERRUPTIONS = 20


class Numbers(Dataset[int]):
    """Each sample is its own number."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        return index


def as_list(samples: list[int]) -> list[int]:
    return samples


def uninterrupted() -> list[list[int]]:
    found: list[list[int]] = []
    for epoch in range(EPOCHS):
        batches = Batches(LENGTH, SIZE, seed=6)
        batches.seek(epoch)
        found += list(batches)
    return found


def cuts(steps: int) -> list[int]:
    """Where the training is interrupted: anywhere, at an epoch's first and last step too."""
    per_epoch = steps // EPOCHS
    chosen = random.Random(4).sample(range(1, steps), INTERRUPTIONS - 3)
    return sorted({*chosen, per_epoch, per_epoch - 1, 2 * per_epoch + 1})


@pytest.fixture(autouse=True)
def closed_workers() -> Iterator[None]:
    yield
    gc.collect()  # a loader that was left in the middle ends its workers when it is collected


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 1, "persistent_workers": True, "prefetch_factor": 7},
        {"num_workers": 2, "persistent_workers": False, "prefetch_factor": 2},
        {"num_workers": 4, "persistent_workers": True, "prefetch_factor": 5},
    ],
    ids=lambda options: "-".join(str(each) for each in options.values()),
)
def test_twenty_interruptions_change_nothing_in_what_is_consumed(options: dict[str, Any]) -> None:
    expected = uninterrupted()
    per_epoch = len(expected) // EPOCHS
    consumed: list[list[int]] = []
    for cut in [*cuts(len(expected)), len(expected)]:
        loader = DataLoader(Numbers(), batch_sampler=Batches(LENGTH, SIZE, seed=6), collate_fn=as_list, **options)
        consume(loader, consumed, per_epoch=per_epoch, until=cut)
        assert len(consumed) == cut
    assert consumed == expected


def consume(loader: Any, consumed: list[list[int]], *, per_epoch: int, until: int) -> None:
    """One attempt. All it knows of the earlier ones is how many steps they did; persistent workers last through it."""
    batches = position_of(loader)
    assert isinstance(batches, Batches)
    while len(consumed) < until:
        epoch, batch = divmod(len(consumed), per_epoch)
        batches.seek(epoch, batch)
        for item in loader:
            consumed.append(item)
            if len(consumed) == until:
                return


def test_batches_also_make_up_whole_items_for_a_dataset_that_takes_lists() -> None:
    class Table(Dataset[list[int]]):
        def __getitem__(self, indices: list[int]) -> list[int]:  # type: ignore[override]
            return [index * 10 for index in indices]

    batches = Batches(LENGTH, SIZE, seed=6)
    loader = DataLoader(Table(), sampler=batches, batch_size=None, collate_fn=as_list)
    assert position_of(loader) is batches
    batches.seek(1, 5)
    assert list(loader) == [[index * 10 for index in indices] for indices in batches]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", ["its own", "Batches"])
def test_a_loader_with_a_state_of_its_own_goes_on_from_what_was_consumed(workers: int, sampler: str) -> None:
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader
    except ImportError:
        missing("torchdata")
    import torch

    def make() -> Any:
        if sampler == "Batches":
            options: dict[str, Any] = {"batch_sampler": Batches(LENGTH, SIZE, seed=6)}
        else:
            options = {"batch_size": SIZE, "shuffle": True, "generator": torch.Generator().manual_seed(6)}
        return StatefulDataLoader(Numbers(), num_workers=workers, collate_fn=as_list, **options)

    loader = make()
    assert position_of(loader) == "stateful" or sampler == "Batches"
    expected = list(loader)
    consumed: list[list[int]] = []
    state: Any = None
    interruptions = INTERRUPTIONS if workers == 0 else 6  # each one starts its workers anew
    for cut in [*sorted(random.Random(5).sample(range(1, len(expected)), interruptions)), len(expected)]:
        loader = make()
        if state is not None:
            loader.load_state_dict(state)
        for item in loader:
            consumed.append(item)
            if len(consumed) == cut:
                break
        state = loader.state_dict()  # more has been fetched by now
    assert consumed == expected


PLAIN = """
import json, os, random, sys
import torch
from torch.utils.data import DataLoader, TensorDataset
import whistlestop

torch.manual_seed(5)
workers, own = int(sys.argv[2]), sys.argv[3] == "own"
data = TensorDataset(torch.arange(40))
generator = torch.Generator().manual_seed(9) if own else None
loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=workers, generator=generator)
stop = int(sys.argv[4])
with whistlestop.run("plain", checkpoints=sys.argv[1]) as run:
    run.track(rng=True)
    for step, (batch,) in run.each(loader, epochs=3):
        print(json.dumps([int(step), batch.tolist(), float(torch.rand(()))]))
        if step + 1 == stop:
            run.finish("enough")
"""


@pytest.fixture(scope="module")
def torch_loaded() -> Iterator[Forks]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("WHISTLE_", "RANK"))}
    forks = Forks("import torch", clean)
    yield forks
    forks.close()


@pytest.mark.parametrize(("workers", "own"), [(0, "global"), (0, "own"), (2, "global")])
def test_a_plain_loader_that_shuffles_goes_on_in_the_same_order(
    torch_loaded: Forks, tmp_path: Path, workers: int, own: str
) -> None:
    """No Batches, no state of its own: its sampler is wound on, and the random numbers of the loop stay the same."""

    def train(place: str, stop: int) -> list[str]:
        done = torch_loaded.run(PLAIN, place, str(workers), own, str(stop), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert train("cut", 13) + train("cut", 0) == train("straight", 0)
