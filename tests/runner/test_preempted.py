"""Notices in a real runner with a real program: saved, left, told why, and told apart from every other end."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_kit import Kit, until

from whistlestop.engines.base import JobState
from whistlestop.testing.metadata import MetadataServer
from whistlestop.wire.frames import Order, RunnerEvent

LOOP = """
    import time, whistlestop
    with whistlestop.run("one") as run:
        state = {"steps": 0}
        run.track(state=state)
        for step in run.steps():
            state["steps"] += 1
            time.sleep(0.002)
"""

EAGER = """
    from whistlestop.runner import sources
    sources.Aws.every = sources.Azure.every = sources.File.every = 0.05
"""


@pytest.fixture(scope="module")
def metadata() -> Iterator[MetadataServer]:
    with MetadataServer() as server:
        yield server


Patched = Callable[..., None]


@pytest.fixture
def patched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Patched]:
    """A runner with some code run in it first, as a child that is waited for. Ask for it before the kit."""
    started: list[subprocess.Popen[bytes]] = []
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for the lock of Azure's machines

    def start(kit: Kit, patch: str = EAGER, **fields: Any) -> None:
        started.append(kit.patched(patch, sys.executable, "-c", textwrap.dedent(LOOP), **fields))

    yield start
    for process in started:
        process.wait(20)


def training(kit: Kit) -> None:
    until(lambda: kit.peer.progress and kit.peer.progress[-1].step > 3, "steps")


def told(kit: Kit, kind: str) -> list[RunnerEvent]:
    return [event for event in kit.peer.events() if event.kind == kind]


def final(kit: Kit) -> RunnerEvent:
    return until(lambda: [event for event in told(kit, "notice") if event.data.get("final")], "the notice")[0]  # type: ignore[no-any-return]


def test_each_cloud_is_heard_and_not_a_step_is_lost(patched: Patched, kit: Kit, metadata: MetadataServer) -> None:
    """All three in one runner: AWS speaks of an end that is an hour away, GCP of a migration, Azure of this minute."""
    where = dict.fromkeys(("aws", "gcp", "azure"), metadata.url)
    patched(kit, notices=where)
    training(kit)
    metadata.aws_schedules(at=time.time() + 3600)
    metadata.gcp_says(maintenance_event="MIGRATE_ON_HOST_MAINTENANCE")
    until(lambda: {event.data["source"] for event in told(kit, "notice")} == {"aws", "gcp"}, "what is only advice")
    until(lambda: len(told(kit, "checkpoint")) >= 1, "a save")
    assert kit.peer.ended() is None
    at = int(time.time()) + 60
    event = metadata.azure_schedules("Preempt", at=at)
    ended = kit.ended()
    assert (ended["reason"], ended["loop"], ended["notice"]) == ("preempted", "paused", "azure")
    assert ended["saved_step"] == ended["last_step"] > 3
    assert ended["gone_at"] < at - 30  # it has not waited for the deadline
    assert ended["evidence"].startswith("Azure takes the machine back at ")
    said = final(kit)
    assert (said.data["source"], said.data["deadline"], said.data["kind"]) == ("azure", at, "final")
    assert "the program was asked to save and leave" in said.text
    until(lambda: metadata.acknowledged == [event], "the machine is let go")


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_cloud_takes_its_machine_back(patched: Patched, kit: Kit, cloud: str) -> None:
    with MetadataServer() as metadata:
        patched(kit, notices={cloud: metadata.url})
        training(kit)
        if cloud == "aws":
            metadata.aws_interrupts(at=time.time() + 100)
        else:
            metadata.gcp_says(preempted="TRUE")
        ended = kit.ended()
    assert (ended["reason"], ended["notice"]) == ("preempted", cloud)
    assert ended["saved_step"] == ended["last_step"]
    assert "takes the instance back at" in ended["evidence"]


def test_advice_is_a_save_now_and_does_not_count_as_one_that_was_asked_for(patched: Patched, kit: Kit) -> None:
    path = kit.root / "notice"
    patched(kit, notices={"file": str(path)})
    training(kit)
    path.write_text(json.dumps({"kind": "advisory", "text": "The power may fail", "in_seconds": 60}))
    first = until(lambda: told(kit, "checkpoint"), "the save")[0]
    assert first.data["saves"] == 0
    assert told(kit, "notice")[0].text == "The power may fail. A save is made now; training goes on."
    kit.peer.send(Order(seq=1, checkpoint_now=1, actor="ann"))
    until(
        lambda: [event for event in told(kit, "checkpoint") if event.data["saves"] == 1], "the one that was asked for"
    )
    path.write_text(json.dumps({"in_seconds": 20}))
    assert kit.ended()["notice"] == "file"


def test_an_order_of_ours_is_a_notice_with_its_why(kit: Kit) -> None:
    kit.python(LOOP)
    training(kit)
    kit.peer.send(Order(seq=1, preempt_deadline=time.time() + 20, preempt_why="ann rehearses a loss"))
    ended = kit.ended()
    assert (ended["reason"], ended["notice"]) == ("preempted", "whistlestop")
    assert ended["saved_step"] == ended["last_step"]
    assert ended["evidence"].startswith("ann rehearses a loss; ")
    assert len(told(kit, "notice")) == 1


DEAF = """
    import time, whistlestop
    with whistlestop.run("one") as run:
        for step in run.steps():
            if step > 5:
                time.sleep(1000)
