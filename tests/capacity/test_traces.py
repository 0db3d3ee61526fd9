"""Recordings of spot capacity in every form, and what is none."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from whistlestop.capacity.traces import Trace, as_csv, read_traces, synthetic
from whistlestop.domain.errors import BadRequest

SHIPPED = Path(__file__).parents[2] / "examples" / "traces"
PREEMPTED = json.dumps({"metadata": {"gap_seconds": 600}, "data": [0, 0, 1]})  # 1 = preempted


def test_lives_in_seconds(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("available,seconds,price\n1,120,0.4\n0,60,\n")
    [trace] = read_traces(tmp_path)
    assert (trace.name, trace.gap, trace.up, trace.price) == ("a", 60, [True, True, False], 0.4)


def test_a_line_for_each_look(tmp_path: Path) -> None:
    lines = [f"2023-02-15 00:{minute:02d}:00,{up}" for minute, up in ((0, 1), (3, 0), (6, 1), (12, 1))]
    (tmp_path / "a.csv").write_text("\n".join(["date,availability", *lines]))
    [trace] = read_traces(tmp_path / "a.csv")
    assert (trace.gap, trace.up) == (180, [True, False, True, True])


def test_json_says_when_it_was_gone(tmp_path: Path) -> None:
    (tmp_path / "zone").mkdir()
    (tmp_path / "zone" / "full.json").write_text(PREEMPTED)
    (tmp_path / "other.json").write_text("{}")  # in a directory there may be anything
    [trace] = read_traces(tmp_path)
    assert (trace.name, trace.gap, trace.up) == ("zone", 600, [True, True, False])
    (tmp_path / "mine.json").write_text(PREEMPTED)
    assert read_traces(tmp_path / "mine.json")[0].name == "mine"


def test_an_archive_of_json(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("x/zone-b/full.json")
        member.size = len(PREEMPTED)
        archive.addfile(member, io.BytesIO(PREEMPTED.encode()))
    [trace] = read_traces(tmp_path / "all.tar.gz")
    assert (trace.name, trace.family, trace.share) == ("zone-b", "all", pytest.approx(2 / 3))


def test_a_gang_is_there_when_all_of_it_is(tmp_path: Path) -> None:
    (tmp_path / "gangs.csv").write_text(
        "scheduled_at,a,b\n2025-01-01 00:00:00,16,0\n2025-01-01 00:10:00,15,16\n2025-01-01 00:20:00,16,\n"
    )
    assert [(trace.name, trace.up) for trace in read_traces(tmp_path)] == [
        ("a", [True, False, True]),
        ("b", [False, True, False]),
    ]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "x,y\n1,2\n", "its first line is none of"),
        ("a.csv", "", "its first line is none of"),
        ("a.csv", "available,seconds\n1,many\n", "many"),
        ("a.csv", "available,seconds\n1,1e12\n", "longer than ten years"),
        ("a.csv", "available,seconds\n1,nan\n", "longer than ten years"),
        ("a.csv", "available,seconds,price\n1,60,nan\n", "a price is less than nothing, or no number"),
        ("a.csv", "available,seconds,price\n1,60,-5\n", "a price is less than nothing, or no number"),
        ("a.csv", "available,seconds\n1," + "6" * 140_000, "field larger than"),
        ("a.csv", "available,seconds\n1,60\n1,-5\n", "line 3: it can't have lasted -5 seconds"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.csv", "date,availability\n2023-02-15,1\n", "less than two looks"),
        ("a.csv", "date,availability\n2023-02-15,1\n2023-02-15,1\n", "do not grow"),
        ("a.csv", "date,availability\nyesterday,1\ntoday,0\n", "yesterday"),
        ("a.json", "{}", "it has no 'metadata'"),
        ("a.json", '{"metadata": {"gap_seconds": 0}, "data": []}', "0 seconds between two looks"),
        ("a.json", "[", "Expecting value"),
        ("a.tar.gz", "no archive", "a.tar.gz"),
        ("a.txt", "available,seconds\n", "neither .csv nor .json"),
    ],
)
def test_what_is_no_recording_is_named(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadRequest, match=says) as refused:
        read_traces(tmp_path / name)
    assert name in refused.value.text


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no file or directory"):
        read_traces(tmp_path / "none")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made = synthetic("mine", 3, 2.0)
    (tmp_path / "mine.csv").write_text(as_csv(made))
    [trace] = read_traces(tmp_path / "mine.csv")
    assert (trace.name, trace.gap, list(trace.up)) == (made.name, made.gap, list(made.up))


@pytest.mark.parametrize(("name", "up", "down"), [("steady", 5.0, 1.0), ("flickering", 0.5, 1 / 3), ("rare", 2.0, 5.0)])
def test_the_ones_that_are_shipped_are_made_here(name: str, up: float, down: float) -> None:
    made = synthetic(name, 2, 21, up=up * 3600, down=down * 3600)
    assert (SHIPPED / f"{name}.csv").read_text() == as_csv(made)


def test_behind_its_end_nothing_is_there() -> None:
    trace = Trace("a", 60.0, [True, True])
    assert [trace.at(seconds) for seconds in (0, 119, 120, 1e9)] == [True, True, False, False]
