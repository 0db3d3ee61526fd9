"""A spot pool's record from what a server has written down: its sizes, and when it took capacity back."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from whistlestop.capacity.lifetimes import Record

_SAME: Final = 120.0  # seconds around a change of size in which a reclaim is that very change


def observed(sizes: Sequence[tuple[float, int]], reclaims: Sequence[float], *, needs: int) -> Record:
    """`sizes`: when, and how many slots from then on, in order. `reclaims`: when somebody there lost them.
    For a phase of `needs` slots the pool is there while it has as many. A pool that takes slots back and keeps its size
    has come to an end, too, and begins anew."""
    record = Record()
    fits = [(at, slots >= needs) for at, slots in sizes]
    gone = [at for at, up in fits if not up]
    lost = [at for at in sorted(reclaims) if bisect_left(gone, at - _SAME) == bisect_right(gone, at + _SAME)]
    if fits:
        record.see(fits[0][0], not fits[0][1])  # it was made then: its age is known
    changes: list[tuple[float, bool | None]] = [*fits, *((at, None) for at in lost)]
    for at, up in sorted(changes, key=lambda each: each[0]):
        if up is None:
            record.lose(at)
        else:
            record.see(at, up)
    return record
