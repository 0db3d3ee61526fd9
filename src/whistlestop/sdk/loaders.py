"""torch's own DataLoader in the middle of an epoch: its sampler is wound on, its samples are not loaded again.

The order of an epoch is drawn when its iterator is made. To have the same order again, the random states of that
moment are kept with every checkpoint.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from whistlestop.sdk.parts import Part
from whistlestop.sdk.randomness import rng_part


def index_of(loader: Any) -> str | None:
    """The attribute that says which samples are loaded next. None: they come as they come."""
    data = sys.modules.get("torch.utils.data")
    if data is None or not isinstance(loader, data.DataLoader) or isinstance(loader.dataset, data.IterableDataset):
        return None
    return "sampler" if loader.batch_sampler is None else "batch_sampler"


def generators_of(loaders: Iterable[Any]) -> list[Any]:
    """Of the loaders and their samplers, each once: what they draw is not in the global states."""
    found: dict[int, Any] = {}
    for loader in loaders:
        sampler = getattr(loader, "sampler", None)
        for owner in (loader, sampler, getattr(getattr(loader, "batch_sampler", None), "sampler", None)):
            generator = getattr(owner, "generator", None)
            if hasattr(generator, "get_state"):
                found[id(generator)] = generator
    return list(found.values())


def wind(loader: Any, skip: int) -> Callable[[], None]:
    """Let the loader's next iterator begin behind `skip` batches. To be called when it is made: what is returned."""
    name = index_of(loader)
    if name is None or not skip:
        return lambda: None
    whole = getattr(loader, name)
    rest = vars(loader)[name] = _Rest(whole, skip)  # a DataLoader refuses the assignment

    def settle() -> None:
        rest.wind()
        vars(loader)[name] = whole

    return settle


class Order:
    """The random states from which the order of the present epoch was drawn, as a part of the checkpoint."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._random = rng_part()
        self._begun: dict[str, Any] | None = None

    @property
    def part(self) -> Part:
        return Part(lambda: self._begun, self._load, per_rank=True, spare=True)

    def begin(self) -> Iterator[Any]:
        """A whole epoch."""
        self._begun = self._take()
        return iter(self._loader)

    def go_on(self, skip: int) -> Iterator[Any]:
        """The rest of one. The random states of the program are as they were, afterwards."""
        now = self._random.save()
        if self._begun is None:  # a checkpoint without it: another order, and whoever resumed has been told
            self._begun = self._take()
        else:
            for generator, state in zip(generators_of([self._loader]), self._begun["own"], strict=False):
                generator.set_state(state)
            self._random.load(self._begun["global"])
        settle = wind(self._loader, skip)
        iterator: Iterator[Any] = iter(self._loader)
        settle()
        self._random.load(now)
        return iterator

    def _take(self) -> dict[str, Any]:
        own = [generator.get_state() for generator in generators_of([self._loader])]
        return {"global": self._random.save(), "own": own}

    def _load(self, state: dict[str, Any] | None) -> None:
        self._begun = state


class _Rest:
    """A sampler without its first items."""

    def __init__(self, sampler: Iterable[Any], skip: int) -> None:
        self._sampler, self._skip = sampler, skip
        self._indices: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        self._indices = iter(self._sampler)
        return self

    def __next__(self) -> Any:
        self.wind()
        return next(self._indices)

    def wind(self) -> None:
        """Behind the loader's own draw, as ever, and from the random state that made the whole order."""
        while self._skip:
            self._skip -= 1
            next(self._indices)
