"""After a runner's death, where its last save can't be brought to safety at once."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from runner_kit import Kit, until

from whistlestop.engines.base import JobId, JobState
from whistlestop.wire.frames import Order

STAGES = """
    import os, time
    from pathlib import Path
    from whistlestop.testing.slots import lay
    print("up", flush=True)
    while not os.path.exists("go"): time.sleep(0.01)
    lay(Path(os.environ["WHISTLE_STAGE"], "slot-0"), 7, id=os.environ["WHISTLE_ATTEMPT"], files={"state": b"seven"})
    time.sleep(1000)
"""


@pytest.fixture
def dead(kit: Kit) -> JobId:
    """It died with a save that its storage did not take."""
    job = kit.python(STAGES)
    until(lambda: "up" in kit.peer.texts(), "the program")
    shutil.move(kit.root / "checkpoints", kit.root / "away")
    (kit.root / "checkpoints").write_bytes(b"")
    (kit.work / "go").touch()
    until(lambda: "save_failed" in kit.peer.kinds(), "the save to fail")
    os.kill(kit.runner_pid(job), signal.SIGKILL)
    until(lambda: kit.state(job) is JobState.DEAD, "the runner's death")
    kit.engine.salvage(job)
    return job


def test_a_salvager_brings_the_last_save_to_safety_when_the_storage_is_back(kit: Kit, dead: JobId) -> None:
    until(lambda: kit.peer.kinds().count("save_failed") == 2, "the salvager's try")
    assert kit.peer.ended() is None
    Path(kit.root / "checkpoints").unlink()
    shutil.move(kit.root / "away", kit.root / "checkpoints")
    assert kit.ended()["saved_step"] == 7
    kit.wait_done(dead)
    assert kit.peer.kinds()[-2:] == ["checkpoint", "ended"]


def test_a_kill_ends_a_salvage_that_waits_for_its_storage(kit: Kit, dead: JobId) -> None:
    until(lambda: kit.peer.kinds().count("save_failed") == 2, "the salvager's try")
    kit.peer.send(Order(seq=1, stop=3, actor="ann"))
    ended = kit.ended()
    assert (ended["reason"], ended["saved_step"]) == ("runner_lost", None)
    kit.wait_done(dead)
    assert kit.peer.kinds()[-1] == "ended"
