"""What can't be ended, what can't be read, what never comes: said in words, and never waited for in silence."""

import os
import signal
from pathlib import Path

import pytest
from runner_kit import Kit, until

from whistlestop.engines import processes
from whistlestop.engines.attempt_files import Started
from whistlestop.engines.base import JobState
from whistlestop.engines.containment import Tree
from whistlestop.runner import memory
from whistlestop.wire.frames import Order

KILL = Order(seq=1, stop=3, actor="ann")

# Until the file is there, no signal reaches anybody: like a process of another user, or one that hangs in the kernel.
HELD = """
    import os, signal
    from whistlestop.runner import supervise
    supervise.PROOF_SECONDS, supervise.RETRY_SECONDS = 0.2, 0.05
    send = signal.pidfd_send_signal
    def refuse(fd, number):
        if not os.path.exists({file!r}): raise PermissionError(1, "not permitted")
        send(fd, number)
    signal.pidfd_send_signal = refuse
"""


def test_a_main_process_that_can_not_be_ended_is_named_and_tried_again(walking: Kit) -> None:
    let_go = walking.root / "let go"
    runner = walking.patched(HELD.format(file=str(let_go)), "sleep", "1000")
    until(lambda: "program_started" in walking.peer.kinds(), "the program")
    walking.peer.send(KILL)
    notice = until(lambda: [e for e in walking.peer.events() if e.kind == "notice"], "words")[0]
    assert "can't be ended" in notice.text
    assert walking.peer.ended() is None
    let_go.touch()
    ended = walking.ended()
    assert (ended["reason"], ended["signal"]) == ("killed", signal.SIGKILL)
    assert runner.wait(20) == 0


def test_cancel_leaves_no_runner_stopped_whatever_goes_wrong(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    job = kit.launch("sleep", "1000")
    pid = kit.runner_pid(job)

    def fail(*_: object) -> None:
        raise OSError("no /proc today")

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "end", fail)
        with pytest.raises(OSError, match="no /proc today"):
            kit.engine.cancel(job)
    until(lambda: (kit.state(job), processes.read(pid))[1] is None, "the runner's end")


@pytest.mark.parametrize("given", [b"", b"{}", b'{"OTHER": "x"}', b'{"KEY": "torn'])
def test_a_program_is_not_started_without_its_secrets(kit: Kit, given: bytes) -> None:
    runner = kit.patched("", "/bin/sh", "-c", "touch started", secrets=given, secret_names=["KEY"])
    runner.wait(20)
    assert kit.state(kit.jobs[-1]) is JobState.UNKNOWN
    assert list(kit.work.iterdir()) == []


def test_a_runner_whose_preparing_hangs_leaves_when_it_is_done(kit: Kit) -> None:
    os.mkfifo(kit.root / "bundle.tar")  # opening it hangs: a dead disk
    (kit.root / "checkpoints" / "train").mkdir(parents=True)
    kit.peer.order = KILL
    runner = kit.patched("", "true", bundle=str(kit.root / "bundle.tar"))
    assert kit.ended()["reason"] == "killed"
    assert runner.wait(20) == 0


def test_a_hidden_program_is_found_after_the_death_of_its_runner(walking: Kit) -> None:
    job = walking.launch("env", "-i", "/bin/sh", "-c", "trap '' PIPE; env -i sleep 987654 & echo up; wait")
    until(lambda: "up" in walking.peer.texts(), "the program")
    until(lambda: "program_started" in walking.peer.kinds(), "the runner's word")
    started = next(event for event in walking.peer.events() if event.kind == "program_started")
    below = processes.below([started.data["pid"]], processes.every()) | {started.data["pid"]}
    assert len(below) == 2
    os.kill(walking.runner_pid(job), signal.SIGKILL)
    until(lambda: walking.state(job) is JobState.DEAD, "the runner's death")
    walking.engine.salvage(job)
    assert walking.ended()["reason"] == "runner_lost"
    assert not any((left := processes.read(pid)) is not None and left.alive for pid in below)


def test_a_session_whose_number_was_given_away_again_is_somebody_else() -> None:
    own = processes.read(os.getsid(0)) or processes.read(os.getpid())
    assert own is not None
    assert Tree("a-none", program=Started(own.pid, own.start - 1)).living() == []


def test_the_counter_of_the_group_is_heard_before_that_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = 5
    monkeypatch.setattr(memory, "_host", lambda: host)
    monkeypatch.setattr(memory, "_own_v1", lambda: None)
    (tmp_path / "memory.events").write_text("oom 0\noom_kill 1\n")
    own, other = memory.Witness(tmp_path), memory.Witness(None)
    host = 6
    assert not own.saw_kill()
    assert other.saw_kill()
    (tmp_path / "memory.events").write_text("oom 1\noom_kill 2\n")
    assert own.saw_kill()
