from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from whistlestop.blobs.checkpoints import Checkpoint
from whistlestop.blobs.retention import removable


def checkpoint(step: int, attempt: int = 1) -> Checkpoint:
    return Checkpoint(f"c-{step}-{attempt}", "main", step, attempt, f"a-{attempt}", Path("x"), 0.0, 0, {}, {})


KEYS = st.sets(st.tuples(st.integers(0, 10**13), st.integers(1, 20)), max_size=30)


def test_all_but_the_newest_go_oldest_first() -> None:
    history = [checkpoint(step) for step in (5, 4, 3, 2, 1)]
    assert [each.step for each in removable(history, keep=2)] == [1, 2, 3]


def test_protected_ones_stay_and_do_not_count() -> None:
    history = [checkpoint(step) for step in (5, 4, 3, 2, 1)]
    assert [each.step for each in removable(history, keep=2, protected={"c-2-1"})] == [1, 3]


@given(keys=KEYS, keep=st.integers(-3, 40), data=st.data())
def test_the_newest_and_the_protected_always_stay_and_nothing_else_beyond_keep(
    keys: set[tuple[int, int]], keep: int, data: st.DataObject
) -> None:
    history = [checkpoint(*key) for key in data.draw(st.permutations(sorted(keys)))]
    protected = data.draw(st.sets(st.sampled_from([each.id for each in history]))) if history else set()
    gone = removable(history, keep=keep, protected=protected)
    assert not protected & {each.id for each in gone}
    if history:
        assert checkpoint(*max(keys)) not in gone
        left = len(history) - len(gone)
        assert left <= max(1, keep) + len(protected)
        assert left >= min(len(history), max(1, keep))


def test_a_revision_that_a_later_one_has_replaced_goes_and_does_not_count() -> None:
    first, second = checkpoint(4), replace(checkpoint(4), id="c-4-again", revision=1)
    older = checkpoint(3)
    assert removable([first, second, older], keep=2) == [first]
    assert removable([first, second, older], keep=2, protected={first.id}) == []
    assert removable([first, second], keep=1) == [first]


def test_what_somebody_asked_for_is_not_pushed_out_by_what_came_by_itself() -> None:
    asked = replace(checkpoint(1), meta={"why": "on request"})
    later = [checkpoint(step) for step in range(2, 8)]
    assert [each.step for each in removable([asked, *later], keep=2)] == [2, 3, 4, 5]
    unhealthy = [replace(checkpoint(step), meta={"healthy": False}) for step in range(8, 12)]
    assert [each.step for each in removable([*later, *unhealthy], keep=2)] == [2, 3, 4, 5, 6, 8, 9]
