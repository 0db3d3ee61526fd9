"""A loop over data instead of a number of steps: positioned where the training was left, epoch after epoch."""

from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice
from time import time
from typing import Any, TypeVar

from whistlestop.channel.layout import Word
from whistlestop.domain.skipping import gap_before, steps_of
from whistlestop.sdk.batches import Batches, position_of
from whistlestop.sdk.group import ARRIVALS
from whistlestop.sdk.loaders import Order, index_of
from whistlestop.sdk.looping import Looping
from whistlestop.sdk.parts import RestoreFailed, part_of
from whistlestop.sdk.randomness import NAME as RNG
from whistlestop.sdk.step import Step

Item = TypeVar("Item")
_END = object()


def each(run: Looping, items: Iterable[Item], epochs: int | None) -> Generator[tuple[Step, Item], None, None]:
    position: Any = position_of(items)
    if position is None and index_of(items) is not None:
        position = Order(items)
        run._add_part("data_order", position.part)
    if position == "stateful" and not _is_tracked(run, items):
        if run._restore_done:  # too late to load its state
            position = None
        else:
            run._add_part("loader", part_of("loader", items))
    length = _length(items)
    run._restore()
    done = _repartition(run, position) if isinstance(position, Batches) else 0
    total = None if epochs is None or length is None else epochs * length + done
    if total is not None and not done:  # else what was passed over is among what is done
        total = steps_of(total, run._skips)
    run._prepare_loop(total, length)
    return _each(run, items, epochs, length, position)


def _repartition(run: Looping, batches: Batches) -> int:
    """After a checkpoint of another number of ranks, or another batch size: the position is in samples, whoever had
    which. Returns how many steps more were made than there are batches before it now; RestoreFailed where the new ranks
    can't begin at that sample."""
    before, now = run._together_before, batches.batch_size * batches.world
    run._together = now
    if run._position is None or before is None or before == now:
        return 0
    epoch, batch = run._position
    seen = batch * before
    batch, rest = divmod(seen, now)
    if rest and seen < batches.length:
        raise RestoreFailed(
            f"{seen} samples of epoch {epoch} were seen when step {run._at[0]} was saved, and that is no whole number "
            f"of batches of {batches.batch_size} samples x {batches.world} ranks: some would be seen twice",
            hint=f"use a batch size and a number of ranks whose product divides {seen}, for example {before} as before",
        )
    batch = min(batch, len(batches))
    run._position = epoch, batch
    run._tell(
        {
            "kind": "message",
            "level": "info",
            "text": f"{seen} samples of epoch {epoch} were seen, {before} in a step of all ranks. Now it is {now}, "
            "and what is left of the epoch is divided among the ranks of this start",
        }
    )
    return run._at[0] - (epoch * len(batches) + batch)


def _each(
    run: Looping, items: Iterable[Item], epochs: int | None, length: int | None, position: Any
) -> Generator[tuple[Step, Item], None, None]:
    epoch, batch = run._position or (divmod(run._at[0], length) if length else (0, 0))
    run._position = epoch, batch
    steps = run._loop()
    try:
        source = _undisturbed(run, items, epoch, batch, position)
        for step in steps:
            if run._skips and (gap := gap_before(int(step), run._skips)):
                epoch, batch, source = _jump(run, items, (epoch, batch), gap, epochs, length, position, source)
            item, empty = next(source, _END), 0
            while item is _END:
                epoch, batch, empty = epoch + 1, 0, empty + 1
                if _is_behind_the_last(run, epoch, epochs) or empty > 1:
                    # Only here it shows that there is no such step.
                    run._total = int(step)
                    run._boundary(int(step))
                    return
                _begin_epoch(run, epoch, tell=length is None)
                source = _source(run, items, epoch, 0, position)
                item = next(source, _END)
            batch += 1
            run._position = epoch, batch
            if run._ready is not None:  # its data has come
                run._ready[step % ARRIVALS] = time()
            try:
                yield step, item  # type: ignore[misc]
            except GeneratorExit:
                run._position = epoch, batch - 1  # a step that is left does not count
                raise
    finally:
        steps.close()


