"""The replay itself, on recordings of our own: what it says of the rule is only worth as much as this."""

import json
import random
import tarfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from whistlestop.sdk.cadence import EverySeconds
from whistlestop.testing.cadence_replay import SETTINGS, Waste, compare, fixed_waste, main, replayed
from whistlestop.testing.spot_traces import Pool, Spell, read_families, spells_of


def lives(*, between: float, count: int, seed: int = 0) -> list[Spell]:
    """Without a memory: the older machine is as likely to go as the young one."""
    chance = random.Random(seed)
    return [Spell(chance.expovariate(1 / between)) for _ in range(count)]


def test_a_save_that_became_durable_is_kept_and_everything_behind_it_is_lost() -> None:
    # Saves begin at 100, 202, 304; each blocks for 2 and is durable 10 later.
    waste = replayed(EverySeconds(100.0), [Spell(310.0)], 2.0, 10.0)
    assert waste.blocked == pytest.approx(6.0)
    assert waste.lost == pytest.approx(310.0 - 6.0 - 200.0)
    assert waste.share == pytest.approx((waste.blocked + waste.lost) / 310.0)


def test_nothing_is_lost_where_the_recording_ends() -> None:
    assert replayed(EverySeconds(100.0), [Spell(310.0, ended=False)], 2.0, 10.0) == Waste(6.0, 0.0, 310.0)


def test_a_machine_that_goes_before_its_first_save_loses_all() -> None:
    assert replayed(EverySeconds(100.0), [Spell(60.0), Spell(101.0)], 2.0, 10.0) == Waste(1.0, 160.0, 161.0)


@pytest.mark.parametrize(("save", "durable"), SETTINGS)
@pytest.mark.parametrize("interval", [60.0, 300.0, 1800.0])
def test_the_short_way_for_fixed_intervals_gives_the_same(interval: float, save: float, durable: float) -> None:
    spells = [*lives(between=4000.0, count=50), Spell(5000.0, ended=False)]
    long, short = replayed(EverySeconds(interval), spells, save, durable), fixed_waste(spells, interval, save, durable)
    for one, other in zip(
        (long.blocked, long.lost, long.uptime), (short.blocked, short.lost, short.uptime), strict=True
    ):
        assert one == pytest.approx(other, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize(("save", "durable"), SETTINGS)
def test_auto_is_nearly_as_good_as_the_best_fixed_interval_where_machines_have_no_memory(
    save: float, durable: float
) -> None:
    pools = [Pool(f"pool-{seed}", 0.0, lives(between=9000.0, count=60, seed=seed)) for seed in range(4)]
    row = compare("memoryless", pools, save, durable, draws=1)
    assert row.ratio <= 1.1
    assert row.auto < row.fixed[300.0] < row.fixed[1800.0] or save > 1


def test_auto_is_better_than_any_fixed_interval_where_some_pools_are_calm_and_others_are_not() -> None:
    pools = [Pool(f"pool-{between}", 0.0, lives(between=between, count=60)) for between in (1500.0, 60000.0)]
    assert compare("unequal", pools, 1.0, 5.0, draws=1).ratio < 1.0


def test_taken_as_recorded_a_fixed_interval_that_divides_the_gap_looks_better_than_it_can_be() -> None:
    chance = random.Random(4)
    pools = [Pool("probed", 600.0, [Spell(600.0 * chance.randint(1, 6)) for _ in range(300)])]
    recorded, drawn = (compare("probed", pools, 1.0, 5.0, draws=draws) for draws in (0, 3))
    assert recorded.best < 0.5 * drawn.best
    assert recorded.ratio > drawn.ratio


# Reading.


def write_availability(path: Path, up: Sequence[int], *, gap: int = 195) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    began = datetime(2030, 1, 1)
    rows = [f"{began + timedelta(seconds=gap * index)},{value}" for index, value in enumerate(up)]
    path.write_text("\n".join(["date,availability", *rows]) + "\n")


def test_lives_are_what_lies_between_two_times_without_a_machine() -> None:
    assert spells_of([False, True, True, False, True], 10.0) == [Spell(20.0), Spell(10.0, ended=False)]
    assert spells_of([False, False], 10.0) == []


def test_lengths_are_drawn_from_between_the_probes_and_are_as_long_on_average() -> None:
    pool = Pool("a", 100.0, [Spell(300.0)] * 4000)
    drawn = [spell.seconds for spell in pool.drawn(random.Random(1))]
    assert min(drawn) >= 200.0
    assert max(drawn) <= 400.0
    assert sum(drawn) / len(drawn) == pytest.approx(300.0, rel=0.01)
    assert drawn == [spell.seconds for spell in pool.drawn(random.Random(1))]


def test_every_form_of_recording_is_read_with_its_own_sense_of_one(tmp_path: Path) -> None:
    write_availability(tmp_path / "zones" / "processed" / "a.csv", [0, 1, 1, 0])
    (tmp_path / "counts.csv").write_text(
        "scheduled_at,x,y\n"
        "2030-01-01T00:00:00+00:00,4,3\n2030-01-01T00:10:00+00:00,4,4\n2030-01-01T00:20:00+00:00,1,4\n"
    )
    (tmp_path / "alive.csv").write_text(",Time,GPUs\n0,0,8\n1,60,8\n2,120,7\n3,180,9\n")
    inverted = tmp_path / "inverted" / "zone" / "full.json"
    inverted.parent.mkdir(parents=True)
    inverted.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [1, 0, 0, 1, 0]}))
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as archive:
        archive.add(inverted, "packed/zone/full.json")
    (tmp_path / "prices.csv").write_text("zone,price\na,1\n")
    (tmp_path / "empty.csv").write_text("")
    six_hundred = Pool("zone", 600.0, [Spell(1200.0), Spell(600.0, ended=False)])
    assert read_families(tmp_path) == {
        "zones": [Pool("a", 195.0, [Spell(390.0)])],
        "counts": [
            Pool("x", 600.0, [Spell(1200.0)]),
            Pool("y", 600.0, [Spell(1200.0, ended=False)]),
        ],
        "alive": [Pool("alive", 60.0, [Spell(120.0), Spell(60.0, ended=False)])],
        "inverted": [six_hundred],
        "packed": [six_hundred],
    }


def test_the_command_shows_a_table_of_what_it_found(tmp_path: Path) -> None:
    chance = random.Random(3)
    up: list[int] = []
    while len(up) < 4000:
        up += [1] * (1 + int(chance.expovariate(1 / 40))) + [0] * 3
    write_availability(tmp_path / "synthetic" / "processed" / "a.csv", up)
    said: list[str] = []
    assert main([str(tmp_path)], said.append) == 0
    assert "synthetic: 1 pools, " in said[0]
    assert len(said[0].splitlines()) == 2 + len(SETTINGS)
    assert main([str(tmp_path), "--as-recorded"], said.append) == 0
    assert said[1] != said[0]


def test_the_command_says_when_there_is_nothing_to_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert "no recording" in capsys.readouterr().err
