"""Which samples make up a batch, as a function of seed, epoch and batch: a resumed loop seeks instead of replaying."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from whistlestop.domain.errors import BadRequest
from whistlestop.sdk.shuffles import shuffle as shuffled


class Batches:
    """A batch sampler: iterating gives lists of indices from the position on that `seek` has set, to the epoch's end.

    Iterating never moves the position, so it does not matter how far ahead a loader's workers fetch. Several ranks
    share one order: batch n of all of them together is the same for every number of ranks, if `batch_size * world` is.
    As with DistributedSampler every rank gets as many samples; the first ones are used twice, or, with `drop_last`, the
    last ones not at all.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world: int | None = None,
    ) -> None:
        if (rank is None) != (world is None):
            raise BadRequest("Batches: give both rank and world, or neither")
        if rank is None or world is None:
            rank, world = _rank_and_world()
        if length < 0 or batch_size < 1:
            raise BadRequest(f"Batches({length}, {batch_size}): expected a length and a positive batch size")
        if not 0 <= rank < world:
            raise BadRequest(f"Batches: rank {rank} of {world} does not exist")
        self.length = length
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.rank = rank
        self.world = world
        self.epoch = 0
        self.batch = 0

    def __len__(self) -> int:
        """Batches in a whole epoch, wherever the position is."""
        if self.drop_last:
            return self.samples // self.batch_size
        return -(-self.samples // self.batch_size)

    @property
    def samples(self) -> int:
        """Samples of this rank in an epoch."""
        return self.length // self.world if self.drop_last else -(-self.length // self.world)

    def seek(self, epoch: int, batch: int = 0) -> None:
        """The next iteration begins at this batch of this epoch. One that is under way is not disturbed."""
        if epoch < 0 or not 0 <= batch <= len(self):
            raise BadRequest(f"there is no batch {batch} in epoch {epoch}: it has {len(self)} batches")
        self.epoch, self.batch = epoch, batch

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch. Frameworks call this; the epoch that was sought keeps its position."""
        if epoch != self.epoch:
            self.seek(epoch)

    def __iter__(self) -> "Pass":
        return Pass(self, self.epoch, self.batch)

    def order(self, epoch: int) -> Callable[[int], int]:
        """Which sample stands at which place of the epoch, for all ranks together."""
        return shuffled(self.length, seed=self.seed, epoch=epoch) if self.shuffle else int

    def state_dict(self) -> dict[str, Any]:
        """The position, and what it depends on."""
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "length": self.length,
            "together": self.batch_size * self.world,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over seed and position. Refuses what would feed other data than the rest of the epoch."""
        for name in ("length", "shuffle"):
            if state[name] != getattr(self, name):
                raise BadRequest(
                    f"Batches: the checkpoint was made with {name}={state[name]}, this program has "
                    f"{name}={getattr(self, name)}: the rest of the epoch would not be the same data"
                )
        batch, rest = divmod(state["batch"] * state["together"], self.batch_size * self.world)
        if rest:
            raise BadRequest(
                f"Batches: the checkpoint's position, {state['batch']} batches of {state['together']} samples, lies "
                f"inside a batch of {self.batch_size} x {self.world} ranks: use a batch size that divides it"
            )
        self.seed = state["seed"]
        self.seek(state["epoch"], batch)


class Pass:
    """One way through an epoch. Its state is for loaders that keep the iterator's own, as torchdata's does."""

    def __init__(self, batches: Batches, epoch: int, batch: int) -> None:
        self._batches = batches
        self._epoch = epoch
        self._batch = batch
        self._order: Callable[[int], int] | None = None

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        batches = self._batches
        if self._batch >= len(batches):
            raise StopIteration
        if self._order is None:
            self._order = batches.order(self._epoch)
        order, length, world = self._order, batches.length, batches.world
        first = self._batch * batches.batch_size
        last = min(first + batches.batch_size, batches.samples)
        self._batch += 1
        places = range(first * world + batches.rank, last * world, world)
        return [order(place % length) for place in places]

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._epoch, "batch": self._batch}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self._epoch, self._batch = state["epoch"], state["batch"]
        self._order = None


Position = Batches | Literal["stateful", "sequence"] | None


def position_of(loader: Any) -> Position:
    """How to begin in the middle of what a loop goes over: seek the Batches behind it, load its own state, or begin at
    an index. None: only by going over it from its beginning."""
    for each in (loader, getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)):
        if isinstance(each, Batches):
            return each
    if callable(getattr(loader, "state_dict", None)) and callable(getattr(loader, "load_state_dict", None)):
        return "stateful"
    # A mapping has both, but is not counted from 0.
    if hasattr(loader, "__len__") and hasattr(loader, "__getitem__") and not hasattr(loader, "keys"):
        return "sequence"
    return None


def _rank_and_world() -> tuple[int, int]:
    """What torch.distributed says if the program uses it, else what the launcher says."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1
