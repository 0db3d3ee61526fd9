import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whistlestop.blobs.manifest import Checkpoint
from whistlestop.blobs.retention import ASKED, Policy, removable


def checkpoint(step: int, attempt: int = 1, revision: int = 0, **meta: Any) -> Checkpoint:
    name = f"c-{step}-{attempt}" + (f".r{revision}" if revision else "")
    return Checkpoint(name, "main", step, attempt, f"a-{attempt}", Path("x"), 0.0, 0, {}, meta, revision)


def measured(step: int, value: object, **meta: Any) -> Checkpoint:
    return checkpoint(step, metrics={"val/loss": value}, **meta)


def gone(history: Sequence[Checkpoint], **policy: Any) -> list[int]:
    return [each.step for each in removable(history, policy=Policy(**policy))]


KEYS = st.sets(st.tuples(st.integers(0, 10**13), st.integers(1, 20)), max_size=30)


def test_all_but_the_newest_go_oldest_first() -> None:
    history = [checkpoint(step) for step in (5, 4, 3, 2, 1)]
    assert [each.step for each in removable(history, keep=2)] == [1, 2, 3]
    assert gone(history, last=2) == [1, 2, 3]
    assert [each.step for each in removable(history)] == [1, 2]


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
    first, second, older = checkpoint(4), checkpoint(4, revision=1), checkpoint(3)
    assert removable([first, second, older], keep=2) == [first]
    assert removable([first, second, older], keep=2, protected={first.id}) == []
    assert removable([first, second], keep=1) == [first]


def test_a_healthy_revision_stays_when_the_one_that_replaced_it_is_not_and_nothing_newer_is() -> None:
    first, second = checkpoint(4), checkpoint(4, revision=1, healthy=False)
    assert removable([first, second], keep=1) == []
    assert removable([first, second, checkpoint(5)], keep=1) == [first, second]


def test_what_somebody_asked_for_is_not_pushed_out_by_what_came_by_itself() -> None:
    asked = checkpoint(1, why="on request")
    later = [checkpoint(step) for step in range(2, 8)]
    assert [each.step for each in removable([asked, *later], keep=2)] == [2, 3, 4, 5]
    unhealthy = [checkpoint(step, healthy=False) for step in range(8, 12)]
    assert [each.step for each in removable([*later, *unhealthy], keep=2)] == [2, 3, 4, 5, 6, 8, 9]


def test_the_best_by_a_metric_stay() -> None:
    history = [measured(step, value) for step, value in enumerate([5.0, 1.0, 3.0, 2.0, 4.0, 6.0], 1)]
    assert gone(history, last=1, best=2, by="val/loss") == [1, 3, 5]
    assert gone(history, last=1, best=2, by="val/loss", mode="max") == [2, 3, 4, 5]
    assert gone(history, last=1, by="val/loss") == [1, 3, 4, 5], "one is kept even if nobody said how many"
    assert gone(history, last=1, best=2) == [1, 2, 3, 4, 5], "best by what?"


def test_of_equally_good_ones_the_newest_stays() -> None:
    history = [measured(step, 1.0) for step in range(1, 6)]
    assert gone(history, last=1, best=2, by="val/loss") == [1, 2, 3]


@pytest.mark.parametrize("value", [None, math.nan, -math.inf, "0.1", True, -(10**400)])
def test_a_value_that_is_not_a_finite_number_is_never_the_best(value: object) -> None:
    history = [measured(1, value), measured(2, 7.0), checkpoint(3), checkpoint(4, metrics=[1])]
    assert gone(history, last=1, best=3, by="val/loss") == [1, 3]


def test_an_unhealthy_one_is_neither_the_best_nor_a_milestone() -> None:
    history = [measured(1, 0.1, healthy=False), measured(2, 5.0), measured(3, 6.0), measured(4, 7.0)]
    assert gone(history, last=1, best=1, by="val/loss", every=100) == [1, 3]


def test_the_first_one_of_every_so_many_steps_stays() -> None:
    history = [checkpoint(step) for step in range(40, 400, 40)]  # 40, 80, … 360
    assert gone(history, last=1, every=100) == [80, 160, 240, 280]


def test_a_milestone_that_was_reached_twice_is_the_later_attempts() -> None:
    history = [checkpoint(100), checkpoint(100, attempt=2), checkpoint(150, attempt=2)]
    assert removable(history, policy=Policy(last=1, every=100)) == [history[0]]


def test_a_launch_says_it_in_plain_values() -> None:
    assert Policy.from_launch(5, {}) == Policy(last=5)
    said = {"last": 2, "best": 1, "by": "val/loss", "mode": "max", "every": 10}
    assert Policy.from_launch(5, said) == Policy(2, 1, "val/loss", "max", 10)
    assert Policy.from_launch(5, {"last": "2", "mode": "mean", "every": True, "more": 1}) == Policy(last=5)


# Whole histories: saves of several attempts, some of them again, some not healthy, pins, and prunings in between.


