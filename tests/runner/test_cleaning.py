"""Whatever a program says, it fits into a frame afterwards."""

import math
from pathlib import Path
from typing import Any

import pytest

from whistlestop.runner.cleaning import SIZE_LIMIT, TEXT_LIMIT, clean_fields, clean_text
from whistlestop.runner.events import Events
from whistlestop.runner.recordfile import RecordFile
from whistlestop.wire.frames import RunnerEvent, decode_event, pack_record

DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]

VALUES: dict[str, tuple[Any, Any]] = {
    "plain things stay": ({"a": [1, 2.5, True, None, "é😀"]}, {"a": [1, 2.5, True, None, "é😀"]}),
    "half a character": ("file \udc80", "file \ufffd"),
    "two halves make one": ("\ud83d\ude00", "😀"),
    "a NUL": ("a\0b", "a\ufffdb"),
    "an int above 64 bits": (10**30, 1e30),
    "an int above every float": (10**400, None),
    "the smallest int": (-(2**63), -(2**63)),
    "not a number": ([math.nan, math.inf, -math.inf], [None, None, None]),
    "a key that is no text": ({1: {"\udc80": 2}}, {"1": {"\ufffd": 2}}),
    "something else": (Path("/x"), "/x"),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_a_frame_has_no_room_for_is_replaced(name: str) -> None:
    given, expected = VALUES[name]
    assert clean_fields({"it": given}) == {"it": expected}


@pytest.mark.parametrize("given", [DEEP, ["x" * 5000] * 5000, list(range(10**6)), {str(n): n for n in range(10**5)}])
def test_depth_and_size_are_bounded_and_no_other_field_pays(given: Any) -> None:
    cleaned = clean_fields({"it": given, "gone_at": 5.0})
    assert cleaned["gone_at"] == 5.0
    assert len(pack_record(RunnerEvent(0.0, "ended", "", cleaned))) < 4 * SIZE_LIMIT


def test_a_long_text_is_cut_visibly() -> None:
    assert len(clean_text("x" * 10**6)) == TEXT_LIMIT
    assert clean_text("x" * 10**6).endswith("…")


def test_an_event_that_can_not_be_encoded_still_arrives_with_its_plain_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> dict[str, Any]:
        raise RuntimeError("a hole in the cleaning")

    monkeypatch.setattr("whistlestop.runner.cleaning.clean_fields", broken)
    events = Events(RecordFile.open(tmp_path / "runner"))
    events.begin_writing()
    events.tell("ended", "over \udc80", reason="finished", last_step=5, total=10**30, gone_at=1.5, stop_reasons=DEEP)
    last = events.file.last()
    assert last is not None
    told = decode_event(last)
    assert told.kind == "ended"
    assert told.data == {"reason": "finished", "last_step": 5, "gone_at": 1.5}
