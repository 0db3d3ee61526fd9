"""The process ends at any single write of what is no save: saves are cut in test_checkpoints and test_remote."""

from collections.abc import Callable

import pytest
from moments import Cut, Place, cut, every_moment, places

from whistlestop.blobs.storage import Storage

__all__ = ["places"]
Places = Callable[[], Place]
Act = Callable[[Storage], object]


def discarding(here: Place) -> Act:
    first = here.storage.list("main")[-1]
    return lambda storage: storage.discard(first, 3000.0)


def recovering(here: Place) -> Act:
    ((kept, _),) = here.storage.trashed("main")
    return lambda storage: storage.recover(kept)


def beginning(here: Place) -> Act:
    return lambda storage: storage.open_attempt("main", 3, "a-3")


def sweeping(here: Place) -> Act:
    return lambda storage: storage.sweep("main", 2)


def purging(here: Place) -> Act:
    return lambda storage: storage.purge("main", 2000.0)


def make(here: Place) -> None:
    """Two that count, one in the trash, and half of a save of an attempt that is over."""
    here.storage.open_attempt("main", 1, "a-1")
    here.save(1)
    here.save(2)
    here.storage.discard(here.save(3), 1000.0)
    here.half_a_save(4)
    here.again().open_attempt("main", 2, "a-2")


@pytest.mark.parametrize("prepare", [discarding, recovering, beginning, sweeping, purging])
def test_what_is_cut_at_any_write_has_lost_nothing_and_is_finished_by_doing_it_again(
    places: Places, prepare: Callable[[Place], Act]
) -> None:
    whole = places()
    make(whole)
    prepare(whole)(whole.again())
    expected = state(whole)

    for here, moment in every_moment(places, "writes", lambda here: (make(here), cut)[1]):
        act = prepare(here)
        with moment:
            try:
                act(here.again())
                assert not moment.reached
            except Cut:
                pass
        here.check()
        listed, trashed = state(here)
        assert {*listed, *trashed} >= ({1, 2} if prepare is purging else {1, 2, 3})
        act(here.again())
        here.check()
        assert state(here) == expected
        here.again().sweep("main", 3)
        here.check()
        assert state(here) == expected


def state(here: Place) -> tuple[list[int], list[int]]:
    """What counts, and what can be had back."""
    storage = here.again()
    return [each.step for each in storage.list("main")], [each.step for each, _ in storage.trashed("main")]
