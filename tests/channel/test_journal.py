import errno
import math
import os
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whistlestop.channel import mapping
from whistlestop.channel.journal import (
    JournalDamaged,
    JournalReader,
    JournalWriter,
    parse,
    segment_numbers,
    segment_path,
)
from whistlestop.channel.layout import SEGMENT_HEADER, Kind
from whistlestop.testing.missing import missing

TEXT = st.characters(codec="utf-8", exclude_characters="\0")  # others are replaced
EVENTS = st.dictionaries(
    st.text(TEXT, max_size=8), st.text(TEXT, max_size=40) | st.integers(-(2**63), 2**63 - 1), max_size=4
)
POINTS = st.dictionaries(st.text(TEXT, min_size=1, max_size=6), st.floats(allow_nan=False), min_size=1, max_size=4)


def read_all(directory: Path, prefix: str = "metrics-0") -> list[object]:
    """Events as dicts, points as (step, time, values by name)."""
    reader = JournalReader(directory, prefix)
    shapes: dict[int, tuple[str, ...]] = {}
    found: list[object] = []
    for record in reader.records():
        if record.kind == Kind.SHAPE:
            shapes[record.shape] = record.names()
        elif record.kind == Kind.POINTS:
            step, at, values = record.point()
            found.append((step, at, dict(zip(shapes[record.shape], values, strict=True))))
        else:
            found.append(record.event())
    reader.close()
    return found


def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal")