def _jump(
    run: Looping,
    items: Iterable[Item],
    at: tuple[int, int],
    gap: int,
    epochs: int | None,
    length: int | None,
    position: Any,
    source: Iterator[Item],
) -> tuple[int, int, Iterator[Item]]:
    """Behind so many batches: by seeking where that can be done, else by taking and leaving them. Nothing comes behind
    the end of the last epoch: then what is given back is empty, and the loop ends by that."""
    epoch, batch = at
    run._tell(
        {
            "kind": "message",
            "level": "info",
            "text": f"{gap} batches were passed over before step {run._at[0]}, as a guard has asked for",
        }
    )
    if length is not None:
        there = divmod(epoch * length + batch + gap, length)
        # The order of torch's own loaders is known for the present epoch alone.
        if (
            isinstance(position, Batches)
            or position == "sequence"
            or (isinstance(position, Order) and there[0] == epoch)
        ):
            if _is_behind_the_last(run, there[0], epochs):
                return *there, iter(())
            return *there, _undisturbed(run, items, *there, position)
    for _ in range(gap):
        if next(source, _END) is _END:
            if _is_behind_the_last(run, epoch + 1, epochs):
                return epoch, batch, iter(())
            epoch, batch = epoch + 1, 0
            _begin_epoch(run, epoch, tell=length is None)
            source = _source(run, items, epoch, 0, position)
            if next(source, _END) is _END:  # it can't be gone over again
                return epoch, batch, iter(())
        batch += 1
    return epoch, batch, source


def _is_behind_the_last(run: Looping, epoch: int, epochs: int | None) -> bool:
    """Unless people have asked for more steps than the epochs have."""
    more = run._extended and run._total is not None and run._at[0] < run._total
    return epochs is not None and epoch >= epochs and not more


def _undisturbed(run: Looping, items: Iterable[Item], epoch: int, batch: int, position: Any) -> Iterator[Item]:
    """In the middle of an epoch the loader has drawn its seeds long ago: making an iterator anew must not move the
    random states that were restored."""
    random = run._parts.get(RNG)
    if not batch or random is None or isinstance(position, Order):
        return _source(run, items, epoch, batch, position)
    state = random.save()
    source = _source(run, items, epoch, batch, position)
    if isinstance(source, Generator | islice):  # it makes the loader's iterator only when it is asked for an item
        source = chain(list(islice(source, 1)), source)
    random.load(state)
    return source


def _source(run: Looping, items: Iterable[Item], epoch: int, batch: int, position: Any) -> Iterator[Item]:
    if isinstance(getattr(items, "iteration", None), int):  # accelerate's loaders count their epochs by themselves
        items.iteration = epoch  # type: ignore[attr-defined]
    if isinstance(position, Batches):
        position.seek(epoch, batch)
        return iter(items)
    for sampler in (items, getattr(items, "sampler", None), getattr(items, "batch_sampler", None)):
        if callable(getattr(sampler, "set_epoch", None)):
            sampler.set_epoch(epoch)  # type: ignore[union-attr]
    if isinstance(position, Order):
        return position.go_on(batch) if batch else position.begin()
    if batch == 0 or position == "stateful":  # its own state has been restored
        return iter(items)
    if position == "sequence":
        return (items[index] for index in range(batch, len(items)))  # type: ignore[index, arg-type]
    run._attachment.warn(
        f"{run.name} goes over {batch} items again to come to where it was left; with whistlestop.Batches as the "
        "loader's batch_sampler it would begin there"
    )
    return islice(iter(items), batch, None)


def _begin_epoch(run: Looping, epoch: int, *, tell: bool) -> None:
    if tell:
        progress = run._attachment.progress
        progress[Word.EPOCH], progress[Word.BATCH] = epoch, 0
        run._tell({"kind": "epoch", "epoch": epoch, "step": run._at[0]})


def _length(items: Any) -> int | None:
    try:
        return len(items) or None
    except TypeError:
        return None


def _is_tracked(run: Looping, items: Any) -> bool:
    return any(getattr(part.save, "__self__", None) is items for part in run._parts.values())