"""


def test_who_does_not_leave_is_ended_before_the_deadline_and_that_is_told_before_it(kit: Kit) -> None:
    kit.python(DEAF)
    training(kit)
    kit.peer.send(Order(seq=1, preempt_deadline=time.time() + 60, preempt_why="later"))
    final(kit)
    deadline = time.time() + 2
    kit.peer.send(Order(seq=2, preempt_deadline=deadline, preempt_why="sooner"))  # an earlier one replaces it
    ended = kit.ended()
    assert time.time() < deadline
    assert deadline - 1 < ended["gone_at"]
    assert (ended["reason"], ended["signal"]) == ("preempted", signal.SIGKILL)
    assert "later" in ended["evidence"]  # what was there first


def test_a_notice_of_nothing_ends_it_at_once(kit: Kit) -> None:
    kit.python(DEAF)
    training(kit)
    asked = time.time()
    kit.peer.send(Order(seq=1, preempt_deadline=asked, preempt_why="now"))
    ended = kit.ended()
    assert (ended["reason"], ended["signal"]) == ("preempted", signal.SIGKILL)
    assert ended["gone_at"] - asked < 5


SLOW_TO_SAVE = """
    import os, time, whistlestop
    from pathlib import Path
    from whistlestop.channel.control import Control
    from whistlestop.channel.layout import Word
    with whistlestop.run("one") as run:
        state = {"steps": 0}
        run.track(state=state)
        control = Control.open(Path(os.environ["WHISTLE_CHANNEL"]) / "control")
        for step in run.steps():
            state["steps"] += 1
            time.sleep(0.002)
            if step == 5:
                run.save()
            if step > 5:
                control.set_seconds(Word.SAVE_SECONDS, 30.0)
"""


def test_a_save_that_does_not_fit_is_flagged_before_and_not_begun_then(kit: Kit) -> None:
    kit.python(SLOW_TO_SAVE, notice_seconds=10.0)
    flagged = until(lambda: told(kit, "notice_too_short"), "the flag")[0]
    assert flagged.text.startswith("A notice here is 10 s; a save takes 30 s (0.0 s step, 30.0 s copy, ")
    assert flagged.data["steps"] >= 1
    kit.peer.send(Order(seq=1, preempt_deadline=time.time() + 10, preempt_why="now"))
    ended = kit.ended()
    assert (ended["reason"], ended["saved_step"]) == ("preempted", 6)
    assert ended["last_step"] > 6
    assert "asked to leave without a save, which would take 30." in final(kit).text
    assert len(told(kit, "notice_too_short")) == 1


SLOW_STORAGE = """
    import time
    from whistlestop.blobs.checkpoints import CheckpointStore
    before = CheckpointStore.commit
    def commit(*given, **named):
        time.sleep(SECONDS)
        return before(*given, **named)
    CheckpointStore.commit = commit
"""


@pytest.mark.parametrize(("seconds", "safe"), [(0.5, True), (30.0, False)])
def test_what_is_staged_is_brought_to_safety_if_the_notice_is_long_enough(
    patched: Patched, kit: Kit, seconds: float, safe: bool
) -> None:
    patched(kit, SLOW_STORAGE.replace("SECONDS", str(seconds)))
    training(kit)
    deadline = time.time() + 2
    kit.peer.send(Order(seq=1, preempt_deadline=deadline, preempt_why="now"))
    ended = kit.ended()
    assert time.time() < deadline
    assert (ended["reason"], ended["exit_code"]) == ("preempted", 75)
    assert (ended["saved_step"] == ended["last_step"]) is safe
    assert any("it is given up" in event.text for event in told(kit, "notice")) is not safe


RAISES = """
    import time, whistlestop
    with whistlestop.run("one") as run:
        for step in run.steps():
            time.sleep(0.002)
            if run.should_stop:
                raise RuntimeError("while it left")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_an_error_behind_the_notice_is_told_and_counts_as_preempted(kit: Kit, number: signal.Signals) -> None:
    job = kit.python(RAISES)
    training(kit)
    os.kill(kit.runner_pid(job), number)
    ended = kit.ended()
    assert (ended["reason"], ended["exit_code"], ended["notice"]) == ("preempted", 1, number.name.lower())
    assert "RuntimeError: while it left" in ended["evidence"]


