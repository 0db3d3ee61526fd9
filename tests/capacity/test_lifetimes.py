"""How long pools stay, by age, from what was seen of them."""

import math
import random

import pytest

from whistlestop.capacity.lifetimes import AGES, SPANS, USUAL_UP, Record, Spells, span


def test_spans_begin_where_they_say() -> None:
    assert [span(age) for age in AGES] == list(range(SPANS))
    assert [span(age - 1) for age in AGES[1:]] == list(range(SPANS - 1))


def test_nothing_seen_is_as_usual() -> None:
    assert Spells(USUAL_UP).rates() == pytest.approx(USUAL_UP)


def test_its_own_record_outweighs_the_usual() -> None:
    chance, spells = random.Random(1), Spells(USUAL_UP)
    for _ in range(2000):
        spells.add(chance.expovariate(1 / 1200), ended=True)
    assert spells.left(0) == pytest.approx(1200, rel=0.15)
    assert spells.rates()[0] == pytest.approx(1 / 1200, rel=0.1)


def test_what_has_not_ended_counts_as_time_only() -> None:
    spells = Spells(USUAL_UP)
    before = spells.left(0)
    spells.add(40 * 3600.0, ended=False)
    assert spells.left(0) > before
    assert sum(spells.ends) == 0


def test_what_is_old_stays_longer() -> None:
    spells = Spells(USUAL_UP)
    assert spells.left(0) < spells.left(3600) < spells.left(24 * 3600)


def test_a_record_counts_from_the_first_change_on() -> None:
    record = Record()
    for minute in range(600):
        record.see(minute * 60.0, (minute // 30) % 2 == 0)
    # 0–30 is of unknown age; the last one has not ended.
    assert sum(record.up.ends) == 9
    assert sum(record.down.ends) == 9
    assert sum(record.up.at_risk) == 9 * 1800
    assert record.age(600 * 60.0) == 1800
    assert 0.45 < record.share < 0.55


def test_the_chance_to_go_on_is_that_of_all_the_ages_on_the_way() -> None:
    spells = Spells(USUAL_UP)
    assert spells.stays(0, 0) == 1
    assert spells.stays(0, 600) == pytest.approx(math.exp(-600 * USUAL_UP[0]))
    assert spells.stays(0, 1500) == pytest.approx(math.exp(-600 * USUAL_UP[0] - 900 * USUAL_UP[1]))
    assert spells.stays(100_000, 7200) == pytest.approx(math.exp(-7200 * USUAL_UP[-1]))
