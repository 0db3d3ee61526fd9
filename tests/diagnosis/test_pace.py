"""A silence is judged by the run's own history: 1,000 hours of it give no false alarm, and a real one is found soon."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from whistlestop.diagnosis.pace import FLOOR, LAST, LEAST, LONGEST, RARE, UNSEEN, Doing, Moment, Rhythm

HOUR = 3600.0


class Watched:
    """A rhythm under a clock of ours: every piece of work is looked at where it begins and where it ends."""

    def __init__(self, floor: float = FLOOR) -> None:
        self.rhythm = Rhythm(floor=floor, every=1e9)  # so that no gap between two looks is too long to count
        self.at = self.step = 0
        self.marks = 0
        self.alarms: list[tuple[Doing, float, float]] = []
        self.rhythm.see(0.0, Moment(Doing.START))

    def spend(self, seconds: float, doing: Doing, *, steps: int = 0, idle: bool = True) -> None:
        """What it is at takes so long; then it is `doing`."""
        now = self.rhythm.moment
        assert now is not None
        if seconds > self.rhythm.floor:
            patience = self.rhythm.patience(idle=idle)
            if seconds > patience:
                self.alarms.append((now.doing, seconds, patience))
        self.at += seconds  # type: ignore[assignment]
        self.step += steps
        self.marks += 1
        self.rhythm.see(self.at, Moment(doing, self.step, (self.marks,)))


def trained(step: float = 0.8, *, count: int = 400, spread: float = 0.1, floor: float = FLOOR) -> Watched:
    watched, chance = Watched(floor), random.Random(5)
    watched.spend(30.0, Doing.FIRST_STEP)
    watched.spend(20.0, Doing.STEP, steps=1)
    for _ in range(count):
        watched.spend(step * chance.lognormvariate(0.0, spread), Doing.STEP, steps=1)
    return watched


@dataclass(frozen=True)
class Shape:
    """A run that is like itself: everything it does is drawn from one law, with a heavy tail."""

    step: float  # seconds
    spread: float  # of the logarithm
    stalls: float  # part of the steps that take 2 to 10 times as long
    evaluation: float
    every: int  # steps between two of them
    save: float
    start: float
    compile: float

    @classmethod
    def draw(cls, chance: random.Random) -> "Shape":
        step = 10 ** chance.uniform(0.7, 1.9)  # quicker ones are covered by the floor
        return cls(
            step,
            chance.uniform(0.02, 0.6),
            chance.choice([0.0, 0.001, 0.02]),
            10 ** chance.uniform(0.0, 2.9),
            chance.choice([50, 200, 1000]),
            10 ** chance.uniform(-1.0, 2.0),
            10 ** chance.uniform(0.0, 3.4),
            10 ** chance.uniform(0.0, 3.4),
        )

    def pieces(self, chance: random.Random) -> Iterator[tuple[float, Doing, int, bool]]:
        """How long, what comes next, steps done, whether it looked idle."""
        yield self.start, Doing.FIRST_STEP, 0, False
        yield self.compile, Doing.STEP, 1, False
        for step in range(1, 10**9):
            stalls = chance.random() < self.stalls
            takes = self.step * (chance.uniform(2, 10) if stalls else chance.lognormvariate(0.0, self.spread))
            if step % self.every:
                yield takes, Doing.STEP, 1, True
                continue
            yield takes, Doing.EVALUATION, 1, True
            yield self.evaluation * chance.lognormvariate(0.0, 0.3), Doing.SAVE, 0, False
            yield self.save * chance.lognormvariate(0.0, 0.5), Doing.STEP, 0, True


def test_a_thousand_hours_of_slow_loads_compiles_evaluations_and_saves_give_no_false_alarm() -> None:
    chance = random.Random(20)
    hours, alarms = 0.0, []
    while hours < 1000:
        shape, watched = Shape.draw(chance), Watched()
        for seconds, doing, steps, idle in shape.pieces(chance):
            watched.spend(seconds, doing, steps=steps, idle=idle)
            if watched.at > 25 * HOUR:
                break
        hours += watched.at / HOUR
        alarms += [(shape, *alarm) for alarm in watched.alarms]
    assert alarms == []


@given(st.floats(0.001, 25.0), st.floats(0.0, 0.25), st.integers(0, 2**32), st.floats(30.0, 200.0))
@settings(max_examples=8, deadline=None, phases=[Phase.generate])
def test_a_stall_is_found_within_the_floor_or_three_times_the_slowest_steps(
    step: float, spread: float, seed: int, floor: float
) -> None:
    chance, watched = random.Random(seed), Watched(floor)
    watched.spend(1.0, Doing.FIRST_STEP)
    watched.spend(1.0, Doing.STEP, steps=1)
    block = max(1, round(1.0 / step))  # steps that are faster than the looks are seen in blocks
    took = [block * step * chance.lognormvariate(0.0, spread) for _ in range(RARE + 200)]
    for seconds in took:
        watched.spend(seconds, Doing.STEP, steps=block)
    newest = sorted(took[-LAST:])
    percentile = newest[int(0.99 * len(newest))]
    longest = max(took)  # that of thousands may by itself lie near three times the percentile
    patience = watched.rhythm.patience()
    assert patience <= 1.001 * max(floor, 3 * percentile, 2.5 * longest)
    assert patience >= 0.999 * max(floor, LEAST * longest)


def test_quick_steps_are_found_missing_after_the_floor() -> None:
    rhythm = trained().rhythm
    assert rhythm.patience() == FLOOR
    usual = rhythm.usual(Doing.STEP)
    assert usual is not None
    assert 0.7 < usual.median < 0.9 < usual.longest < 1.5


def test_what_it_has_never_done_has_a_quarter_of_an_hour_and_longer_while_it_computes() -> None:
    watched = Watched()
    assert watched.rhythm.patience(idle=True) == UNSEEN * FLOOR == 900.0
    assert watched.rhythm.patience(Doing.FIRST_STEP, idle=False) == 3600.0
    assert watched.rhythm.patience(Doing.START, idle=False) == math.inf, "it may train and tell nobody"
    rhythm = trained().rhythm
    assert rhythm.patience(Doing.EVALUATION) == 900.0
    slow = trained(60.0).rhythm
    assert slow.patience(Doing.EVALUATION) >= 50 * 55


def test_a_small_trial_evaluation_does_not_make_the_first_real_one_a_hang() -> None:
    watched = trained()
    watched.spend(0.8, Doing.EVALUATION)
    watched.spend(1.0, Doing.STEP)
    assert watched.rhythm.patience(Doing.EVALUATION) == 900.0
    for _ in range(4):
        watched.spend(0.8, Doing.EVALUATION)
        watched.spend(400.0, Doing.STEP)
    assert watched.alarms == []
    assert 1200.0 <= watched.rhythm.patience(Doing.EVALUATION) < 1500.0


def test_evaluations_that_all_take_alike_are_missed_soon_and_scattered_ones_later() -> None:
    def after(draw: Callable[[random.Random], float]) -> float:
        watched, chance = trained(), random.Random(3)
        for _ in range(40):
            watched.spend(0.8, Doing.EVALUATION)
            watched.spend(draw(chance), Doing.STEP)
        return watched.rhythm.patience(Doing.EVALUATION)

    alike, scattered = (
        after(lambda chance: chance.uniform(590, 610)),
        after(lambda chance: 600 * chance.paretovariate(2)),
    )
    assert alike == pytest.approx(3 * 600, rel=0.05)
    assert scattered > 2 * alike


def test_few_steps_are_not_yet_a_history() -> None:
    young = trained(count=20).rhythm
    assert young.patience() == 3 * FLOOR


def test_time_in_which_nobody_looked_is_not_silence() -> None:
    rhythm = Rhythm(every=1.0)
    moment = Moment(Doing.STEP, 5)
    rhythm.see(0.0, moment)
    rhythm.see(10_000.0, moment)  # the laptop slept
    assert rhythm.silent == 5.0
    rhythm.rest(10_001.0)
    rhythm.see(10_002.0, moment)
    assert rhythm.silent == 0.0


def test_a_silence_of_days_does_not_make_it_patient_for_days() -> None:
    watched = trained()
    watched.spend(48 * HOUR, Doing.STEP, steps=1)
    assert len(watched.alarms) == 1
    assert watched.rhythm.patience() < HOUR


def test_the_longest_is_forgotten_after_a_day_or_two() -> None:
    watched = trained()
    watched.spend(200.0, Doing.STEP, steps=1)
    assert watched.rhythm.patience() > 200.0
    for _ in range(2 * 24 * 60 + 120):
        watched.spend(60.0, Doing.STEP, steps=75)
    assert watched.rhythm.patience() == 180.0


def test_memory_is_bounded() -> None:
    watched = trained(count=5_000)
    history = watched.rhythm._histories[Doing.STEP]
    assert len(history._last) == LAST
    assert len(history._longest) == LONGEST