@dataclass
class History:
    policy: Policy
    here: dict[str, Checkpoint] = field(default_factory=dict)
    saved: dict[str, Checkpoint] = field(default_factory=dict)  # ever
    pinned: set[str] = field(default_factory=set)
    step: int = 0
    attempt: int = 1

    def play(self, events: Iterable[tuple[str, int]]) -> None:
        for what, number in events:
            getattr(self, what)(number)
        self.prune(0)

    def train(self, number: int) -> None:
        self.step += 1 + number % 7
        self.save(number)

    def save(self, number: int) -> None:
        """At the same step as before: a revision."""
        again = [each for each in self.saved.values() if (each.step, each.attempt_number) == (self.step, self.attempt)]
        why = (*ASKED, "on its cadence", "on its cadence")[number % 4]
        value = (None, math.nan, *(float(number % 5) for _ in range(6)))[number % 8]
        made = checkpoint(self.step, self.attempt, len(again), why=why, metrics={"m": value}, healthy=number % 6 > 0)
        self.here[made.id] = self.saved[made.id] = made

    def restart(self, number: int) -> None:
        """A new attempt, from where a resume would begin, or from any that is still there."""
        healthy = [each.step for each in self.here.values() if each.healthy]
        self.attempt += 1
        self.step = 0 if not healthy else max(healthy) if number % 4 else healthy[number % len(healthy)]

    def pin(self, number: int) -> None:
        if self.here:
            self.pinned.add(sorted(self.here)[number % len(self.here)])

    def unpin(self, number: int) -> None:
        if self.pinned:
            self.pinned.discard(sorted(self.pinned)[number % len(self.pinned)])

    def prune(self, number: int) -> None:
        policy, before = self.policy, list(self.here.values())
        random.Random(number).shuffle(before)  # the order of the question does not matter
        for each in removable(before, policy=policy, protected=self.pinned):
            del self.here[each.id]
        if not before:
            return
        assert self.pinned <= self.here.keys()
        last = max(1, policy.last)
        # Of all that was ever saved, the newest and the newest healthy one are here, however often was pruned.
        ever = sorted(self.saved.values(), key=order)
        assert ever[-1].id in self.here
        assert all(each.id in self.here for each in [each for each in ever if each.healthy][-1:])
        older = replaced(ever)
        assert all(each.id in self.here for each in [each for each in ever if each.id not in older][-last:])
        # Of what was there: what was asked for, the best values, and the first of each window.
        older = replaced(before)
        there = [each for each in sorted(before, key=order) if each.id not in older]
        assert all(each.id in self.here for each in [each for each in there if each.meta["why"] in ASKED][-last:])
        current = [each for each in before if each.healthy]
        older = replaced(current)
        current = [each for each in current if each.id not in older]
        sign = -1 if policy.mode == "max" else 1
        values = sorted(sign * each.meta["metrics"]["m"] for each in current if is_number(each.meta["metrics"]["m"]))
        left = sorted(
            sign * each.meta["metrics"]["m"]
            for each in current
            if each.id in self.here and is_number(each.meta["metrics"]["m"])
        )
        best = max(1, policy.best) if policy.by else 0
        assert left[:best] == values[:best]
        windows = {each.step // policy.every for each in current} if policy.every else set()
        for window in windows:
            first = min(each.step for each in current if each.step // policy.every == window)
            assert any(each.step == first and each.id in self.here for each in current)
        assert len(self.here) <= 2 * last + 1 + best + len(windows) + len(self.pinned)


def order(each: Checkpoint) -> tuple[int, int, int]:
    return each.step, each.attempt_number, each.revision


def replaced(checkpoints: Iterable[Checkpoint]) -> set[str]:
    newest: dict[tuple[int, int], Checkpoint] = {}
    older = set()
    for each in sorted(checkpoints, key=order):
        if (before := newest.get((each.step, each.attempt_number))) is not None:
            older.add(before.id)
        newest[each.step, each.attempt_number] = each
    return older


def is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


EVENTS = ("train", "train", "train", "train", "save", "prune", "prune", "restart", "pin", "unpin")
POLICIES = st.builds(
    Policy,
    last=st.integers(-1, 4),
    best=st.integers(-1, 3),
    by=st.sampled_from(["", "m", "m"]),
    mode=st.sampled_from(["min", "max"]),
    every=st.sampled_from([0, 1, 5, 20]),
)


@given(policy=POLICIES, events=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 1000)), max_size=60))
def test_what_must_stay_stays_in_every_history(policy: Policy, events: list[tuple[str, int]]) -> None:
    History(policy).play(events)


def play_by_chance(seed: int) -> None:
    chance = random.Random(seed)
    policy = Policy(
        last=chance.randint(-1, 4),
        best=chance.randint(-1, 3),
        by=chance.choice(["", "m", "m"]),
        mode=chance.choice(["min", "max"]),
        every=chance.choice([0, 1, 5, 20]),
    )
    history = History(policy)
    try:
        history.play((chance.choice(EVENTS), chance.randrange(1000)) for _ in range(chance.randint(1, 40)))
    except AssertionError as error:
        raise AssertionError(f"the history of seed {seed} with {policy} has lost something") from error


def test_what_must_stay_stays_in_a_thousand_random_histories() -> None:
    for seed in range(1_000):
        play_by_chance(seed)


@pytest.mark.long
def test_what_must_stay_stays_in_a_hundred_thousand_random_histories() -> None:
    for seed in range(100_000):
        play_by_chance(seed)


def test_the_check_itself_sees_a_rule_that_keeps_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_the_newest(checkpoints: Sequence[Checkpoint], **_: Any) -> list[Checkpoint]:
        return sorted(checkpoints, key=order)[:-1]

    monkeypatch.setitem(globals(), "removable", only_the_newest)
    with pytest.raises(AssertionError, match="has lost something"):
        play_by_chance(1)
