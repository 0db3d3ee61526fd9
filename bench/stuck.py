"""How soon a hang is told of, beside the patience that the run's own history had earned it.

    python bench/stuck.py [--quick] [--rounds 10] [--out FILE]

Runs of 5 ms steps that hang in turn in a lock taken twice, in an empty queue, and by SIGSTOP. Measured from just before
the hang, by the program itself, until a client sees the event `stuck`; beside it the patience that the event states and
the rest: looking, stacks, the server, the client. The shortest silence is 2 s instead of 60, so that rounds are short.
What watching costs a step: loops of empty steps, looked at ten times a second (as here) and once a second (as usual).
"""

import contextlib
import os
import signal
import statistics
import sys
import time
from pathlib import Path

from measuring import Result, alone, numbers_in, scratch, scratch_server

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.wire.api import EventView

FLOOR = 2.0  # seconds
REST = 3000.0  # ms: an aim for what comes on top of the patience
COST = 1.05  # times
STEPS = 1_000_000
KINDS = ("lock", "loader", "stopped")
SHOWS = {"lock": "take_twice", "loader": "next_batch", "stopped": "compute"}

HANGS = """
import os, queue, threading, time
import whistlestop

kind, mark, lock = os.environ["BENCH_KIND"], os.environ["BENCH_MARK"], threading.Lock()

def write():
    with open(mark, "w") as file:
        file.write(f"{time.monotonic()!r}\\n")

def take_twice():
    with lock:
        lock.acquire()

def next_batch():
    queue.Queue().get()

def compute():
    time.sleep(0.005)

with whistlestop.run() as run:
    began = time.monotonic()
    for step in run.steps():
        compute()
        if kind != "stopped" and time.monotonic() > began + 12:
            write()
            take_twice() if kind == "lock" else next_batch()
        elif kind == "stopped" and time.monotonic() > began + 12 and not os.path.exists(mark):
            write()
"""
LOOPS = """
import os, time
import whistlestop

with whistlestop.run() as run:
    began = time.perf_counter()
    for step in run.steps({steps}):
        pass
    took = time.perf_counter() - began
with open(os.environ["BENCH_MARK"], "w") as file:
    file.write(f"{{took!r}}\\n")
"""


def measure(rounds: int) -> Result:
    result = Result()
    late: dict[str, list[float]] = {kind: [] for kind in KINDS}
    patience: list[float] = []
    shown = 0
    with scratch() as directory, scratch_server(slots=1) as server, server.client() as client:
        (directory / "hangs.py").write_text(HANGS)
        (directory / "loops.py").write_text(LOOPS.format(steps=STEPS))
        for number in range(rounds):
            for kind in KINDS:
                seconds, event = hang(server, client, directory, kind, f"{kind}-{number}")
                expected = float(event.data["expected_s"])
                patience.append(expected)
                late[kind].append(seconds - expected)
                shown += any(SHOWS[kind] in frame for stack in event.data["stacks"] for frame in stack["frames"])
        often, seldom = [], []
        for number in range(rounds):
            turns = [(often, FLOOR), (seldom, 60.0)]
            for times, floor in turns if number % 2 else reversed(turns):  # neither is always the first
                times.append(loop(server, directory, floor, f"loop-{floor}-{number}"))
    result.raw["patience s"] = patience
    result.add("patience of a run of 5 ms steps, floor 2 s: median", statistics.median(patience), "s")
    for kind in KINDS:
        result.add_times(f"hang → event seen by a client, beyond the patience: {kind}", late[kind], p99=REST)
    result.add(
        f"hangs whose stack does not show the function, of {len(patience)}", len(patience) - shown, "hangs", aim=0
    )
    result.raw["a step, looked at ten times a second, ns"] = often
    result.raw["a step, looked at once a second, ns"] = seldom
    result.add("an empty step, looked at ten times a second: median", statistics.median(often), "ns")
    result.add("the same, once a second: median", statistics.median(seldom), "ns")
    result.add("times that", statistics.median(often) / statistics.median(seldom), "x", aim=COST)
    return result


def hang(server: ServerProcess, client: Client, directory: Path, kind: str, name: str) -> tuple[float, EventView]:
    """Seconds from the hang to the event, and the event."""
    mark = directory / name
    env = {"BENCH_KIND": kind, "BENCH_MARK": str(mark), "WHISTLE_STUCK_AFTER": str(FLOOR)}
    run = server.submit({"name": "train", "command": [sys.executable, "hangs.py"], "env": env}, directory=directory).id
    (began,) = numbers_in(mark, within=120)
    if kind == "stopped":
        started = next(event for event in client.events(run, limit=5000) if event.kind == "program_started")
        began = time.monotonic()
        os.killpg(started.data["pid"], signal.SIGSTOP)
    deadline = time.monotonic() + 120
    while not (found := [event for event in client.events(run, search="stuck") if event.kind == "stuck"]):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} was not found")
        time.sleep(0.01)
    seen = time.monotonic() - began
    with contextlib.suppress(OSError):
        mark.unlink()
    client.kill(run)
    server.wait(run, "killed")
    return seen, found[0]


def loop(server: ServerProcess, directory: Path, floor: float, name: str) -> float:
    """Nanoseconds a step."""
    mark = directory / name
    env = {"BENCH_MARK": str(mark), "WHISTLE_STUCK_AFTER": str(floor)}
    run = server.submit({"name": "train", "command": [sys.executable, "loops.py"], "env": env}, directory=directory).id
    (took,) = numbers_in(mark, within=120)
    server.wait(run, "completed")
    return took / STEPS * 1e9


if __name__ == "__main__":
    alone(measure, full=10, quick=1, doc=__doc__)
