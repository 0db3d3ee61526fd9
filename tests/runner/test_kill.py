"""Kill: whatever a program does to itself, nothing of it is left, and nobody else is touched."""

import random
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator

import pytest
from runner_kit import Kit, until

from whistlestop.engines import processes
from whistlestop.wire.frames import Order

KILL = Order(seq=1, stop=3, actor="ann")

PROGRAMS = {
    "forks workers": """
        import os, time
        for _ in range(4):
            if os.fork() == 0: time.sleep(1000)
        READY(); time.sleep(1000)
    """,
    "has 32 workers": """
        import os, time
        for _ in range(32):
            if os.fork() == 0: time.sleep(1000)
        READY(); time.sleep(1000)
    """,
    "starts a new session": """
        import os, subprocess, time
        subprocess.Popen(["sleep", TAG], start_new_session=True)
        READY(); time.sleep(1000)
    """,
    "forks twice and lets the parent go": """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.close(1); os.close(2)
                READY(); time.sleep(1000)
            os._exit(0)
        os.wait(); time.sleep(1000)
    """,
    "ignores every signal it can": """
        import signal, time
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        READY(); time.sleep(1000)
    """,
    "stops itself": """
        import os, signal, time
        if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)
        READY(); os.kill(os.getpid(), signal.SIGSTOP); time.sleep(1000)
    """,
    "hides its environment": """
        import os, subprocess, time
        subprocess.Popen(["env", "-i", "sleep", TAG], start_new_session=True)
        READY(); time.sleep(1000)
    """,
    "forks without end": """
        import os, time
        READY()
        while True:
            if os.fork() == 0: time.sleep(0.2); os._exit(0)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]: pass
            except ChildProcessError: pass
            time.sleep(0.002)
    """,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_killed_program_leaves_nothing(both: Kit, program: str) -> None:
    ready = both.root / "ready"
    tag = f"1000.{random.randrange(10**9):09d}"  # in the command line of everything that the program starts
    head = f"TAG = {tag!r}\nREADY = lambda: open({str(ready)!r}, 'w').close()\n"
    job = both.python(head + textwrap.dedent(PROGRAMS[program]))
    until(ready.exists, "the program")
    until(lambda: "program_started" in both.peer.kinds(), "the link")
    group = both.group(job)
    assert tagged(tag)
    asked = time.time()
    both.peer.send(KILL)
    ended = both.ended()
    assert ended["reason"] == "killed"
    assert ended["gone_at"] - asked < 20
    assert both.alive(job) == []
    assert tagged(tag) == []
    both.wait_done(job)
    assert group is None or not group.exists()
    assert both.walk == (group is None)
    assert any("proven gone" in text for text in both.peer.texts("sys"))


def test_a_bystander_with_the_same_command_is_untouched(both: Kit, bystander: "subprocess.Popen[bytes]") -> None:
    job = both.launch("sleep", "1234")
    until(lambda: len(both.alive(job)) == 1, "the first")  # two attempts of one phase: the later one comes later
    other = both.launch("sleep", "1234", attempt_number=2)
    until(lambda: len(both.alive(job)) == 1 and len(both.alive(other)) == 1, "both")
    both.engine.cancel(job)
    assert both.alive(job) == []
    assert bystander.poll() is None
    assert len(both.alive(other)) == 1


def test_kill_works_while_a_stop_is_being_ignored(both: Kit) -> None:
    both.python("import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('up'); time.sleep(1000)")
    until(lambda: "up" in both.peer.texts(), "the program")
    both.peer.send(Order(seq=1, stop=1, actor="ann"))
    until(lambda: "rung" in both.peer.kinds(), "the ladder")
    both.peer.send(Order(seq=2, stop=3, actor="bob"))
    assert both.ended()["reason"] == "killed"


def test_processes_that_outlive_the_program_are_ended_and_counted(both: Kit) -> None:
    job = both.launch("/bin/sh", "-c", "sleep 1000 & setsid sleep 1000 & exit 0")
    assert both.ended()["reason"] == "finished"
    [leftovers] = [event for event in both.peer.events() if event.kind == "leftovers"]
    assert leftovers.data["count"] == 2
    assert both.alive(job) == []


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "1234"], start_new_session=True) as process:
        yield process
        process.send_signal(signal.SIGKILL)


def tagged(tag: str) -> list[int]:
    """Living processes with the tag in their command line: a witness that is not ours."""
    found = []
    for process in processes.every().values():
        try:
            with open(f"/proc/{process.pid}/cmdline", "rb") as file:
                if process.alive and tag.encode() in file.read():
                    found.append(process.pid)
        except OSError:
            continue
    return found
