"""Batches: a pure function of (seed, epoch, position), well mixed, and as cheap in the middle as at the beginning."""

import itertools
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from whistlestop.domain.errors import BadRequest
from whistlestop.sdk import batches as batches_module
from whistlestop.sdk.batches import Batches, position_of
from whistlestop.sdk.shuffles import shuffle


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def flat(batches: Batches) -> list[int]:
    return list(itertools.chain.from_iterable(batches))


def chi_square(counts: Counter[Any], cells: int) -> float:
    """Standard deviations above what pure chance gives; beyond 6 is no chance."""
    expected = counts.total() / cells
    squares = sum((n - expected) ** 2 for n in counts.values()) + (cells - len(counts)) * expected**2
    return (squares / expected - (cells - 1)) / (2 * (cells - 1)) ** 0.5


@pytest.mark.parametrize("length", [*range(20), 255, 4096, 4097, 5000, 65537, 100_000])
def test_every_epoch_has_every_sample_once(length: int) -> None:
    for epoch in (0, 1):
        batches = Batches(length, 7, seed=3)
        batches.seek(epoch)
        assert sorted(flat(batches)) == list(range(length))


def test_the_order_is_the_same_for_ever_on_every_machine() -> None:
    """Frozen: a checkpoint of today has to go on with the same data in a later version."""
    assert flat(Batches(8, 4)) == [7, 2, 6, 5, 3, 0, 4, 1]
    order = shuffle(10**9, seed=5, epoch=2)
    assert [order(place) for place in (0, 1, 10**9 - 1)] == [609926058, 802146626, 281598570]


def test_epochs_and_seeds_differ() -> None:
    orders = []
    for seed, epoch in itertools.product(range(3), range(3)):
        batches = Batches(5000, 10, seed=seed)
        batches.set_epoch(epoch)
        orders.append(tuple(flat(batches)))
    assert len(set(orders)) == 9


@pytest.mark.parametrize("length", [3, 4])
def test_of_a_few_samples_every_order_is_as_likely(length: int) -> None:
    counts = Counter(tuple(flat(Batches(length, 1, seed=seed))) for seed in range(4000))
    cells = len(list(itertools.permutations(range(length))))
    assert len(counts) == cells
    assert chi_square(counts, cells) < 6


