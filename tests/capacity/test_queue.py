"""The queue: in order, all or nothing, nobody starved."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from whistlestop.capacity.choose import Wants
from whistlestop.capacity.pools import Host, Pool
from whistlestop.capacity.queue import Kept, Plan, Waiting, plan
from whistlestop.capacity.victims import Running


def pool(slots: int = 4, taken: set[int] = set(), name: str = "local", **more: Any) -> Pool:  # noqa: B006
    return Pool(name, slots, 1.0, frozenset(taken), **more)


def hosts(*sizes: int) -> tuple[Host, ...]:
    first, found = 0, []
    for index, size in enumerate(sizes, 1):
        found.append(Host(f"h{index}", tuple(range(first, first + size))))
        first += size
    return tuple(found)


def waiting(*slots: int, **more: Any) -> list[Waiting]:
    return [Waiting(f"r{index}", f"p{index}", Wants(slots=count), **more) for index, count in enumerate(slots)]


def one(
    name: str, slots: int, *, limit: float | None = None, priority: int = 0, pools: tuple[str, ...] = ()
) -> Waiting:
    return Waiting(name, name, Wants(slots=slots, pools=pools), priority, limit)


def runs(name: str, *slots: int, until: float | None = None, **more: Any) -> Running:
    return Running(name, more.pop("pool", "local"), slots, ends_by=until, **more)


def started(made: Plan) -> list[str]:
    return [each.waiting.run_id for each in made.placements]


def test_the_head_of_the_queue_starts_first() -> None:
    assert started(plan(waiting(2, 2, 1), [pool()])) == ["r0", "r1"]


def test_a_wide_phase_is_not_overtaken_by_narrow_ones_where_nothing_bounds_what_runs() -> None:
    assert started(plan(waiting(4, 1), [pool(taken={0})], [runs("a", 0)])) == []


def test_a_phase_that_can_never_fit_holds_nobody_back() -> None:
    assert started(plan(waiting(9, 1), [pool()])) == ["r1"]
    assert started(plan([one("gone", 1, pools=("away",)), one("here", 1)], [pool()])) == ["here"]


def test_all_slots_of_a_phase_are_on_one_host() -> None:
    split = [pool(4, {0, 2}, hosts=hosts(2, 2))]
    made = plan(waiting(2), split)
    assert made.placements == []
    assert made.waits["p0"] == "2 slots of pool local: 2 of 4 free, at most 1 on one host"
    [placed] = plan(waiting(2), [pool(4, {0}, hosts=hosts(2, 2))]).placements
    assert (placed.host, placed.slots) == ("h2", (2, 3))


def test_the_tightest_host_is_taken_so_that_wide_ones_find_room() -> None:
    made = plan(waiting(1, 2), [pool(4, {2}, hosts=hosts(2, 2))])
    assert [each.host for each in made.placements] == ["h2", "h1"]


def test_a_retry_lands_on_another_host_where_it_can() -> None:
    two = [pool(2, hosts=hosts(1, 1))]
    [placed] = plan(waiting(1, avoid=("local", "h1")), two).placements
    assert placed.host == "h2"
    [placed] = plan(waiting(1, avoid=("local", "h1")), [pool(2, {1}, hosts=hosts(1, 1))]).placements
    assert placed.host == "h1"


def test_hosts_that_are_shut_are_not_used_and_a_phase_that_needs_one_says_so() -> None:
    two = [pool(3, hosts=hosts(2, 1))]
    made = plan(waiting(1, 2), two, shut={("local", "h1"): "3 bad ends"})
    assert [each.host for each in made.placements] == ["h2"]
    nothing = plan(waiting(2, 1), two, shut={("local", "h1"): "3 bad ends"})
    assert "host h1 of local is not used now (3 bad ends)" in nothing.waits["p0"]
    assert started(nothing) == ["r1"]


# --- what starts while the head waits ---------------------------------------------------------------------------------


def test_what_ends_before_the_heads_reservation_starts_meanwhile() -> None:
    here = [pool(4, {0, 1})], [runs("a", 0, 1, until=100.0)]
    made = plan([one("head", 4), one("long", 1, limit=200), one("short", 1, limit=90)], *here)
    assert started(made) == ["short"]
    assert made.waits["head"].endswith("at the latest at 1970-01-01T00:01:40.000Z")


def test_slots_that_the_head_leaves_over_are_used_at_once_but_no_more_of_them() -> None:
    here = [pool(4, {0, 1})], [runs("a", 0, 1, until=100.0)]
    assert started(plan([one("head", 3), one("one", 1), one("two", 1)], *here)) == ["one"]


def test_hosts_that_the_head_can_never_use_are_free_for_all() -> None:
    here = [pool(3, {0}, hosts=hosts(2, 1))], [runs("a", 0)]
    assert started(plan([one("head", 2), one("next", 1)], *here)) == ["next"]


def test_hosts_that_the_head_could_use_but_has_not_reserved_are_free_too() -> None:
    here = [pool(4, {0, 2}, hosts=hosts(2, 2))], [runs("a", 0, until=50.0), runs("b", 2)]
    made = plan([one("head", 2), one("next", 1)], *here)
    assert [(each.waiting.run_id, each.host) for each in made.placements] == [("next", "h2")]


def test_the_next_that_does_not_fit_has_the_same_right_to_other_pools() -> None:
    pools = [pool(2, {0}, name="a"), pool(2, {0}, name="b")]
    queue = [one("first", 2, pools=("a",)), one("second", 2, pools=("b",)), one("third", 1)]
    assert started(plan(queue, pools, [runs("x", 0, pool="a"), runs("y", 0, pool="b")])) == []


def test_nothing_is_read_when_nothing_is_free() -> None:
    def queue() -> Any:
        raise AssertionError("the queue was read")
        yield

    assert plan(queue(), [pool(1, {0})], [runs("a", 0)]).placements == []


def test_reading_ends_when_every_slot_is_given() -> None:
    read = []

    def queue() -> Any:
        for each in waiting(*[1] * 1000):
            read.append(each)
            yield each

    assert len(plan(queue(), [pool(4)]).placements) == 4
    assert len(read) == 5


# --- priority ---------------------------------------------------------------------------------------------------------


def low(name: str, *slots: int, work: float = 0.0, priority: int = 0, **more: Any) -> Running:
    return Running(name, "local", slots, priority, yields=True, work=work, **more)


def victims(made: Plan) -> set[str]:
    return {each.attempt_id for each in made.victims}


def test_one_of_lower_priority_makes_room_the_one_that_loses_the_least() -> None:
    running = [low("much", 0, work=90), low("little", 1, work=5), low("higher", 2, work=0, priority=1)]
    made = plan([one("urgent", 1, priority=2)], [pool(3, {0, 1, 2})], running)
    assert victims(made) == {"little"}
    assert made.waits["urgent"].endswith("1 of lower priority makes room for it")


def test_equal_priority_makes_no_room_nor_who_may_not_leave() -> None:
    full = [pool(1, {0})]
    assert victims(plan([one("same", 1)], full, [low("a", 0)])) == set()
    assert victims(plan([one("urgent", 1, priority=9)], full, [runs("unsaved", 0)])) == set()


def test_nobody_leaves_where_it_would_not_fit_all_the_same() -> None:
    running = [low("a", 0), runs("stays", 1)]
    assert victims(plan([one("urgent", 2, priority=9)], [pool(2, {0, 1})], running)) == set()


def test_never_more_than_needed_leave() -> None:
    running = [low("narrow", 0, work=1), low("wide", 1, 2, work=50)]
    assert victims(plan([one("urgent", 2, priority=9)], [pool(3, {0, 1, 2})], running)) == {"wide"}
    free = [pool(4, {0, 1, 2})]
    assert victims(plan([one("urgent", 2, priority=9)], free, running)) == {"narrow"}


def test_nobody_is_asked_while_enough_are_leaving() -> None:
    running = [low("a", 0, leaving=True, ends_by=30.0), low("b", 1)]
    made = plan([one("urgent", 1, priority=9), one("later", 1)], [pool(2, {0, 1})], running)
    assert victims(made) == set()


def test_what_leaves_for_one_is_kept_for_it() -> None:
    running = [low("a", 0), low("b", 1)]
    made = plan([one("urgent", 3, priority=9), one("other", 1, priority=9)], [pool(3, {0, 1})], running)
    assert victims(made) == {"a", "b"}
    assert started(made) == [], "the free slot is the urgent one's"


@pytest.mark.parametrize("named", [(), hosts(1, 1, 1, 1), hosts(2, 2)])
def test_each_of_several_urgent_ones_gets_its_own_room_at_once(named: tuple[Host, ...]) -> None:
    full = [pool(4, {0, 1, 2, 3}, hosts=named)]
    running = [low(name, slot) for slot, name in enumerate("abcd")]
    urgent = [one(f"urgent{index}", 1, priority=9) for index in range(3)]
    made = plan(urgent, full, running)
    assert len(victims(made)) == len(made.victims) == 3
    leaving = [
        replace(each, leaving=True, ends_by=60.0) if each.attempt_id in victims(made) else each for each in running
    ]
    assert plan(urgent, full, leaving).victims == [], "they are on their way"
    some = [pool(4, {1, 2, 3}, hosts=named)]
    left = [each for each in leaving if each.attempt_id != "a"]
    assert len(plan(urgent, some, left).placements) == 1


def test_slots_that_are_kept_for_one_on_its_way_go_to_nobody_else() -> None:
    two = [pool(2, {0}, name="a"), pool(1, name="b")]
    other, comes = one("other", 1, priority=5), one("comes", 1)
    kept = [Kept("comes", "a", 1)]
    made = plan([other], two, kept=kept)
    assert [(each.waiting.run_id, each.pool) for each in made.placements] == [("other", "b")]
    assert plan([one("more", 1, priority=5)], [two[0]], kept=kept).placements == []
    both = plan([one("more", 1, priority=5), comes], [two[0]], kept=kept)
    assert [(each.waiting.run_id, each.pool) for each in both.placements] == [("comes", "a")]
    assert plan([], two, kept=[Kept("comes", "a", 1, queued=False)]).placements == []
    elsewhere = plan([one("comes", 1, pools=("b",)), one("more", 1, pools=("a",))], two, kept=kept)
    assert {(each.waiting.run_id, each.pool) for each in elsewhere.placements} == {("comes", "b"), ("more", "a")}


@given(st.lists(st.integers(1, 6), max_size=20), st.integers(1, 8), st.sets(st.integers(0, 9)))
def test_slots_are_given_whole_and_never_twice(sizes: list[int], slots: int, taken: set[int]) -> None:
    placed = plan(waiting(*sizes), [pool(slots, taken)]).placements
    given_out = [slot for item in placed for slot in item.slots]
    assert len(given_out) == len(set(given_out))
    assert not set(given_out) & taken
    assert all(len(item.slots) == item.waiting.slots for item in placed)
    assert all(0 <= slot < slots for slot in given_out)
