"""Programs that write nonsense wherever they may: the runner lives on, a kill works, and the end is told."""

import os
import signal

import pytest
from runner_kit import Kit, until

from whistlestop.engines.base import JobState
from whistlestop.wire.frames import Order

HEAD = """
import json, os, sys, time
from pathlib import Path
from whistlestop.testing.slots import lay
from whistlestop.channel.control import Control
from whistlestop.channel.journal import JournalWriter
from whistlestop.channel.layout import Kind, Word
channel = Path(os.environ["WHISTLE_CHANNEL"])
control = Control.open(channel / "control")
events = JournalWriter(channel, "events-0")
raw = lambda data: events.append(Kind.EVENT, 0, (data + bytes(7))[: len(data) + 7 & ~7])
tell = lambda said: raw(json.dumps(said).encode())
control[Word.ATTACHED] = 1
"""

NONSENSE = {
    "enums that do not exist": "control[Word.LOOP] = 99; control[Word.STAGE] = 99",
    "numbers that can't be": """
for word in (Word.STEP, Word.TOTAL, Word.EPOCH, Word.SAVED_STEP, Word.RESUMED_STEP): control[word] = -2**63
control.set_seconds(Word.PROGRESS_AT, float("nan"))
""",
    "half a character": 'tell({"kind": "stop_reasons", "reasons": [{"reason": "x", "text": "file \\udc80"}]})',
    "JSON without a bottom": 'raw(b"[" * 100_000)',
    "no JSON": 'raw(b"{no json")',
    "a path with a NUL": """
tell({"kind": "staged", "dir": os.environ["WHISTLE_STAGE"] + "/slot-0\\0"})
""",
    "metrics above 64 bits": """
slot = Path(os.environ["WHISTLE_STAGE"], "slot-0")
meta = {"metrics": {"loss": 10**30, "text": "\\udc80"}}
lay(slot, 5, files={"state": b"x"}, id=os.environ["WHISTLE_ATTEMPT"], meta=meta)
tell({"kind": "staged", "dir": str(slot)})
""",
}


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_nonsense_from_the_program_does_not_keep_the_end_from_being_told(kit: Kit, nonsense: str) -> None:
    job = kit.python(HEAD + NONSENSE[nonsense] + "\nprint('up')\nsys.exit(3)")
    ended = kit.ended()
    assert (ended["reason"], ended["exit_code"]) == ("code_raised", 3)
    kit.wait_done(job)
    assert "attached" in kit.peer.kinds()


def test_a_kill_works_through_all_of_it(kit: Kit) -> None:
    kit.python(HEAD + "\n".join(NONSENSE.values()) + "\nprint('up'); time.sleep(1000)")
    until(lambda: "up" in kit.peer.texts() and "checkpoint" in kit.peer.kinds(), "the program")
    kit.peer.send(Order(seq=1, stop=3, actor="ann"))
    ended = kit.ended()
    assert (ended["reason"], ended["last_step"], ended["loop"]) == ("killed", 0, "none")
    assert ended["saved_step"] == 5


def test_a_salvage_works_through_all_of_it(kit: Kit) -> None:
    job = kit.python(HEAD + "\n".join(NONSENSE.values()) + "\nprint('up'); time.sleep(1000)")
    until(lambda: "up" in kit.peer.texts(), "the program")
    os.kill(kit.runner_pid(job), signal.SIGKILL)
    until(lambda: kit.state(job) is JobState.DEAD, "the runner's death")
    kit.engine.salvage(job)
    assert kit.ended()["reason"] == "runner_lost"
    kit.wait_done(job)
    assert kit.alive(job) == []


def test_secrets_are_masked_in_the_reasons_that_the_program_gives(kit: Kit) -> None:
    said = 'tell({"kind": "stop_reasons", "reasons": [{"reason": "x", "text": "key " + os.environ["KEY"]}]})'
    kit.python(HEAD + said, secrets={"KEY": "correct horse"})
    [reason] = kit.ended()["stop_reasons"]
    assert reason == {"reason": "x", "decisive": False, "text": "key ***"}
