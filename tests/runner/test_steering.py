"""steering.json: there before the program starts, replaced by orders, and not lost to a full disk."""

import json
from pathlib import Path
from typing import Any

import pytest
from runner_kit import Kit, until

from whistlestop.channel.control import Control
from whistlestop.channel.layout import CONTROL_FILE, STEERING_FILE, Word
from whistlestop.runner import steering
from whistlestop.runner.steering import Steering
from whistlestop.wire.frames import Change, Order

TOTAL = Change(1, "total", 5000, 450, "ann")
RATE = Change(2, "param:lr", 0.01, None, "bob")
AS_TOLD = """
    import json, os, sys, time
    from pathlib import Path
    from whistlestop.channel.control import Control
    from whistlestop.channel.journal import JournalWriter
    from whistlestop.channel.layout import Word
    channel = Path(os.environ["WHISTLE_CHANNEL"])
    control = Control.open(channel / "control")
    control[Word.IMPORTED] = control[Word.ATTACHED] = 1
    seen = -1
    journal = JournalWriter(channel, "events-0")
    while not os.path.exists("leave"):
        if control[Word.STEERING] != seen:
            seen = control[Word.STEERING]
            found = channel / "steering.json"
            print(found.read_text() if found.exists() else "none", flush=True)
            SAY
        time.sleep(0.001)
"""


def told(kit: Kit) -> list[Any]:
    return [[change["seq"], change["step"]] for change in json.loads(kit.peer.texts()[-1])["changes"]]


def test_the_program_finds_the_changes_of_before_and_gets_those_of_an_order(kit: Kit) -> None:
    kit.python(AS_TOLD.replace("SAY", "pass"), steering=[TOTAL])
    until(kit.peer.texts, "the first list")
    first = {"seq": 1, "name": "total", "value": 5000, "step": 450, "actor": "ann"}
    assert json.loads(kit.peer.texts()[0]) == {"changes": [first]}
    kit.peer.send(Order(seq=2, steering=[TOTAL, RATE]))
    until(lambda: len(kit.peer.texts()) == 2, "the second list")
    assert told(kit) == [[1, 450], [2, None]]
    for again in (Order(seq=2, steering=[TOTAL, RATE]), Order(seq=3, steering=None), Order(seq=1, steering=[TOTAL])):
        kit.peer.send(again)
    kit.peer.send(Order(seq=4, steering=[TOTAL, RATE, Change(3, "total", 9000, None, "ann")]))
    until(lambda: len(kit.peer.texts()) > 2, "the third list")
    (kit.work / "leave").touch()
    assert kit.ended()["reason"] == "finished"
    assert len(kit.peer.texts()) == 3, "what changed nothing was handed on"


def test_without_a_change_there_is_no_file(kit: Kit) -> None:
    kit.python(AS_TOLD.replace("SAY", "pass"))
    until(kit.peer.texts, "the program")
    (kit.work / "leave").touch()
    assert kit.ended()["reason"] == "finished"
    assert kit.peer.texts() == ["none"]


def test_what_the_program_has_applied_is_replayed_by_the_next_process_of_the_same_attempt(kit: Kit) -> None:
    say = 'journal.event({"kind": "steered", "seq": 2, "step": 460})'
    job = kit.python(AS_TOLD.replace("SAY", say), steering=[TOTAL, RATE])
    place = kit.directory(job) / STEERING_FILE
    until(lambda: place.exists() and json.loads(place.read_bytes())["changes"][1]["step"] == 460, "the step")
    kit.peer.send(Order(seq=9, steering=[TOTAL, RATE, Change(3, "total", 9000)]))  # the server has not heard of it
    until(lambda: len(json.loads(place.read_bytes())["changes"]) == 3, "the order")
    assert [change["step"] for change in json.loads(place.read_bytes())["changes"]] == [450, 460, None]
    until(lambda: len(kit.peer.texts()) == 2, "the program to see the order")
    (kit.work / "leave").touch()
    kit.ended()
    assert len(kit.peer.texts()) == 2, "the program was made to read what it knows"


def test_what_the_program_refused_is_not_replayed_by_the_next_process_of_the_same_attempt(kit: Kit) -> None:
    say = """
            journal.event({"kind": "steered", "seq": 2, "step": 460})
            journal.event({"kind": "steering_refused", "seq": 2, "text": "too high"})
    """.strip()
    job = kit.python(AS_TOLD.replace("SAY", say), steering=[TOTAL, RATE])
    place = kit.directory(job) / STEERING_FILE

    def listed() -> list[int]:
        return [change["seq"] for change in json.loads(place.read_bytes())["changes"]]

    until(lambda: place.exists() and listed() == [1], "the refused one to go")
    kit.peer.send(Order(seq=9, steering=[TOTAL, RATE]))  # the server has not heard of it
    kit.peer.send(Order(seq=10, steering=[TOTAL, RATE, Change(3, "total", 9000)]))
    until(lambda: listed() != [1], "the order")
    assert listed() == [1, 3]
    (kit.work / "leave").touch()
    kit.ended()


def test_a_full_disk_delays_a_change_and_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = Control.create(tmp_path / CONTROL_FILE)
    one, notices = Steering(tmp_path, control, []), list[str]()

    def tell(kind: str, text: str, **data: Any) -> None:
        notices.append(f"{kind}: {text}")

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    one.begin()
    assert control[Word.STEERING] == 0
    with monkeypatch.context() as patch:
        patch.setattr(steering, "write", full)
        one.take([TOTAL], tell)
        one.retry(tell)
        one.retry(tell)
    assert len(notices) == 1
    assert "No space left" in notices[0]
    assert control[Word.STEERING] == 0
    one.retry(tell)
    one.retry(tell)
    assert control[Word.STEERING] == 1
    assert json.loads((tmp_path / STEERING_FILE).read_bytes())["changes"][0]["value"] == 5000
    assert len(notices) == 1
    control.close()


def test_a_program_does_not_start_without_the_changes_that_it_has_to_replay(kit: Kit) -> None:
    patch = """
        from whistlestop.runner import steering
        def full(path, data): raise OSError(28, "No space left on device")
        steering.write = full
    """
    runner = kit.patched(patch, "/bin/sh", "-c", "echo started", steering=[TOTAL])
    ended = kit.ended()
    runner.wait(20)
    assert ended["reason"] == "prepare_failed"
    assert "No space left" in ended["evidence"]
    assert kit.peer.texts() == []


def test_a_runner_reads_a_launch_of_an_earlier_version(kit: Kit) -> None:
    from whistlestop.runner.launching import read_launch

    directory = kit.root / "old"
    directory.mkdir()
    (directory / "launch.json").write_text(json.dumps({"attempt_id": "a", "inputs": []}))
    assert read_launch(directory).steering == []
