"""Whatever is sent: what is good is kept once, what is bad is left out, and the end always counts."""

import math
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings

from whistlestop.channel.journal import JournalReader, JournalWriter
from whistlestop.channel.layout import Kind
from whistlestop.domain.errors import DiskFull
from whistlestop.server.services import cleaning, history, ingest, views
from whistlestop.server.store import events, series, streams
from whistlestop.testing.world import World, ended, world
from whistlestop.wire.frames import Data, LogLine, Progress, RunnerEvent, pack_record


@pytest.fixture(params=["sqlite", "postgres"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with world(tmp_path, url) as made:
        yield made


def record(kind: int, shape: int, body: bytes) -> bytes:
    body += b"\0" * (-len(body) % 8)
    head = (len(body) + 8).to_bytes(4, "little") + kind.to_bytes(2, "little") + shape.to_bytes(2, "little")
    return head + body


def journal(tmp_path: Path, values: dict[str, float]) -> bytes:
    writer = JournalWriter(tmp_path, "metrics-0")
    writer.points(1, 2.0, values)
    writer.close()
    reader = JournalReader(tmp_path, "metrics-0")
    data = reader.read(0)
    reader.close()
    return data


def names_json(*names: str) -> bytes:
    return msgspec.json.encode(list(names))


POISON = {
    "a shape that was never defined": ("metrics-0", record(Kind.POINTS, 9, b"\0" * 24)),
    "a name with a NUL": (
        "metrics-0",
        record(Kind.SHAPE, 1, names_json("lo\0ss")) + record(Kind.POINTS, 1, b"\0" * 24),
    ),
    "a name without end": (
        "metrics-0",
        record(Kind.SHAPE, 1, names_json("x" * 9000)) + record(Kind.POINTS, 1, b"\0" * 24),
    ),
    "a record that is cut": ("metrics-0", b"\xff\xff\x00\x00\x02\x00\x01\x00"),
    "an event of NaN and depth": ("events-0", record(Kind.EVENT, 0, b'{"kind":"message","text":"a\\u0000","x":NaN}')),
    "an event of a time that no calendar has": ("events-0", record(Kind.EVENT, 0, b'{"kind":"message","at":1e18}')),
    "an event that is no JSON": ("events-0", record(Kind.EVENT, 0, b"{")),
    "a log line that is no line": ("logs", b"\x03\x00\x00\x00\xc1\xc1\xc1"),
    "a runner's word with a NUL": (
        "runner",
        pack_record(RunnerEvent(1.0, "notice", "a\0b", {"x": math.nan, "y": 2**62, "z": [[[[[[[[[[1]]]]]]]]]]})),
    ),
    "a runner's word before all time": ("runner", pack_record(RunnerEvent(-1e18, "notice", "when?", {}))),
    "a checkpoint without its fields": ("runner", pack_record(RunnerEvent(1.0, "checkpoint", "?", {}))),
    "a stream that does not exist": ("nonsense", b"abc"),
}


@pytest.mark.parametrize("what", POISON)
def test_poison_in_one_stream_does_not_keep_the_end_from_being_told(here: World, what: str) -> None:
    run = here.submit()
    here.settle()
    attempt = here.attempt(run.id)
    stream, poison = POISON[what]
    good = pack_record(LogLine(1.0, "out", 0, "a good line"))
    batch = [Data(stream, 0, poison)]
    if stream != "logs":
        batch.append(Data("logs", 0, good))
    ingest.store(here.context, attempt, batch)
    start = len(poison) if stream == "runner" else 0
    safe = ingest.store(here.context, attempt, [Data("runner", start, ended("finished", last_step=3))])
    assert safe["runner"] == start + len(ended("finished", last_step=3))
    here.settle()
    assert here.run_state(run.id) == "completed"
    with here.context.database.read() as connection:
        assert history.log_page(connection, run.id).lines
        history.metrics_view(connection, run.id)
        told = [views.event_view(row).at for row in events.of_run(connection, run.id)]
    assert told
    assert all("1970-01-01T00:00:00.000Z" <= at <= "5138-11-16T09:46:40.000Z" for at in told)


def test_an_end_that_makes_no_sense_is_still_an_end(here: World) -> None:
    run = here.submit()
    here.settle()
    attempt = here.attempt(run.id)
    mad = pack_record(
        RunnerEvent(1.0, "ended", "\0", {"reason": "mad", "last_step": "x", "exit_code": [], "signal": 99})
    )
    ingest.store(here.context, attempt, [Data("runner", 0, mad)])
    assert here.attempt(run.id).state == "lost"


def test_an_end_that_meets_a_full_disk_keeps_the_newest_progress_for_the_next_try(here: World) -> None:
    run = here.submit()
    here.settle()
    attempt = here.attempt(run.id)
    here.context.hub.progress[attempt.id] = Progress(1.0, "training", 90, 100, 3, 7, 25)
    said = [Data("runner", 0, ended("stopped", last_step=90))]
    engine = here.context.database._engine

    def full(connection: sa.Connection) -> None:
        raise sa.exc.OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))

    sa.event.listen(engine, "commit", full)
    with pytest.raises(DiskFull):
        ingest.store(here.context, attempt, said)
    sa.event.remove(engine, "commit", full)
    assert attempt.id in here.context.hub.progress, "who looks before the commit is shown no older one"
    ingest.store(here.context, attempt, said)
    assert attempt.id not in here.context.hub.progress
    kept = here.attempt(run.id).progress
    assert [kept[name] for name in ("step", "epoch", "batch", "batches")] == [90, 3, 7, 25]


