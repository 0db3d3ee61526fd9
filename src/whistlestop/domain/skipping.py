"""Data that is passed over after a roll-back, as ranges of batches: (first, behind). A batch's number is that of the
step that would have had it if nothing had ever been passed over, so a range means the same in every attempt."""

from collections.abc import Iterable, Sequence

Ranges = tuple[tuple[int, int], ...]


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """In their order, without the empty ones, those that touch as one."""
    found: list[tuple[int, int]] = []
    for first, behind in sorted((first, behind) for first, behind in ranges if first < behind):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], behind))
        else:
            found.append((first, behind))
    return tuple(found)


def batch_of(step: int, ranges: Ranges) -> int:
    """The number of the batch that a step takes."""
    for first, behind in ranges:
        if step < first:
            break
        step += behind - first
    return step


def gap_before(step: int, ranges: Ranges) -> int:
    """How many batches are passed over between the step before and this one."""
    return batch_of(step, ranges) - (batch_of(step - 1, ranges) + 1 if step else 0)


def steps_of(batches: int, ranges: Ranges) -> int:
    """How many steps so many batches are enough for."""
    return batches - sum(min(behind, batches) - min(first, batches) for first, behind in ranges)


def read(given: object) -> Ranges:
    """From JSON. ValueError if it is something else."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ValueError(f"{given!r} is not a list of ranges")
    for pair in given:
        whole = isinstance(pair, list | tuple) and all(isinstance(n, int) and not isinstance(n, bool) for n in pair)
        if not whole or len(pair) != 2 or not 0 <= pair[0] <= pair[1]:
            raise ValueError(f"{pair!r} is not a range of batches")
    return joined((first, behind) for first, behind in given)
