"""A program that hangs is told of, with the place where; one that takes its time is not."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from runner_kit import Kit, until

from whistlestop.domain.stops import Stop
from whistlestop.engines import processes
from whistlestop.engines.processes import Handle
from whistlestop.runner import answers
from whistlestop.runner.watching import ENV_FLOOR
from whistlestop.wire.frames import Order, RunnerEvent

LOCKED = """
    import os, threading, time, whistlestop
    lock = threading.Lock()
    def take_twice():
        with lock:
            lock.acquire()
    with whistlestop.run() as run:
        for step in run.steps(total=100_000):
            time.sleep(0.01)
            if os.path.exists("hang"): take_twice()
"""
LOADER = """
    import os, queue, time, whistlestop
    samples = queue.Queue()
    def next_batch():
        return samples.get() if os.path.exists("hang") else time.sleep(0.01)
    with whistlestop.run() as run:
        for step in run.steps(total=100_000):
            next_batch()
"""
STEPS = """
    import time, whistlestop
    def compute():
        time.sleep(0.01)
    with whistlestop.run() as run:
        for step in run.steps(total=100_000):
            compute()
"""
# One rank hangs while it loads; the other waits for it where they exchange.
RANKS = """
    import os, socket, time, whistlestop
    rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
    def connect():
        if rank == 0:
            with socket.create_server(("127.0.0.1", port)) as server:
                return server.accept()[0]
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port))
            except OSError:
                time.sleep(0.05)
    def all_reduce(line):
        line.sendall(b"x")
        assert line.recv(1)
    def load():
        time.sleep(1e6 if rank == 1 and os.path.exists("hang") else 0.005)
    line = connect()
    with whistlestop.run() as run:
        for step in run.steps(total=100_000):
            load()
            all_reduce(line)
"""
# Much longer than a step, each of them, and nothing is wrong.
SLOW = """
    import time
    time.sleep(1.5)
    import whistlestop
    class Model:
        def state_dict(self):
            time.sleep(2.2)
            return {"a": 1}
        def load_state_dict(self, state): pass
    with whistlestop.run() as run:
        run.track(model=Model())
        for step in run.steps(total=100):
            time.sleep(0.02)
            if step in (30, 60):
                with run.evaluating():
                    time.sleep(2.2)
            if step in (40, 70):
                run.save()
    print("done")
