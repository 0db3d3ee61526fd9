"""Journals read as tables say what they say record by record, and what is damaged is refused as before."""

import struct
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from whistlestop.channel.layout import Kind
from whistlestop.channel.records import HEADER, JournalDamaged, Record, parse
from whistlestop.server.services import history, ingest, points
from whistlestop.server.store import metrics
from whistlestop.testing.world import world
from whistlestop.wire.frames import Data

OTHER = 77  # a kind that a newer program may write


def record(kind: int, shape: int, body: bytes) -> bytes:
    body += b"\0" * (-len(body) % 8)
    return HEADER.pack(len(body) + HEADER.size, kind, shape) + body


def point(shape: int, step: int, *values: float) -> bytes:
    return record(Kind.POINTS, shape, struct.pack(f"<qd{len(values)}d", step, step * 0.5, *values))


RECORDS = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 3), st.integers(-(2**63), 2**63 - 1), st.integers(1, 80)).map(
            lambda drawn: b"".join(point(drawn[0], drawn[1], *range(drawn[0])) for _ in range(drawn[2]))
        ),
        st.binary(max_size=20).map(lambda body: record(OTHER, 0, body)),
        st.integers(1, 3).map(lambda shape: record(Kind.SHAPE, shape, b'["a"]')),
    ),
    max_size=12,
)


@given(RECORDS)
def test_a_journal_split_into_tables_has_the_same_records(parts: list[bytes]) -> None:
    data = b"".join(parts)
    expected = list(enumerate(parse(data), 1))
    found: dict[int, Record] = {}
    count = 0
    for part in points.split(data):
        if isinstance(part, Record):
            count += 1
            found[count] = part
            continue
        numbers = range(part.first, part.first + len(part.rows)) if part.numbers is None else part.numbers.tolist()
        count += len(part.rows)
        for number, row in zip(numbers, part.rows, strict=True):
            found[number] = Record(Kind.POINTS, part.shape, row.tobytes()[HEADER.size :])
    assert [found[number] for number, _ in expected] == [each for _, each in expected]
    assert count == len(expected)


@given(
    st.binary(max_size=200)
    | RECORDS.map(b"".join).flatmap(lambda data: st.integers(0, len(data)).map(lambda end: data[:end]))
)
def test_what_record_by_record_is_damaged_is_damaged_as_tables(data: bytes) -> None:
    def read(whole: bytes) -> bool:
        try:
            for each in parse(whole):
                if each.kind == Kind.POINTS:
                    each.point()
        except JournalDamaged:
            return False
        return True

    if read(data):
        list(points.split(data))
    else:
        with pytest.raises(JournalDamaged):
            list(points.split(data))


def test_shapes_that_take_turns_or_change_their_names_are_stored_in_order(tmp_path: Path) -> None:
    names = [record(Kind.SHAPE, 1, b'["loss"]'), record(Kind.SHAPE, 2, b'["lr","loss"]')]
    turns = b"".join(point(1, 2 * step, step) + point(2, 2 * step + 1, 0.1, -step) for step in range(3000))
    renamed = record(Kind.SHAPE, 1, b'["late"]') + b"".join(point(1, step, 7.0) for step in range(50))
    data = b"".join([*names, turns, renamed])
    with world(tmp_path) as here:
        run = here.submit()
        here.settle()
        attempt = here.attempt(run.id)
        cut = len(b"".join(names)) + 1501 * 72  # between two records
        ingest.store(here.context, attempt, [Data("metrics-0", 0, data[:cut]), Data("metrics-0", cut, data[cut:])])
        with here.context.database.read() as connection:
            found, _ = metrics.page(connection, attempt.id, limit=100_000)
            seen = history.metrics_view(connection, run.id)
    assert {name: len(each) for name, each in found.items()} == {"loss": 6000, "lr": 3000, "late": 50}
    np.testing.assert_array_equal(found["loss"].step, np.arange(6000))
    np.testing.assert_array_equal(found["loss"].value[::2], np.arange(3000.0))
    np.testing.assert_array_equal(found["loss"].value[1::2], -np.arange(3000.0))
    assert (np.diff(found["loss"].record) > 0).all()
    assert {series.name for series in seen.series} == {"loss", "lr", "late"}


def test_a_bad_frame_costs_itself_and_not_its_neighbours(tmp_path: Path) -> None:
    """Frames that follow each other are stored as one piece; if that fails, each by itself."""
    good = record(Kind.SHAPE, 1, b'["loss"]') + b"".join(point(1, step, 1.0) for step in range(100))
    bad = record(Kind.SHAPE, 2, b'["a","b"]') + point(2, 1, 5.0)  # two names, one value
    more = b"".join(point(1, step, 2.0) for step in range(100, 200))
    with world(tmp_path) as here:
        run = here.submit()
        here.settle()
        attempt = here.attempt(run.id)
        frames, offset = [], 0
        for data in (good, bad, more):
            frames.append(Data("metrics-0", offset, data))
            offset += len(data)
        assert ingest.store(here.context, attempt, frames) == {"metrics-0": offset}
        with here.context.database.read() as connection:
            [series] = history.metrics_view(connection, run.id).series
    assert [point[0] for point in series.points] == list(range(200))


@pytest.mark.parametrize(("told", "stored"), [(float("nan"), 0.0), (1e300, 1e11), (-1e300, 0.0), (5.5, 5.5)])
def test_a_time_that_is_no_time_is_stored_as_the_nearest_one(tmp_path: Path, told: float, stored: float) -> None:
    body = struct.pack("<qdd", 1, told, 2.0)
    with world(tmp_path) as here:
        run = here.submit()
        here.settle()
        attempt = here.attempt(run.id)
        data = record(Kind.SHAPE, 1, b'["loss"]') + record(Kind.POINTS, 1, body)
        ingest.store(here.context, attempt, [Data("metrics-0", 0, data)])
        with here.context.database.read() as connection:
            [series] = history.metrics_view(connection, run.id).series
    assert series.points == [(1, 2.0, stored)]