def test_frames_that_overlap_repeat_or_leave_a_gap_are_stored_once(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        run = here.submit()
        here.settle()
        attempt = here.attempt(run.id)
        parts = [pack_record(LogLine(1.0, "out", 0, f"line {index}")) for index in range(20)]
        whole = b"".join(parts)

        @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(st.integers(0, len(whole)), st.integers(0, len(whole)))
        def send(start: int, end: int) -> None:
            if start < end:
                ingest.store(here.context, attempt, [Data("logs", start, whole[start:end])])

        send()
        ingest.store(here.context, attempt, [Data("logs", 0, whole)])
        with here.context.database.read() as connection:
            found = [line.text for line in history.log_page(connection, run.id).lines]
        assert found == [f"line {index}" for index in range(20)]


def test_a_tail_that_does_not_look_at_the_whole_log_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_SCANNED", 50)
    with world(tmp_path) as here:
        run = here.submit()
        here.settle()
        texts = ["OOM", *(["x"] * 49), "OOM"]
        whole = b"".join(pack_record(LogLine(1.0, "out", 0, text)) for text in texts)
        ingest.store(here.context, here.attempt(run.id), [Data("logs", 0, whole)])
        with here.context.database.read() as connection:
            for wanted, found, looked in ((1, 1, None), (2, 1, 50)):
                page = history.log_page(connection, run.id, grep="oom", tail=wanted)
                assert (len(page.lines), page.looked, page.more) == (found, looked, False)
            page = history.log_page(connection, run.id, tail=51)
            assert (len(page.lines), page.looked) == (len(texts), None)


def test_points_of_two_streams_share_one_cursor(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        run = here.submit()
        here.settle()
        attempt = here.attempt(run.id)
        data = journal(tmp_path, {"loss": 0.5, "lr": 0.1})
        ingest.store(here.context, attempt, [Data("metrics-0", 0, data)])
        with here.context.database.read() as connection:
            seen = history.metrics_view(connection, run.id)
        assert {series.name for series in seen.series} == {"loss", "lr"}
        ingest.store(here.context, attempt, [Data("metrics-sys", 0, data)])
        with here.context.database.read() as connection:
            later = history.metrics_view(connection, run.id, after=seen.cursor)
        assert sum(len(series.points) for series in later.series) == 2


def many_names(first: int, count: int) -> bytes:
    shapes = b""
    for shape, start in enumerate(range(first, first + count, 1000), 1):
        names = names_json(*(f"n{number}" for number in range(start, start + 1000)))
        body = struct.pack("<qd1000d", 1, 2.0, *range(1000))
        shapes += record(Kind.SHAPE, shape, names) + record(Kind.POINTS, shape, body)
    return shapes


def test_names_without_end_are_left_out_with_one_notice_and_hold_nothing_up(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        run = here.submit()
        here.settle()
        attempt = here.attempt(run.id)
        offset = 0
        for data in (many_names(0, 9_000), many_names(9_000, 3_000), many_names(11_000, 2_000), many_names(0, 1_000)):
            frame = Data("metrics-0", offset, data)
            offset += len(data)
            assert ingest.store(here.context, attempt, [frame]) == {"metrics-0": offset}
        with here.context.database.read() as connection:
            kept = series.names(connection, attempt.id)
            left_out, _ = streams.position(connection, attempt.id, streams.ALL_METRICS)
            said = [event.text for event in events.of_run(connection, run.id) if event.kind == "notice"]
            assert ingest.offsets(here.context, attempt.id) == {"metrics-0": offset}
        assert kept == {f"n{number}" for number in range(10_000)}
        assert left_out == 2_000 + 2_000
        assert len(said) == 1
        assert "10,000 names" in said[0]


def test_a_statement_that_is_too_large_is_the_frames_own_trouble_and_a_lock_is_not(here: World) -> None:
    with here.context.database.read() as connection:
        mark, count = ("?", 260_000) if connection.dialect.name == "sqlite" else ("%s", 66_000)
        with pytest.raises(sa.exc.OperationalError) as large:
            connection.exec_driver_sql(f"SELECT 1 IN ({','.join([mark] * count)})", (1,) * count)
    assert not ingest.passes(large.value)
    lock = sa.exc.OperationalError("", None, sqlite3.OperationalError("database is locked"))
    assert ingest.passes(lock)
    assert ingest.passes(DiskFull())


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=30,
    )
)
def test_cleaned_data_is_json_that_every_database_takes(value: Any) -> None:
    text = msgspec.json.encode(cleaning.data(value)).decode()
    assert "NaN" not in text or isinstance(value, str | list | dict)
    assert "\\u0000" not in text
