"""From a stop request to the loop that sees it.

    python bench/stop_latency.py [--quick] [--rounds 200] [--out FILE]

Runs of ten train phases, each stopped in turn at a random moment of its loop of 1 ms steps. Measured from just before
the POST until the program, inside its own loop, finds `run.should_stop` true; and until its `for` loop has ended, with
the final checkpoint on disk. Beside every stop, in the same server: a note (one PATCH, one durable write, no runner),
and an append with fsync of 4 KiB on the same disk.
"""

import os
import random
import sys
import time
from pathlib import Path

from measuring import Result, alone, numbers_in, scratch, scratch_server

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess

PHASES = 10
P50, P99 = 10.0, 50.0  # ms

PROGRAM = """
import os, time
import whistlestop

mark, seen = os.environ["BENCH_MARK"], 0.0

def write(name, *numbers):
    with open(f"{mark}.{name}", "w") as file:
        file.write(" ".join(map(repr, numbers)) + "\\n")

with whistlestop.run() as run:
    for step in run.steps():
        time.sleep(0.001)
        if not seen and run.should_stop:
            seen = time.monotonic()
        if step == 20:
            write("looping", time.monotonic())
    ended = time.monotonic()
write("stopped", seen or ended, ended)
"""


def measure(rounds: int) -> Result:
    times: dict[str, list[float]] = {"seen": [], "left": [], "answered": [], "note": [], "fsync": []}
    with scratch() as directory, scratch_server() as server, server.client() as client:
        (directory / "program.py").write_text(PROGRAM)
        left = rounds
        while left > 0:
            stop_each_phase(server, client, directory, min(left, PHASES), times)
            left -= PHASES
    result = Result()
    result.add_times("stop request → the loop sees it", times["seen"], p50=P50, p99=P99)
    result.add_times("stop request → the loop has ended, saved", times["left"])
    result.add_times("stop request → answer", times["answered"])
    result.add_times("floor: note, request → answer", times["note"])
    result.add_times("floor: append 4 KiB + fsync", times["fsync"])
    result.add_ratio("stop request → the loop sees it", times["seen"], times["note"])
    return result


def stop_each_phase(
    server: ServerProcess, client: Client, directory: Path, count: int, times: dict[str, list[float]]
) -> None:
    tag = f"{time.monotonic_ns()}"
    phases = [
        {
            "name": f"p{number}",
            "command": [sys.executable, "program.py"],
            "env": {"BENCH_MARK": str(directory / f"{tag}-{number}")},
        }
        for number in range(count)
    ]
    run = server.submit(*phases, name="stopped", directory=directory)
    for number in range(count):
        numbers_in(directory / f"{tag}-{number}.looping")
        time.sleep(
            random.uniform(0.15, 0.35)
        )  # start-up is over, and no phase of the runner's 100 ms tick is preferred
        times["fsync"].append(time_fsync(directory / "appended"))
        began = time.monotonic()
        client.note(run.id, f"note {number}")
        times["note"].append(time.monotonic() - began)
        time.sleep(random.uniform(0.02, 0.12))
        asked = time.monotonic()
        client.stop(run.id, phase=f"p{number}")
        times["answered"].append(time.monotonic() - asked)
        seen, ended = numbers_in(directory / f"{tag}-{number}.stopped")
        times["seen"].append(seen - asked)
        times["left"].append(ended - asked)
    ended_run = server.wait(run.id)
    if ended_run.status != "completed":
        raise SystemExit(f"run #{run.number} was stopped in every phase and is {ended_run.status}: {ended_run.reason}")


def time_fsync(path: Path) -> float:
    began = time.monotonic()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, bytes(4096))
        os.fsync(fd)
    finally:
        os.close(fd)
    return time.monotonic() - began


if __name__ == "__main__":
    alone(measure, full=200, quick=20, doc=__doc__)
