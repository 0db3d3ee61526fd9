"""What is on its way to the server, and what may go once it is there."""

from pathlib import Path

import pytest

from whistlestop.channel.journal import JournalWriter
from whistlestop.runner import streams
from whistlestop.runner.recordfile import RecordFile
from whistlestop.runner.streams import Stream, Streams


def of(directory: Path) -> Streams:
    return Streams(directory, logs=RecordFile.open(directory / "logs"), runner=RecordFile.open(directory / "runner"))


def metrics(made: Streams) -> Stream:
    return next(stream for stream in made.discover() if stream.name == "metrics-0")


def test_segments_that_the_server_has_are_deleted_and_the_rest_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SEGMENT_SIZE", 1)
    journal = JournalWriter(tmp_path, "metrics-0", segment_size=512)
    for step in range(100):
        journal.points(step, 0.0, {"loss": 1.0})
    made = of(tmp_path)
    stream = metrics(made)
    whole = b""
    while (piece := stream.take()) is not None:
        whole += piece[1]
    before = len(list(tmp_path.glob("metrics-0.*.journal")))
    half = len(whole) // 2 // 32 * 32
    offsets = [0]
    while offsets[-1] < half:
        offsets.append(offsets[-1] + int.from_bytes(whole[offsets[-1] : offsets[-1] + 4], "little"))
    made.acknowledge("metrics-0", offsets[-1])
    made.trim()
    left = len(list(tmp_path.glob("metrics-0.*.journal")))
    assert 1 < left < before
    again = of(tmp_path)
    again.resume({"metrics-0": offsets[-1]})
    assert metrics(again).take() == (offsets[-1], whole[offsets[-1] :])
    made.acknowledge("metrics-0", len(whole))
    made.trim()
    assert len(list(tmp_path.glob("metrics-0.*.journal"))) == 1
    journal.points(100, 0.0, {"loss": 1.0})
    journal.close()
    assert stream.take() is not None


def test_events_stay_for_whoever_salvages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SEGMENT_SIZE", 1)
    journal = JournalWriter(tmp_path, "events-0", segment_size=256)
    for number in range(50):
        journal.event({"kind": "message", "text": str(number)})
    journal.close()
    made = of(tmp_path)
    made.discover()
    before = sorted(tmp_path.iterdir())
    made.acknowledge("events-0", 10**6)
    made.trim()
    assert sorted(tmp_path.iterdir()) == before
