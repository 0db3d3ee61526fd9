"""Ending a tree: bounded in time, honest about what hangs, blind to nobody."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from runner_kit import Kit, until

from whistlestop.domain.ids import new_id
from whistlestop.engines import cgroups, processes
from whistlestop.engines.containment import Tree
from whistlestop.engines.local import LocalEngine
from whistlestop.testing.missing import missing
from whistlestop.wire.frames import Order


@pytest.fixture
def marked() -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    attempt = new_id("a")
    env = os.environ | {"WHISTLE_ATTEMPT": attempt}
    with subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True) as process:
        until(lambda: processes.marked(process.pid, f"WHISTLE_ATTEMPT={attempt}".encode()), "its exec")
        yield attempt, process
        process.kill()


def test_what_signals_do_not_end_is_named_within_the_time_given(
    marked: tuple[str, "subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, process = marked
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)  # as if it hung in the kernel
    began = time.monotonic()
    gone = Tree(attempt).end(timeout=0.5)
    assert time.monotonic() - began < 20
    assert [held.pid for held in gone.held] == [process.pid]
    assert gone.held[0].why


def test_the_mark_alone_finds_an_orphan(marked: tuple[str, "subprocess.Popen[bytes]"]) -> None:
    attempt, process = marked
    gone = Tree(attempt).end()
    assert (gone.ended, gone.held) == (1, ())
    assert process.wait(10) == -signal.SIGKILL


def test_a_mark_that_only_begins_alike_is_somebody_else(marked: tuple[str, "subprocess.Popen[bytes]"]) -> None:
    attempt, process = marked
    assert Tree(attempt[:-1]).end().ended == 0
    assert process.poll() is None


def test_a_group_is_made_entered_emptied_and_removed() -> None:
    group = cgroups.create(new_id("a"))
    if group is None:
        missing("cgroups may not be made here")
    with subprocess.Popen(["sleep", "1000"]) as process:
        (group / "cgroup.procs").write_text(str(process.pid))
        assert cgroups.members(group) == [process.pid]
        assert cgroups.populated(group)
        assert not cgroups.wait_empty(group, time.monotonic() + 0.01)
        cgroups.kill(group)
        assert cgroups.wait_empty(group, time.monotonic() + 10)
    cgroups.remove(group)
    assert not group.exists()
    assert not cgroups.populated(group)


def test_a_group_made_by_the_program_inside_its_own_is_ended_and_removed_too(kit: Kit) -> None:
    job = kit.launch("sleep", "1000")
    group = kit.group(job)
    if group is None:
        missing("cgroups may not be made here")
    [pid] = until(lambda: kit.alive(job), "the program")
    (group / "inner").mkdir()
    (group / "inner" / "cgroup.procs").write_text(str(pid))
    kit.engine.cancel(job)
    assert kit.alive(job) == []
    assert not group.exists()


def test_the_end_gets_out_of_a_full_disk(kit: Kit, small_disk: Path) -> None:
    kit.engine = LocalEngine(small_disk)
    job = kit.launch("/bin/sh", "-c", "echo up; while :; do echo more and more; sleep 0.001; done")
    until(lambda: "up" in kit.peer.texts(), "the program")
    with (small_disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(512)):
            pass
    kit.peer.send(Order(seq=1, stop=3, actor="ann"))
    assert kit.ended()["reason"] == "killed"
    assert kit.alive(job) == []
    (small_disk / "filler").unlink()
    kit.wait_done(job)
    assert kit.peer.gaps == []


@pytest.fixture
def small_disk(kit: Kit) -> Iterator[Path]:
    small = Path(tempfile.mkdtemp(prefix="whistle-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        small.rmdir()
        missing("nothing may be mounted here")
    yield small
    kit.close_jobs()
    subprocess.run(["umount", "-l", small], check=True)
    small.rmdir()
