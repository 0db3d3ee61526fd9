"""Going on with another number of ranks: the data is divided anew, what can't be is refused before a step."""

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import whistlestop
from whistlestop.blobs.manifest import Checkpoint, FileEntry
from whistlestop.sdk.parts import Part, RestoreFailed
from whistlestop.sdk.randomness import rng_part
from whistlestop.sdk.restoring import Restoring

LENGTH = 240


def train(kept: Path, rank: int, world: int, size: int, *, stop: int | None = None, epochs: int = 2) -> list[int]:
    """What one rank of so many sees, from where it was left. Each is a training of its own here: they are told who they
    are by the batches alone."""
    seen: list[int] = []
    batches = whistlestop.Batches(LENGTH, size, seed=3, rank=rank, world=world)
    with whistlestop.run("other", checkpoints=kept) as run:
        for step, batch in run.each(batches, epochs=epochs):
            seen += batch
            if stop is not None and step + 1 == stop:
                run.finish("enough")
    return seen


def in_all(root: Path, came: Path | None, world: int, size: int, **how: Any) -> Counter[int]:
    """What all ranks together see. `came`: what they go on from, each from a copy."""
    found: Counter[int] = Counter()
    for rank in range(world):
        kept = root / f"{world}-{rank}"
        if came is not None:
            shutil.copytree(came, kept)
        found.update(train(kept, rank, world, size, **how))
    return found


@pytest.mark.parametrize("stop", [1, 5, 20, 23], ids=lambda steps: f"{steps} steps")
@pytest.mark.parametrize(
    ("before", "after"),
    [((4, 3), (2, 3)), ((4, 3), (2, 6)), ((4, 3), (1, 3)), ((2, 6), (4, 1)), ((1, 12), (3, 2)), ((4, 3), (4, 1))],
    ids=lambda each: "{} ranks of {}".format(*each),
)
def test_no_sample_is_seen_twice_or_left_out(
    tmp_path: Path, before: tuple[int, int], after: tuple[int, int], stop: int
) -> None:
    first = in_all(tmp_path / "before", None, *before, stop=stop)
    assert sum(first.values()) == stop * 12
    rest = in_all(tmp_path / "after", tmp_path / "before" / f"{before[0]}-0", *after)
    assert first + rest == Counter(dict.fromkeys(range(LENGTH), 2))


def test_more_ranks_go_on_where_fewer_were(tmp_path: Path) -> None:
    first = in_all(tmp_path / "before", None, 2, 3, stop=4)
    rest = in_all(tmp_path / "after", tmp_path / "before" / "2-0", 4, 3)
    assert first + rest == Counter(dict.fromkeys(range(LENGTH), 2))


def test_a_place_inside_a_batch_of_the_new_ranks_is_refused_in_words(tmp_path: Path) -> None:
    in_all(tmp_path / "before", None, 2, 3, stop=3)
    with pytest.raises(
        RestoreFailed, match=r"18 samples of epoch 0 were seen .* 4 samples x 2 ranks: some would be seen"
    ):
        train(tmp_path / "before" / "2-0", 0, 2, 4)


# Parts.


def restoring(parts: dict[str, Part], *, rank: int, size: int, said: list[str]) -> Restoring:
    files = {"ranks/0/parts/rng.pickle": FileEntry(1, "ab"), "ranks/0/parts/shard.pickle": FileEntry(1, "cd")}
    path = Path("step-000000000060-1")
    start = Checkpoint("c-1", "train", 60, 1, "a-1", path, 0.0, 2, files, {"world": 4})
    return Restoring(start, parts, rank=rank, size=size, warn=said.append)


def test_random_states_are_derived_for_each_rank_and_that_is_said_once() -> None:
    drawn, said = [], list[str]()
    for rank in (0, 1, 0):
        random.seed(1)
        restoring({"rng": rng_part()}, rank=rank, size=2, said=said).restore()
        drawn.append(random.random())
    assert drawn[0] == drawn[2] != drawn[1]
    assert len({*said}) == 1
    assert said[0].startswith(
        "rng was saved by each of 4 ranks at step 60, and here there are 2: each rank's is derived"
    )


def test_shards_of_other_ranks_are_refused_in_words_before_anything_is_loaded() -> None:
    loaded: list[Any] = []
    parts = {
        "model": Part(dict, loaded.append),
        "shard": Part(dict, loaded.append, per_rank=True),
    }
    with pytest.raises(RestoreFailed) as caught:
        restoring(parts, rank=0, size=2, said=[]).restore()
    assert caught.value.text == ("this checkpoint of step 60 has shards of 4 ranks (shard), and here there are 2")
    assert "go on with 4 ranks" in (caught.value.hint or "")
    assert loaded == []