@settings(deadline=None, max_examples=60)
@given(
    things=st.lists(EVENTS | POINTS.map(lambda values: ("points", values)), max_size=40),
    segment_size=st.sampled_from([64, 128, 256, 1000, 4096]),
    restarts=st.sets(st.integers(0, 40), max_size=4),
    limit=st.integers(1, 5000),
)
def test_what_was_written_is_read_in_order_over_segments_restarts_and_small_reads(
    tmp_path_factory: pytest.TempPathFactory,
    things: list[object],
    segment_size: int,
    restarts: set[int],
    limit: int,
) -> None:
    directory = fresh(tmp_path_factory)
    reader = JournalReader(directory, "metrics-0")  # reads along
    writer = JournalWriter(directory, "metrics-0", segment_size=segment_size)
    expected: list[object] = []
    shipped, offset = b"", 0
    for number, thing in enumerate(things):
        if number in restarts:
            writer.close()
            writer = JournalWriter(directory, "metrics-0", segment_size=segment_size)
        if isinstance(thing, tuple):
            writer.points(number, 1.5, thing[1])
            expected.append((number, 1.5, thing[1]))
        else:
            writer.event(thing)
            expected.append(thing)
        data = reader.read(offset, limit)
        shipped, offset = shipped + data, offset + len(data)
    while data := reader.read(offset, limit):
        list(parse(data))  # whole records
        shipped, offset = shipped + data, offset + len(data)
    assert read_all(directory) == expected
    assert reader.end() == offset == len(shipped)
    assert shipped == JournalReader(directory, "metrics-0").read(0, 1 << 30)
    assert writer.dropped == 0
    writer.close()
    reader.close()


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_a_write_cut_anywhere_shows_whole_records_and_the_next_process_goes_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The bytes of the last record are cut at a random place, first word last, as the writer stores them."""
    directory = fresh(tmp_path_factory)
    writer = JournalWriter(directory, "metrics-0", segment_size=512)
    before = data.draw(st.integers(0, 8))
    for number in range(before):
        writer.event({"n": number})
    writer.close()
    garbage = data.draw(st.binary(min_size=1, max_size=64))
    numbers = segment_numbers(directory, "metrics-0")
    if numbers:
        path = segment_path(directory, "metrics-0", numbers[-1])
        content = bytearray(path.read_bytes())
        reader = JournalReader(directory, "metrics-0")
        end = reader.end()
        position = SEGMENT_HEADER + end - struct.unpack_from("<Q", content, 8)[0]
        reader.close()
        space = content[position + 8 : position + 8 + len(garbage)]
        content[position + 8 : position + 8 + len(space)] = garbage[: len(space)]
        path.write_bytes(content)
    assert read_all(directory) == [{"n": number} for number in range(before)]
    writer = JournalWriter(directory, "metrics-0", segment_size=512)
    for number in range(before, before + 5):
        writer.event({"n": number})
    writer.close()
    assert read_all(directory) == [{"n": number} for number in range(before + 5)]


def test_a_journal_that_has_not_begun_is_empty(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path / "nowhere", "metrics-0")
    assert reader.read(0) == b""
    assert reader.end() == 0


def test_the_reader_goes_back_to_an_earlier_offset(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "events-0", segment_size=256)
    for number in range(50):
        writer.event({"n": number})
    reader = JournalReader(tmp_path, "events-0")
    whole = reader.read(0, 1 << 20)
    first = reader.read(0, 1)
    assert [record.event() for record in parse(first)] == [{"n": 0}]
    assert first + reader.read(len(first), 1 << 20) == whole


def test_an_offset_inside_a_record_or_past_the_end_is_an_error(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "events-0")
    writer.event({"n": 1})
    reader = JournalReader(tmp_path, "events-0")
    with pytest.raises(JournalDamaged, match="inside a record"):
        reader.read(8)
    with pytest.raises(JournalDamaged, match="past the end"):
        reader.read(1 << 20)


@pytest.mark.parametrize("size", [7, 12, 1 << 30, 4])
def test_a_corrupt_size_is_an_error_and_never_a_loop(tmp_path: Path, size: int) -> None:
    writer = JournalWriter(tmp_path, "events-0")
    writer.event({"n": 1})
    writer.close()
    path = segment_path(tmp_path, "events-0", 0)
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, SEGMENT_HEADER, size)
    path.write_bytes(content)
    with pytest.raises(JournalDamaged):
        JournalReader(tmp_path, "events-0").read(0)
    continued = JournalWriter(tmp_path, "events-0")
    continued.event({"n": 2})
    assert continued.dropped == 1  # nothing is written over what people may want to look at


def test_a_missing_or_foreign_segment_is_an_error(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "events-0", segment_size=128)
    for number in range(20):
        writer.event({"n": number})
    writer.close()
    second = segment_path(tmp_path, "events-0", 1)
    content = second.read_bytes()
    second.write_bytes(b"not a segment at")
    with pytest.raises(JournalDamaged, match="not a journal segment"):
        JournalReader(tmp_path, "events-0").read(0)
    second.write_bytes(content[:8] + struct.pack("<Q", 9999) + content[16:])
    with pytest.raises(JournalDamaged, match="begins at offset"):
        JournalReader(tmp_path, "events-0").read(0)
    second.unlink()
    with pytest.raises(JournalDamaged, match="missing"):
        JournalReader(tmp_path, "events-0").read(0)


@given(data=st.binary(max_size=200))
def test_parsing_any_bytes_ends_in_records_or_in_our_error(data: bytes) -> None:
    try:
        for record in parse(data):
            for decode in (record.names, record.point, record.event):
                try:
                    decode()
                except JournalDamaged:
                    pass
    except JournalDamaged:
        pass


def test_not_a_number_and_infinity_go_through(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "metrics-0")
    writer.points(1, 2.0, {"a": math.nan, "b": math.inf, "c": -math.inf})
    ((_, _, values),) = read_all(tmp_path)  # type: ignore[misc]
    assert math.isnan(values["a"])
    assert (values["b"], values["c"]) == (math.inf, -math.inf)


def test_a_bad_value_stores_nothing_and_the_next_point_is_whole(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "metrics-0")
    refused: list[object] = []
    record = writer.recorder([3], refused.append)
    for names in ({"a": 0.0}, {"b": 0.0}, {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}):
        writer.points(0, 2.0, names)
        writer.allow(tuple(names))
    record(a=1.0, b=2.0, c=3.0, d="four")
    record(a=1.0)
    record(b=2.0)
    with pytest.raises(struct.error):
        writer.points(1, 2.0, {"a": "one"})  # type: ignore[dict-item]
    writer.points(4, 2.0, {"a": 1.0})
    assert refused == [{"a": 1.0, "b": 2.0, "c": 3.0, "d": "four"}]
    assert [(step, values) for step, _, values in read_all(tmp_path)][3:] == [  # type: ignore[misc]
        (3, {"a": 1.0}),
        (3, {"b": 2.0}),
        (4, {"a": 1.0}),
    ]


def test_the_newest_values_are_known_over_shapes_segments_and_bad_values(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "metrics-0", segment_size=256)
    for number in range(30):
        writer.points(number, 0.0, {"loss": float(number), "lr": 0.1})
        if number == 20:
            writer.points(number, 0.0, {"accuracy": 0.5})
    assert writer.latest() == {"loss": 29.0, "lr": 0.1, "accuracy": 0.5}


def test_a_value_that_logs_while_it_is_being_logged_loses_neither(tmp_path: Path) -> None:
    """As a signal handler does that comes in the middle of a write."""
    writer = JournalWriter(tmp_path, "metrics-0")
    record = writer.recorder([1], lambda values: writer.points(1, 0.0, dict(values)))

    class Loud:
        def __float__(self) -> float:
            writer.event({"from": "inside"})
            return 5.0

    writer.points(1, 0.0, {"a": 4.0})
    writer.allow(("a",))
    record(a=Loud())
    record(a=6.0)
    found = read_all(tmp_path)[1:]
    assert [each if isinstance(each, dict) else each[2] for each in found] == [  # type: ignore[index]
        {"a": 5.0},
        {"from": "inside"},
        {"a": 6.0},
    ]


def test_threads_lose_nothing_and_mix_nothing(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "metrics-0", segment_size=4096)
    record = writer.recorder([0], lambda values: writer.points(0, 0.0, dict(values)))

    def work(name: str) -> None:
        writer.points(0, 0.0, {name: 500})
        writer.allow((name,))
        for number in range(500):
            if number % 2:
                record(**{name: number})
            else:
                writer.points(0, 0.0, {name: number})

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.event({"last": 1})  # whoever comes next writes what was left behind
    values = [each[2] for each in read_all(tmp_path) if isinstance(each, tuple)]
    for number in range(4):
        mine = [each[f"t{number}"] for each in values if f"t{number}" in each]
        assert sorted(mine) == list(range(501))


def test_a_full_disk_drops_and_counts_and_what_was_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = JournalWriter(tmp_path, "metrics-0", segment_size=256)
    writer.points(1, 0.0, {"a": 1.0})

    def full(path: Path, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(mapping, "create", full)
    for number in range(2, 50):
        writer.points(number, 0.0, {"a": 1.0})
    stored = len(read_all(tmp_path))
    assert writer.dropped == 49 - stored > 0
    monkeypatch.undo()
    writer._retry_at = 0.0
    writer.points(50, 0.0, {"a": 1.0})
    assert len(read_all(tmp_path)) == stored + 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_on_a_disk_that_really_is_full_the_writer_is_not_killed(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        missing(f"tmpfs can't be mounted here: {mounted.stderr.decode()}")
    try:
        script = (
            "import sys; from pathlib import Path\n"
            "from whistlestop.channel.journal import JournalWriter\n"
            "writer = JournalWriter(Path(sys.argv[1]), 'metrics-0')\n"
            "for step in range(100_000): writer.points(step, 0.0, {'a': 1.0, 'b': 2.0, 'c': 3.0})\n"
            "print(writer.dropped)\n"
        )
        child = subprocess.run([sys.executable, "-c", script, str(small)], capture_output=True, text=True, check=False)
        assert child.returncode == 0, child.stderr
        stored = len(read_all(small))
        assert stored > 10_000
        assert int(child.stdout) == 100_000 - stored
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_two_processes_never_write_one_journal(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "metrics-0")
    writer.event({"n": 1})
    script = (
        "import sys; from pathlib import Path\n"
        "from whistlestop.channel.journal import JournalWriter\n"
        "writer = JournalWriter(Path(sys.argv[1]), 'metrics-0')\n"
        "writer.event({'n': 2})\n"
        "print(writer.taken, writer.dropped)\n"
    )
    child = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["True", "1"]
    assert read_all(tmp_path) == [{"n": 1}]


def test_a_forked_child_writes_nothing_after_it_lets_go(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "metrics-0")
    writer.event({"n": 1})
    child = os.fork()
    if child == 0:
        writer.abandon()
        writer.event({"n": 2})
        os._exit(0)
    os.waitpid(child, 0)
    writer.event({"n": 3})
    assert read_all(tmp_path) == [{"n": 1}, {"n": 3}]


def test_sigkill_right_after_the_call_loses_nothing(tmp_path: Path) -> None:
    script = (
        "import os, sys, signal; from pathlib import Path\n"
        "from whistlestop.channel.journal import JournalWriter\n"
        "writer = JournalWriter(Path(sys.argv[1]), 'metrics-0')\n"
        "for step in range(5000): writer.points(step, 0.0, {'a': 1.0})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert child.returncode == -signal.SIGKILL
    assert len(read_all(tmp_path)) == 5000


def shipped_and_deleted(directory: Path, *, leave: int) -> int:
    """Write into many segments, delete all but the last few. Gives the first remaining number."""
    writer = JournalWriter(directory, "metrics-0", segment_size=256)
    for number in range(60):
        writer.points(number, 0.0, {"a": float(number)})
    writer.close()
    numbers = segment_numbers(directory, "metrics-0")
    for number in numbers[:-leave]:
        segment_path(directory, "metrics-0", number).unlink()
    return numbers[-leave]


def test_early_segments_that_are_gone_are_no_loss_to_who_has_read_them(tmp_path: Path) -> None:
    first = shipped_and_deleted(tmp_path, leave=3)
    start = struct.unpack_from("<Q", segment_path(tmp_path, "metrics-0", first).read_bytes(), 8)[0]
    reader = JournalReader(tmp_path, "metrics-0")
    assert reader.start() == start > 0
    rest = reader.read(start)
    assert [record.point()[0] for record in parse(rest)][-1] == 59
    assert reader.end() == JournalReader(tmp_path, "metrics-0").end() == start + len(rest)
    assert len(list(reader.records())) == len(list(parse(rest)))
    for offset in (0, start - 8):
        with pytest.raises(JournalDamaged, match=f"no longer stored; the journal begins at {start}"):
            JournalReader(tmp_path, "metrics-0").read(offset)
    reader.close()


@pytest.mark.parametrize("content", [b"", b"short", b"not a segment at all, but long enough"])
def test_a_damaged_first_segment_is_not_skipped(tmp_path: Path, content: bytes) -> None:
    first = shipped_and_deleted(tmp_path, leave=3)
    segment_path(tmp_path, "metrics-0", first).write_bytes(content)
    for ask in (JournalReader.start, JournalReader.end, lambda reader: list(reader.records())):
        with pytest.raises(JournalDamaged, match="not a journal segment"):
            ask(JournalReader(tmp_path, "metrics-0"))
    writer = JournalWriter(tmp_path, "metrics-0")
    writer.event({"n": 1})
    assert (writer.damaged, writer.dropped) == (True, 1)


def test_a_writer_goes_on_behind_segments_that_are_gone(tmp_path: Path) -> None:
    shipped_and_deleted(tmp_path, leave=1)
    before = segment_numbers(tmp_path, "metrics-0")
    end = JournalReader(tmp_path, "metrics-0").end()
    writer = JournalWriter(tmp_path, "metrics-0", segment_size=256)
    for number in range(60, 80):
        writer.points(number, 0.0, {"b": 1.0})
    assert (writer.dropped, writer.damaged) == (0, False)
    records = list(JournalReader(tmp_path, "metrics-0").records(end))
    assert (records[0].kind, records[0].shape) == (Kind.SHAPE, 2)  # 1 is used by points whose definition is gone
    assert [record.point()[0] for record in records[1:]] == list(range(60, 80))
    assert segment_numbers(tmp_path, "metrics-0")[0] == before[0]
    writer.close()


def test_two_writers_in_one_process_never_write_one_journal(tmp_path: Path) -> None:
    first, second = (JournalWriter(tmp_path, "events-0") for _ in range(2))
    assert (first.acquire(), second.acquire(), second.taken) == (True, False, True)
    first.event({"n": 1})
    second.event({"n": 2})
    second.close()
    script = (
        "import sys; from pathlib import Path\n"
        "from whistlestop.channel.journal import JournalWriter\n"
        "print(JournalWriter(Path(sys.argv[1]), 'events-0').acquire())\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"
    first.event({"n": 3})
    first.close()
    assert read_all(tmp_path, "events-0") == [{"n": 1}, {"n": 3}]
    assert JournalWriter(tmp_path, "events-0").acquire()


def test_a_forked_child_does_not_hold_what_its_parent_holds(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "events-0")
    assert writer.acquire()
    child = os.fork()
    if child == 0:
        os._exit(int(JournalWriter(tmp_path, "events-0").acquire()))
    assert os.waitpid(child, 0)[1] == 0
    writer.close()


def test_names_and_texts_that_no_database_takes_are_made_plain(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "metrics-0")
    writer.points(1, 0.0, {"odd\udcff\0": 1.0, "x" * 900: 2.0})
    writer.event({"text": "odd\udcff", "values": {"nan": math.nan, "huge": 10**400, "fine": -(2**63)}})
    point, event = read_all(tmp_path)
    assert point[2] == {"odd?\ufffd": 1.0, "x" * 500: 2.0}  # type: ignore[index]
    assert event == {"text": "odd?", "values": {"nan": None, "huge": None, "fine": -(2**63)}}