@pytest.mark.parametrize("length", [100, 5000, 99_991, 10**9, 10**12])
def test_where_a_sample_lands_depends_neither_on_its_place_nor_on_its_neighbours(length: int) -> None:
    cells = 20
    landing: Counter[tuple[int, int]] = Counter()
    neighbours: Counter[tuple[int, int]] = Counter()
    distances: Counter[int] = Counter()
    per_epoch = min(length - 1, 4000)
    for epoch in range(20_000 // per_epoch + 1):
        order = shuffle(length, seed=11, epoch=epoch)
        for number in range(per_epoch):
            place = number * (length - 1) // per_epoch
            here, next_one = order(place), order(place + 1)
            landing[place * cells // length, here * cells // length] += 1
            neighbours[here * cells // length, next_one * cells // length] += 1
            distances[(next_one - here) % length * cells // length] += 1
    # Without replacement the counts are, if anything, more even than by chance.
    assert chi_square(landing, cells * cells) < 6
    if length > 100:  # of so few, two neighbours are seldom near each other by nature
        assert chi_square(distances, cells) < 6
        assert chi_square(neighbours, cells * cells) < 6


def test_two_epochs_have_nothing_to_do_with_each_other() -> None:
    first, second = (shuffle(10**9, seed=1, epoch=epoch) for epoch in (0, 1))
    cells = 20
    counts = Counter((first(n) * cells // 10**9, second(n) * cells // 10**9) for n in range(20_000))
    assert chi_square(counts, cells * cells) < 6


def test_without_shuffling_the_order_is_the_datasets() -> None:
    assert list(Batches(5, 2, shuffle=False)) == [[0, 1], [2, 3], [4]]
    assert list(Batches(5, 2, shuffle=False, drop_last=True)) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("length", "size"), [(0, 3), (1, 3), (10, 3), (12, 3), (5001, 100)])
def test_the_length_is_the_number_of_batches(length: int, size: int, drop_last: bool) -> None:
    batches = Batches(length, size, drop_last=drop_last)
    assert len(list(batches)) == len(batches)
    if len(batches):
        batches.seek(4, len(batches) - 1)
        assert len(list(batches)) == 1


@pytest.mark.parametrize("length", [50, 5003])
def test_seeking_gives_the_rest_of_the_epoch(length: int) -> None:
    batches = Batches(length, 7, seed=9)
    batches.seek(2)
    whole = list(batches)
    for start in (0, 1, len(whole) // 2, len(whole) - 1, len(whole)):
        batches.seek(2, start)
        assert list(batches) == whole[start:]


def test_iterating_does_not_move_the_position_and_seeking_does_not_disturb_an_iteration() -> None:
    batches = Batches(100, 10)
    batches.seek(1, 3)
    expected = list(batches)
    running = iter(batches)
    next(running)
    assert (batches.epoch, batches.batch) == (1, 3)
    batches.seek(7, 0)
    assert list(running) == expected[1:]


def test_setting_the_epoch_keeps_the_position_in_it_and_begins_another_at_its_beginning() -> None:
    batches = Batches(100, 10)
    batches.seek(3, 4)
    batches.set_epoch(3)
    assert batches.batch == 4
    batches.set_epoch(4)
    assert (batches.epoch, batches.batch) == (4, 0)


@pytest.mark.parametrize("length", [0, 1, 7, 64, 103, 5003])
@pytest.mark.parametrize("world", [2, 3, 8])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_get_disjoint_parts_of_equal_length(length: int, world: int, drop_last: bool) -> None:
    parts = [flat(Batches(length, 1, drop_last=drop_last, rank=rank, world=world)) for rank in range(world)]
    assert len({len(part) for part in parts}) == 1
    counts = Counter(itertools.chain.from_iterable(parts))
    if drop_last:
        assert counts.total() == length // world * world
        assert max(counts.values(), default=1) == 1
    else:
        assert set(counts) == set(range(length))
        assert counts.total() - length < world  # the padding
        alone = flat(Batches(length, 1))
        interleaved = list(itertools.chain.from_iterable(zip(*parts, strict=True)))
        assert interleaved[:length] == alone


def test_the_batch_of_all_ranks_together_is_the_same_for_any_number_of_them() -> None:
    def step(world: int, batch: int) -> list[int]:
        found: list[int] = []
        for rank in range(world):
            batches = Batches(5003, 24 // world, rank=rank, world=world)
            batches.seek(1, batch)
            found += next(iter(batches))
        return sorted(found)

    assert step(1, 17) == step(2, 17) == step(3, 17) == step(8, 17)


def test_rank_and_world_come_from_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    found = Batches(10, 2)
    assert (found.rank, found.world) == (1, 4)
    monkeypatch.delenv("WORLD_SIZE")
    found = Batches(10, 2)
    assert (found.rank, found.world) == (0, 1)


def test_torch_is_not_imported() -> None:
    script = "import sys, whistlestop.sdk.batches as b; next(iter(b.Batches(9, 2))); print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "False"


def test_the_state_brings_seed_and_position_back() -> None:
    batches = Batches(100, 10, seed=77)
    batches.seek(2, 6)
    other = Batches(100, 10, seed=1)
    other.load_state_dict(batches.state_dict())
    assert list(other) == list(batches)


def test_the_state_of_other_data_is_refused_in_words() -> None:
    state = Batches(100, 10).state_dict()
    with pytest.raises(BadRequest, match="length=100, this program has length=99"):
        Batches(99, 10).load_state_dict(state)
    with pytest.raises(BadRequest, match="shuffle=True"):
        Batches(100, 10, shuffle=False).load_state_dict(state)


def test_the_state_goes_over_to_another_number_of_ranks() -> None:
    before = Batches(960, 8, rank=0, world=4)
    before.seek(1, 6)
    after = Batches(960, 8, rank=1, world=2)
    after.load_state_dict(before.state_dict())
    assert (after.epoch, after.batch) == (1, 12)
    with pytest.raises(BadRequest, match="divides it"):
        Batches(960, 7, rank=1, world=2).load_state_dict(before.state_dict())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Batches(-1, 2),
        lambda: Batches(10, 0),
        lambda: Batches(10, 2, rank=1),
        lambda: Batches(10, 2, rank=2, world=2),
        lambda: Batches(10, 2).seek(0, 6),
        lambda: Batches(10, 2).seek(-1),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(BadRequest):
        wrong()


def test_resuming_at_nine_tenths_of_a_billion_samples_computes_no_more_than_a_cold_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed = 0

    def counting(length: int, *, seed: int, epoch: int) -> Callable[[int], int]:
        order = shuffle(length, seed=seed, epoch=epoch)

        def count(place: int) -> int:
            nonlocal computed
            computed += 1
            return order(place)

        return count

    monkeypatch.setattr(batches_module, "shuffled", counting)
    costs = []
    for share in (0.0, 0.9):
        computed = 0
        batches = Batches(10**9, 256)
        batches.seek(3, int(share * len(batches)))
        assert len(next(iter(batches))) == 256
        costs.append(computed)
    assert costs == [256, 256]


def test_a_billion_samples_take_no_more_memory_than_their_square_root() -> None:
    batches = Batches(10**9, 256)
    batches.seek(0, len(batches) // 2)
    next(iter(batches))  # what is loaded once
    tracemalloc.start()
    try:
        running = iter(batches)
        next(running)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000


class Loader:
    """What a DataLoader looks like from outside."""

    def __init__(self, sampler: Any = None, batch_sampler: Any = None) -> None:
        self.sampler = sampler
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        return 3


class Stateful(Loader):
    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


def test_the_way_to_seek_a_loader_is_found() -> None:
    batches = Batches(10, 2)
    assert position_of(batches) is batches
    assert position_of(Loader(batch_sampler=batches)) is batches
    assert position_of(Loader(sampler=batches)) is batches
    assert position_of(Stateful(batch_sampler=batches)) is batches
    assert position_of(Stateful()) == "stateful"
    assert position_of([1, 2]) == "sequence"
    assert position_of(range(5)) == "sequence"
    assert position_of({0: "a"}) is None
    assert position_of(iter([1, 2])) is None
    assert position_of(Loader()) is None
