"""The queue: in order, all or nothing, nobody starved."""

import hypothesis.strategies as st
from hypothesis import given

from whistlestop.capacity.queue import PoolFacts, Waiting, explain, place


def pool(slots: int = 4, taken: set[int] = set()) -> PoolFacts:  # noqa: B006
    return PoolFacts("local", slots, frozenset(taken), 1.0)


def waiting(*slots: int) -> list[Waiting]:
    return [Waiting(f"r{index}", f"p{index}", count) for index, count in enumerate(slots)]


def test_the_head_of_the_queue_starts_first() -> None:
    assert [item.waiting.run_id for item in place(waiting(2, 2, 1), pool())] == ["r0", "r1"]


def test_a_wide_phase_is_not_overtaken_by_narrow_ones() -> None:
    assert place(waiting(4, 1), pool(taken={0})) == []


def test_a_phase_that_can_never_fit_holds_nobody_back() -> None:
    assert [item.waiting.run_id for item in place(waiting(9, 1), pool())] == ["r1"]


def test_what_a_run_waits_for_is_said_in_words() -> None:
    assert explain(waiting(2)[0], 3, pool(taken={0, 1, 2})) == "2 slots of pool local: 1 of 4 free, behind 2 others"
    assert "has 4 in all" in explain(waiting(9)[0], 1, pool())


@given(st.lists(st.integers(1, 6), max_size=20), st.integers(1, 8), st.sets(st.integers(0, 9)))
def test_slots_are_given_whole_and_never_twice(sizes: list[int], slots: int, taken: set[int]) -> None:
    placed = place(waiting(*sizes), pool(slots, taken))
    given_out = [slot for item in placed for slot in item.slots]
    assert len(given_out) == len(set(given_out))
    assert not set(given_out) & taken
    assert all(len(item.slots) == item.waiting.slots for item in placed)
    assert all(0 <= slot < slots for slot in given_out)
