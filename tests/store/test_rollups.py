"""The pyramid over a series says what its points say, whatever pieces they came in, at a cost that does not grow."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import sqlalchemy as sa
import zstandard
from hypothesis import given

from whistlestop.server.store import buckets, metrics, packing, rebuild, rollups, runs, series
from whistlestop.server.store.descent import Reader, Seek
from whistlestop.server.store.schema import metric_chunks, metric_rollups, metric_series
from whistlestop.testing.world import World, world

START = 1_700_000_000.0


@pytest.fixture(params=["sqlite", "postgres"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with world(tmp_path, url) as made:
        yield made


def begin(here: World) -> tuple[str, str]:
    run = here.submit()
    here.settle()
    return run.id, here.attempt(run.id).id


def points(steps: Sequence[int] | np.ndarray, values: np.ndarray, first: int = 1) -> metrics.Points:
    records = np.arange(first, first + len(values))
    return metrics.Points(records, np.asarray(steps, np.int64), START + records * 0.5, np.asarray(values, np.float64))


def append(here: World, attempt_id: str, new: metrics.Points, sizes: Iterator[int], name: str = "loss") -> None:
    start = 0
    while start < len(new):
        end = start + next(sizes)
        part = metrics.Points(new.record[start:end], new.step[start:end], new.time[start:end], new.value[start:end])
        with here.context.database.write() as connection:
            metrics.append(connection, attempt_id, {name: part})
        start = end


def always(size: int) -> Iterator[int]:
    while True:
        yield size


def found(here: World, run_id: str, **wanted: Any) -> tuple[buckets.Buckets, np.ndarray, Reader]:
    with here.context.database.read() as connection:
        [row] = series.of_runs(connection, [run_id], ["loss"])
        reader = Reader(connection)
        [answer] = reader.descend([Seek(row, **{"axis": "step", **wanted})])
    return answer.buckets, answer.points, reader


def noise(count: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=count)
    values[count // 3] = np.nan
    values[count // 2] = np.inf
    return values


def test_points_come_back_by_themselves_when_every_one_is_asked_for(here: World) -> None:
    run_id, attempt_id = begin(here)
    values = noise(10_000)
    append(here, attempt_id, points(np.arange(10_000), values), iter([1, 4094, 1, 1, 5000, 903]))
    shown, counts, _ = found(here, run_id, most_rows=10_000)
    assert (counts == 1).all()
    np.testing.assert_array_equal(shown.step_low, np.arange(10_000))
    np.testing.assert_array_equal(shown.last, np.where(np.isfinite(values), values, np.nan))
    assert shown.odd[[10_000 // 3, 10_000 // 2]].tolist() == [buckets.NAN, buckets.PLUS]


@pytest.mark.parametrize("size", [16.0, 300.0, 5_000.0, 1e9])
def test_buckets_of_any_size_hold_every_point_once_with_its_extremes(here: World, size: float) -> None:
    run_id, attempt_id = begin(here)
    values = noise(200_000, seed=1)
    append(here, attempt_id, points(np.arange(200_000), values), always(70_001))
    shown, counts, _ = found(here, run_id, size=size)
    assert counts.sum() == 200_000
    ends = np.cumsum(counts)
    finite = np.where(np.isfinite(values), values, np.nan)
    np.testing.assert_array_equal(shown.step_high, ends - 1)
    np.testing.assert_array_equal(shown.low, np.fmin.reduceat(finite, ends - counts))
    np.testing.assert_array_equal(shown.high, np.fmax.reduceat(finite, ends - counts))
    assert ((shown.step_high - shown.step_low < size) | (counts == 1)).all()


def test_the_pyramid_is_the_same_whatever_pieces_the_points_came_in(here: World) -> None:
    new = points(np.arange(300_000), noise(300_000, seed=2))
    pyramids = []
    for sizes in (always(300_000), always(4_096), iter([4_095, 1, 65_536, 1, 200_000, 99_999])):
        run_id, attempt_id = begin(here)
        append(here, attempt_id, new, sizes)
        with here.context.database.write() as connection:
            [row] = series.of_runs(connection, [run_id], ["loss"])
            query = sa.select(metric_rollups).where(metric_rollups.c.series_id == row.id)
            rows = connection.execute(query).all()
            pyramids.append({(each.level, each.number, each.first_record): each.data for each in rows})
            runs.delete(connection, run_id)
            assert connection.scalar(sa.select(sa.func.count()).select_from(metric_rollups)) == 0
            assert connection.scalar(sa.select(sa.func.count()).select_from(metric_series)) == 0
    assert pyramids[0] == pyramids[1] == pyramids[2]
    assert {level for level, _, _ in pyramids[0]} == {1, 2, 3, 4}


def test_a_window_holds_exactly_its_points_on_either_axis(here: World) -> None:
    run_id, attempt_id = begin(here)
    new = points(np.arange(100_000) * 3, noise(100_000, seed=3))
    append(here, attempt_id, new, always(33_333))
    for low, high in ((0, 1), (12_285, 12_291), (100, 250_001), (299_990, 299_997), (290_000, 10**9), (5, 5)):
        shown, counts, _ = found(here, run_id, steps=(low, high), size=1_000.0)
        assert counts.sum() == np.sum((new.step >= low) & (new.step <= high)), (low, high)
        times = (START + low, START + high)
        shown, counts, _ = found(here, run_id, axis="time", times=times, size=1_000.0)
        assert counts.sum() == np.sum((new.time >= times[0]) & (new.time <= times[1])), (low, high)
        assert not len(shown) or (shown.time_low.min() >= times[0] and shown.time_high.max() <= times[1])


def test_steps_that_go_back_lose_nothing(here: World) -> None:
    run_id, attempt_id = begin(here)
    steps = np.arange(50_000)
    steps[::500] -= 400  # a late evaluation of an earlier step, every now and then
    new = points(steps, noise(50_000, seed=4))
    append(here, attempt_id, new, always(50_000))
    _, counts, _ = found(here, run_id, steps=(20_000, 30_000), size=20.0)
    assert counts.sum() == np.sum((steps >= 20_000) & (steps <= 30_000))


def test_a_program_that_jumps_to_and_fro_for_ever_gets_coarser_buckets_at_a_bounded_cost(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        run_id, attempt_id = begin(here)
        append(here, attempt_id, points(np.arange(2_000_000) * 7_919 % 100_003, np.ones(2_000_000)), always(500_000))
        shown, counts, reader = found(here, run_id, size=100.0, most_rows=64)
        assert counts.sum() == 2_000_000
        assert (shown.high == 1.0).all()
        assert reader.rows <= 4 * 64


def test_a_chart_costs_the_same_for_a_thousand_and_for_ten_million_points(tmp_path: Path) -> None:
    rows = {}
    for count in (1_000, 100_000, 10_000_000):
        (tmp_path / str(count)).mkdir()
        with world(tmp_path / str(count)) as here:
            run_id, attempt_id = begin(here)
            for start in range(0, count, 1_000_000):
                steps = np.arange(start, min(count, start + 1_000_000))
                append(here, attempt_id, points(steps, np.ones(len(steps)), first=start + 1), always(1_000_000))
            for axis, part in (("step", (0, 1)), ("time", (0, 1)), ("step", (0.5, 0.501)), ("time", (0.9, 1))):
                window = tuple(share * count for share in part)
                size = 2.0 ** math.ceil(math.log2(max(1.0, (window[1] - window[0]) / 600)))
                where = {"steps": window} if axis == "step" else {"times": tuple(START + at / 2 for at in window)}
                _, counts, reader = found(here, run_id, axis=axis, size=size, **where)
                rows[count, axis, part] = reader.rows
                assert len(counts) <= 16 * 600 + 4_096
                assert reader.statements <= 8
    assert max(rows.values()) <= 64, rows


def test_a_pause_in_the_middle_does_not_make_the_rest_coarse(here: World) -> None:
    """Steps 0 to 99,999, then a jump by a million: what is dense is opened, not the whole."""
    run_id, attempt_id = begin(here)
    steps = np.concatenate((np.arange(100_000), np.arange(1_100_000, 1_100_100)))
    append(here, attempt_id, points(steps, np.ones(len(steps))), always(len(steps)))
    shown, counts, reader = found(here, run_id, size=2_048.0)
    assert counts.sum() == len(steps)
    assert ((shown.step_high - shown.step_low) < 2_048).all()
    assert reader.rows <= 64


def test_points_of_an_earlier_version_get_their_pyramid_at_the_next_start(here: World) -> None:
    run_id, attempt_id = begin(here)
    new = points(np.arange(10_000), noise(10_000, seed=5))
    append(here, attempt_id, new, always(10_000))
    before, _, _ = found(here, run_id, size=64.0)
    with here.context.database.write() as connection:
        metrics.add_shape(connection, attempt_id, "metrics-sys", 1, ["loss"])
        for row in connection.execute(sa.select(metric_chunks)).all():
            old = metrics.unpack(row.data)
            columns = (np.diff(old.record, prepend=0), np.diff(old.step, prepend=0), old.time, old.value)
            packed = zstandard.compress(b"".join(column.tobytes() for column in columns), 1)
            where = metric_chunks.c.first_record == row.first_record
            connection.execute(metric_chunks.update().where(where).values(data=packed))
        connection.execute(metric_series.delete())
    here.context.database.migrate()
    after, _, _ = found(here, run_id, size=64.0)
    for one, other in zip(before.columns(), after.columns(), strict=True):
        np.testing.assert_array_equal(one, other)
    with here.context.database.write() as connection:
        assert rebuild.missing(connection) == 0
        [row] = series.of_runs(connection, [run_id], ["loss"])
        assert (row.points, row.chunks, row.kind, row.nonfinite) == (10_000, 2, "system", 2)
    append(here, attempt_id, points(np.arange(10_000, 20_000), np.zeros(10_000), first=10_001), always(777))
    _, counts, _ = found(here, run_id, size=64.0)
    assert counts.sum() == 20_000


def test_the_series_row_says_what_its_points_say(here: World) -> None:
    run_id, attempt_id = begin(here)
    append(here, attempt_id, points([5, 9, 2], np.array([3.0, -1.0, np.nan])), always(1))
    with here.context.database.read() as connection:
        [row] = series.of_runs(connection, [run_id], ["loss"])
    assert (row.first_step, row.last_step, row.low, row.high, row.step) == (2, 9, -1.0, 3.0, 2)
    assert math.isnan(series.newest_value(row))
    assert (row.points, row.nonfinite, row.chunks) == (3, 1, 0)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats()), min_size=1, max_size=300))
def test_columns_are_packed_bit_for_bit(rows: list[tuple[int, float]]) -> None:
    whole, number = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    table = packing.unpack(packing.pack((whole, number, number), growing=2), 3, growing=2)
    assert table[0].tolist() == whole.tolist()
    assert table[1].tobytes() == table[2].tobytes() == number.tobytes()


def test_rows_are_found_by_their_key_and_not_by_a_scan(tmp_path: Path) -> None:
    with world(tmp_path) as here, here.context.database.read() as connection:
        keys = [rollups.Key(each, 1, number) for each in range(150) for number in range(3)]
        seen: list[Any] = []
        sa.event.listen(connection, "before_cursor_execute", lambda *asked: seen.append(asked[2:4]))
        assert rollups.read(connection, keys) == {}
        assert len(seen) == 2
        plan = [
            row for each in list(seen) for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {each[0]}", each[1])
        ]
        del seen[:]
        for names in (1, 100):  # as a chart of so many names, as wide as it may be, and more than a statement may hold
            many = [rollups.Key(each, 1, number) for each in range(names) for number in range(53_000 // names)]
            assert rollups.read(connection, many) == {}
        assert sum(len(each[1]) for each in seen) >= 2 * 53_000
        assert max(len(each[1]) for each in seen) <= 10_200
    assert any("SEARCH metric_rollups" in row[-1] for row in plan), plan
    assert not any("SCAN metric_rollups" in row[-1] for row in plan), plan