BREAKS = """
    import time, whistlestop
    with whistlestop.run("one") as run:
        state = {"steps": 0}
        run.track(state=state)
        for step in run.steps(total=10**6):
            time.sleep(0.002)
            state["steps"] += 1
            if run.should_stop:
                break
"""


def test_a_loop_that_is_left_for_the_notice_has_not_finished(kit: Kit) -> None:
    kit.python(BREAKS)
    training(kit)
    kit.peer.send(Order(seq=1, preempt_deadline=time.time() + 20, preempt_why="it goes"))
    ended = kit.ended()
    assert (ended["reason"], ended["exit_code"], ended["loop"]) == ("preempted", 0, "left")
    assert ended["saved_step"] == ended["last_step"]


def together(kit: Kit, command: str, act: Any) -> dict[str, Any]:
    """The program ends while its runner looks away; then the runner gets SIGTERM, and looks."""
    job = kit.launch("/bin/sh", "-c", f"echo up; {command}")
    until(lambda: "up" in kit.peer.texts(), "the program")
    runner = kit.runner_pid(job)
    program = int(json.loads((kit.directory(job) / "program").read_bytes())["pid"])
    os.kill(runner, signal.SIGSTOP)
    act(program)
    until(lambda: Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[0] == "Z", "its end")
    os.kill(runner, signal.SIGTERM)
    os.kill(runner, signal.SIGCONT)
    return kit.ended()


def test_an_error_before_the_notice_is_an_error(kit: Kit) -> None:
    ended = together(kit, "while [ ! -e go ]; do sleep 0.01; done; exit 3", lambda _: (kit.work / "go").touch())
    assert (ended["reason"], ended["exit_code"], ended["notice"]) == ("code_raised", 3, None)


def test_a_host_that_ends_all_of_its_processes_takes_the_capacity_back(kit: Kit) -> None:
    ended = together(kit, "exec sleep 1000", lambda program: os.kill(program, signal.SIGTERM))
    assert (ended["reason"], ended["signal"]) == ("preempted", signal.SIGTERM)


def test_a_runner_that_goes_with_its_machine_was_preempted(kit: Kit) -> None:
    job = kit.python(DEAF)
    training(kit)
    os.kill(kit.runner_pid(job), signal.SIGTERM)
    final(kit)
    os.kill(kit.runner_pid(job), signal.SIGKILL)
    until(lambda: kit.state(job) is JobState.DEAD, "the runner's death")
    kit.engine.salvage(job)
    ended = kit.ended()
    assert ended["reason"] == "preempted"
    assert ended["evidence"].startswith("there was notice that the capacity goes; the runner died")


def test_a_signal_to_the_program_alone_is_a_signal(kit: Kit) -> None:
    job = kit.launch("/bin/sh", "-c", "echo up; exec sleep 1000")
    until(lambda: "up" in kit.peer.texts(), "the program")
    os.kill(int(json.loads((kit.directory(job) / "program").read_bytes())["pid"]), signal.SIGTERM)
    ended = kit.ended()
    assert (ended["reason"], ended["notice"]) == ("signalled", None)


@pytest.mark.parametrize(("misbehaviour", "clouds"), [("silent", ["gcp"]), ("huge", ["gcp", "aws", "azure"])])
def test_a_hostile_source_does_not_disturb_a_run(
    patched: Patched, kit: Kit, misbehaviour: str, clouds: list[str]
) -> None:
    with MetadataServer() as metadata:
        metadata.misbehaviour = misbehaviour
        patched(kit, notices=dict.fromkeys(clouds, metadata.url))
        training(kit)
        until(lambda: {event.data["source"] for event in told(kit, "notice_source")} == set(clouds), "the words")
        kit.peer.send(Order(seq=1, stop=1, actor="ann"))
        assert kit.ended()["reason"] == "stopped"


def test_the_host_is_called_as_its_pool_calls_it(kit: Kit) -> None:
    kit.launch("true", host="rack-7")
    kit.ended()
    assert kit.peer.hellos[0].host == "rack-7"
