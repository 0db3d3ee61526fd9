"""Two at once: at every single moment of what one process does, another one does something of its own."""

import contextlib
import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import obstore
import pytest
from moments import Moment, Place, every_moment, places

from whistlestop.blobs import parts
from whistlestop.blobs.manifest import Checkpoint, Damaged, SaveFailed
from whistlestop.blobs.objects import Objects
from whistlestop.blobs.staged import BUFFER
from whistlestop.blobs.storage import Fenced
from whistlestop.testing.slots import lay

__all__ = ["places"]
Places = Callable[[], Place]


def test_what_an_attempt_was_told_to_be_safe_counts_whenever_the_next_one_begins(places: Places) -> None:
    outcomes: list[bool] = []

    def begin(here: Place) -> Callable[[], object]:
        here.storage.open_attempt("main", 1, "a-1")
        here.save(1)
        return lambda: here.again().open_attempt("main", 2, "a-2")

    for here, moment in every_moment(places, "calls", begin):
        with moment:
            outcomes.append(committed(here, 2))
        for _ in range(2):
            assert [each.step for each in here.again().list("main")] == ([2, 1] if outcomes[-1] else [1])
            here.check()
            if moment.reached:
                here.again().sweep("main", 2)
    assert outcomes.count(False) > 5
    assert outcomes.count(True) > 1


def test_what_is_committed_while_the_next_attempt_begins_counts_or_is_refused(places: Places) -> None:
    outcomes: list[bool] = []

    def save(here: Place) -> Callable[[], object]:
        here.storage.open_attempt("main", 1, "a-1")
        here.save(1)
        return lambda: outcomes.append(committed(here, 2))

    for here, moment in every_moment(places, "calls", save):
        with moment:
            here.again().open_attempt("main", 2, "a-2")
        listed = [each.step for each in here.again().list("main")]
        assert 1 in listed
        if outcomes and outcomes[-1]:
            assert listed == [2, 1]
        outcomes = outcomes[-1:]


@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize("other", ["a-1", "a-other"])
def test_of_two_that_begin_the_same_attempt_one_is_refused_unless_they_are_the_same(
    places: Places, other: str, claimed: bool
) -> None:
    begun: list[str] = []

    def begin(here: Place, attempt_id: str) -> None:
        with contextlib.suppress(Fenced):
            here.again().open_attempt("main", 1, attempt_id)
            begun.append(attempt_id)
            here.again().sweep("main", 1)

    def make(here: Place) -> Callable[[], object]:
        if claimed:  # and not more
            own = {"attempt_number": 1, "attempt_id": other}
            here.storage._create("main", "claim-000000001.json", json.dumps(own).encode())
        return lambda: begin(here, other)

    for here, moment in every_moment(places, "calls", make):
        begun.clear()
        with moment:
            begin(here, "a-1")
        if moment.reached:
            assert len(begun) == (2 if other == "a-1" else 1)


def committed(here: Place, step: int) -> bool:
    try:
        here.save(step)
    except Fenced:
        return False
    return True


def removed(here: Place) -> Checkpoint:
    """Beside another one; it was discarded just now."""
    here.storage.open_attempt("main", 1, "a-1")
    first = here.save(1)
    here.save(2)
    here.storage.discard(first, 1000.0)
    return first


def bring_back(here: Place) -> Callable[[], object]:
    first = removed(here)
    return lambda: here.again().recover(first)


def remove(here: Place) -> Callable[[], object]:
    first = removed(here)
    here.storage.recover(first)
    return lambda: here.again().discard(first, 2000.0)


def remove_and_bring_back(here: Place) -> Callable[[], object]:
    act = remove(here)
    back = here.storage.list("main")[-1]
    return lambda: (act(), here.again().recover(back))


@pytest.mark.parametrize("act", [bring_back, remove, remove_and_bring_back])
def test_nothing_is_swept_that_is_on_its_way_to_the_trash_or_back(
    places: Places, act: Callable[[Place], Callable[[], object]]
) -> None:
    for here, moment in every_moment(places, "calls", act):
        with moment:
            here.again().sweep("main", 1)
        here.check()
        assert len(here.again().list("main")) + len(here.again().trashed("main")) == 2
        if moment.reached:
            here.again().sweep("main", 1)
            here.check()


@pytest.mark.parametrize("act", [bring_back, remove])
def test_what_is_on_its_way_to_the_trash_or_back_counts_when_an_attempt_begins(
    places: Places, act: Callable[[Place], Callable[[], object]]
) -> None:
    for here, moment in every_moment(places, "calls", act):
        with moment:
            here.again().open_attempt("main", 2, "a-2")
        for each, _ in here.again().trashed("main"):
            here.again().recover(each)
        assert [each.step for each in here.again().list("main")] == [2, 1]


def test_what_is_had_back_while_it_is_purged_is_whole_or_gone(places: Places) -> None:
    outcomes = set()

    def purge(here: Place) -> Callable[[], object]:
        removed(here)
        return lambda: (here.again().purge("main", 1e12), here.again().sweep("main", 1))

    for here, moment in every_moment(places, "calls", purge):
        ((first, _),) = here.storage.trashed("main")
        with moment:
            try:
                here.again().recover(first)
                back = True
            except Damaged:
                back = False
        outcomes.add(back)
        here.check()
        assert (first in here.again().list("main")) == back
    assert outcomes == {True, False}


def test_parts_that_go_while_their_manifest_is_written_are_put_again(quick: Path) -> None:
    """By a sweep of an attempt that is over, on a request that was long on its way."""
    numbers = count()

    def sweep(here: Place) -> Callable[[], object]:
        objects = Objects("memory://", {})
        objects._made = here.store
        return lambda: objects.delete([each.name for each in objects.all("main/parts")])

    for here, moment in every_moment(lambda: Place("memory", quick / str(next(numbers))), "calls", sweep):
        with moment:
            saved = here.save(1)
        here.check()
        assert here.again().list("main") == [saved]


def test_a_commit_that_nobody_waits_for_any_more_does_not_count(places: Places) -> None:
    here = places()
    with pytest.raises(SaveFailed, match="nobody waits") as raised:
        here.storage.commit(here.lay(1), cancelled=lambda: True)
    assert raised.value.__cause__ is None
    assert here.again().list("main") == []


def test_a_slot_that_is_cut_short_while_it_is_sent_is_given_up(quick: Path) -> None:
    here = Place("memory", quick)
    laid = lay(quick / "slot", 1, files={"large": b"x" * (parts.WHOLE + 1)}, phase="main")

    def cut_short() -> None:
        os.truncate(laid.directory / BUFFER, 1000)

    with Moment([(obstore, "put")], 0, cut_short), pytest.raises(SaveFailed, match="shorter") as raised:
        here.storage.commit(laid)
    assert raised.value.__cause__ is None
    assert here.again().list("main") == []
