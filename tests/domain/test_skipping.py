"""Batches that are passed over: whatever the ranges, every other batch comes once and in order."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from whistlestop.domain import skipping

RANGES = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1])))


@given(RANGES, st.integers(0, 120))
def test_the_steps_take_every_batch_that_is_not_passed_over_once_and_in_order(
    given: list[tuple[int, int]], batches: int
) -> None:
    ranges = skipping.joined(given)
    gone = {batch for first, behind in given for batch in range(first, behind)}
    wanted = [batch for batch in range(batches) if batch not in gone]
    assert skipping.steps_of(batches, ranges) == len(wanted)
    assert [skipping.batch_of(step, ranges) for step in range(len(wanted))] == wanted


@given(RANGES)
def test_going_from_step_to_step_by_the_gaps_comes_to_the_same_batches(given: list[tuple[int, int]]) -> None:
    ranges, batch = skipping.joined(given), 0
    for step in range(100):
        batch += skipping.gap_before(step, ranges)
        assert batch == skipping.batch_of(step, ranges)
        batch += 1


@given(RANGES)
def test_what_was_joined_is_read_back_as_it_was(given: list[tuple[int, int]]) -> None:
    ranges = skipping.joined(given)
    assert skipping.read([list(each) for each in ranges]) == ranges


@pytest.mark.parametrize("wrong", ["x", 3, [3], [[1]], [[2, 1]], [[-1, 2]], [[1.0, 2]], [[True, 2]], {"a": 1}])
def test_anything_else_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="is not a"):
        skipping.read(wrong)