"""


def launch(kit: Kit, code: str, floor: float, **fields: Any) -> None:
    (kit.work / "train.py").write_text(textwrap.dedent(code))
    kit.launch(sys.executable, "train.py", env={ENV_FLOOR: str(floor)}, **fields)


def hang(kit: Kit) -> None:
    """Once enough of its steps were seen: on a busy machine the runner sees few of them."""
    until(lambda: len({shown.step for shown in kit.peer.progress if shown.step}) > 5, "steps", timeout=90)
    (kit.work / "hang").touch()


def told(kit: Kit, kind: str = "stuck") -> RunnerEvent:
    found: list[RunnerEvent] = until(
        lambda: [event for event in kit.peer.events() if event.kind == kind], kind, timeout=90
    )
    return found[0]


def frames(event: RunnerEvent, rank: int | None = 0) -> list[str]:
    """Of the main thread."""
    return next(stack["frames"] for stack in event.data["stacks"] if stack["rank"] == rank)  # type: ignore[no-any-return]


def test_a_lock_that_is_taken_twice_is_shown_where_it_is_taken(both: Kit) -> None:
    launch(both, LOCKED, 0.5)
    hang(both)
    event = told(both)
    said = (
        r"No step for [\d.]+ m?s at step \d+ \(steps take .+, at most .+ so far\); it is in take_twice \(train.py:6\)\."
    )
    assert re.fullmatch(said, event.text), event.text
    assert frames(event)[:2] == ["train.py:6 take_twice", "train.py:10 <module>"]
    data = event.data
    assert data["silent_s"] > data["expected_s"] >= 0.5
    assert (data["rank"], data["ranks"], data["stage"], data["sdk"]) == (0, {"0": data["step"]}, "step", True)
    assert all(stack["frames"] for stack in data["stacks"])
    assert data["trouble"] == ""


def test_a_loader_that_waits_for_ever_is_named_with_what_it_waits_for(kit: Kit) -> None:
    launch(kit, LOADER, 0.5)
    hang(kit)
    event = told(kit)
    assert event.text.endswith("it waits in Queue.get (train.py:5).")
    assert "train.py:5 next_batch" in frames(event)


def test_a_stopped_process_is_told_of_once_and_again_when_it_goes_on(kit: Kit) -> None:
    launch(kit, STEPS, 0.5)
    started = told(kit, "program_started")
    until(lambda: any(shown.step > 30 for shown in kit.peer.progress), "steps")
    os.killpg(started.data["pid"], signal.SIGSTOP)
    event = told(kit)
    assert "it is stopped in compute (train.py:4)" in event.text
    assert {stack["state"] for stack in event.data["stacks"]} == {"stopped"}
    os.killpg(started.data["pid"], signal.SIGCONT)
    again = told(kit, "going_again")
    assert again.data["silent_s"] >= event.data["silent_s"]
    assert again.data["step"] > event.data["step"]
    step = kit.peer.progress[-1].step
    until(lambda: kit.peer.progress[-1].step > step + 50, "more steps")
    assert kit.peer.kinds().count("stuck") == 1


def test_of_two_ranks_the_one_that_hangs_is_named_and_not_the_one_that_waits(kit: Kit) -> None:
    launch(kit, RANKS, 1.0, ranks=2, slots=[0, 1])
    hang(kit)
    event = told(kit)
    assert event.data["rank"] == 1
    assert "; rank 1 on " in event.text
    assert event.text.endswith(" is in load (train.py:17).")
    assert "train.py:17 load" in frames(event, 1)
    assert "train.py:15 all_reduce" in frames(event, 0)
    assert event.data["ranks"] == {"0": event.data["step"], "1": event.data["step"]}


def test_a_long_start_long_evaluations_and_slow_saves_are_none(kit: Kit) -> None:
    launch(kit, SLOW, 0.6)
    until(lambda: "done" in kit.peer.texts(), "the end", 120)
    assert kit.ended()["reason"] == "finished"
    assert kit.peer.kinds().count("checkpoint") >= 1
    assert "stuck" not in kit.peer.kinds()


def test_a_program_that_does_nothing_at_all_is_told_of_without_our_library(kit: Kit) -> None:
    wait = "    while not os.path.exists('go'): time.sleep(0.5)\n"
    launch(kit, f"import os, time\ndef idle():\n{wait}idle()\nprint('on')\ntime.sleep(1000)\n", 0.2)
    event = told(kit)
    assert event.text.startswith("The program has printed nothing and computed nothing for ")
    assert event.data["sdk"] is False
    assert "train.py:3 idle" in frames(event, None)
    (kit.work / "go").touch()
    assert told(kit, "going_again").data["silent_s"] >= event.data["silent_s"]


def test_nothing_is_expected_of_a_program_that_is_being_stopped(kit: Kit) -> None:
    launch(kit, LOCKED, 0.3, ladder={"flag": 1.5, "interrupt": 0.3, "terminate": 0.3})
    until(lambda: any(shown.step >= 3 for shown in kit.peer.progress), "steps")
    (kit.work / "hang").touch()
    kit.peer.send(Order(seq=1, stop=Stop.FINISH_PHASE))
    kit.ended()
    assert "stuck" not in kit.peer.kinds()


def test_where_py_spy_may_not_read_the_program_tells_by_itself(kit: Kit) -> None:
    (kit.work / "train.py").write_text(textwrap.dedent(LOCKED))
    refuses = "from whistlestop.runner import stacks\nstacks.find = lambda: '/bin/false'"
    runner = kit.patched(refuses, sys.executable, "train.py", env={ENV_FLOOR: "0.5"})
    hang(kit)
    event = told(kit)
    assert event.text.endswith("it is in take_twice (train.py:6).")
    assert frames(event) == ["train.py:6 take_twice", "train.py:10 <module>"]
    assert event.data["trouble"].startswith("py-spy: ")
    kit.peer.send(Order(seq=1, stop=Stop.KILL))
    assert runner.wait(20) == 0


def test_a_process_that_does_not_catch_the_signal_is_not_sent_one(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as sleeping:
        process = processes.read(sleeping.pid)
        assert process is not None
        handle = Handle.open(process)
        assert handle is not None
        assert answers.ask(handle, tmp_path, 0) == []
        assert sleeping.poll() is None
        handle.close()
        sleeping.kill()
