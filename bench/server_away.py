"""Does a loop feel that its server is away? Step times with the server there, away from the start, gone in the middle.

    python bench/server_away.py [--quick] [--rounds 8] [--out FILE]

One program with steps of about a millisecond of work takes the time of each, and of our part in it. Its server is
killed before its first step, comes back, is killed again, and so on: one process, one loop, so the ratio of both times
is from the same minutes. Each stretch without a server is compared with the mean of its two neighbours with one; on a
busy machine the part that is ours says more. Afterwards every point is read back: a lost, doubled or changed one ends
the benchmark.
"""

import itertools
import statistics
import sys
import time
from array import array
from pathlib import Path

from measuring import Result, alone, numbers_in, percentile, scratch, scratch_server, spec_of, submit

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

STRETCH = 3.0  # seconds
MARGIN = 0.7  # left out at both ends of a stretch: a server that starts or dies takes CPU time, on any machine
CHANGE = 1.0  # percent

PROGRAM = """
import os, sys, time
from array import array
from pathlib import Path
import whistlestop

go, stop, stamps, mark = (Path(os.environ["BENCH"]) / name for name in ("go", "stop", "stamps", "mark"))


def work(count):
    total = 0
    for number in range(count):
        total += number * number
    return total


def sized():
    "As much work as takes a millisecond here."
    count = 1000
    while True:
        began = time.perf_counter()
        work(count)
        took = time.perf_counter() - began
        if took > 0.0009:
            return count
        count = int(count * max(1.05, min(2.0, 0.001 / took)))


count, times, clock = sized(), array("q"), time.monotonic_ns
with whistlestop.run() as run:
    mark.write_text("1\\n")
    while not go.exists():
        time.sleep(0.005)
    for step in run.steps():
        times.append(clock())
        work(count)
        times.append(clock())
        run.log(loss=float(step), lr=step * 0.5)
        if not step % 200 and stop.exists():
            break
stamps.with_suffix(".making").write_bytes(times.tobytes())
stamps.with_suffix(".making").rename(stamps)
"""


def measure(rounds: int) -> Result:
    with scratch() as directory, scratch_server() as server:
        (directory / "program.py").write_text(PROGRAM)
        phase = {"name": "main", "command": [sys.executable, "program.py"], "env": {"BENCH": str(directory)}}
        with server.client() as client:
            run = submit(client, spec_of(phase, name="away"), directory).id
        numbers_in(directory / "mark")
        stretches = come_and_go(server, directory, rounds)
        until((directory / "stamps").exists, within=60, what="the program's step times")
        stamps = array("q", (directory / "stamps").read_bytes())
        if (status := server.wait(run).status) != "completed":
            raise SystemExit(f"the run is {status}")
        with server.client() as client:
            compare(client, run, len(stamps) // 2)
    return figures(stamps, stretches)


def come_and_go(server: ServerProcess, directory: Path, rounds: int) -> list[tuple[float, float]]:
    """Beginning and end of each stretch: the first without a server, the next one with it, and so on."""
    server.kill()
    (directory / "go").touch()
    stretches = [stretch()]
    for _ in range(rounds):
        server.start()
        stretches.append(stretch())
        server.kill()
        stretches.append(stretch())
    server.start()
    stretches.append(stretch())
    (directory / "stop").touch()
    return stretches


def stretch() -> tuple[float, float]:
    began = time.monotonic()
    time.sleep(STRETCH)
    return began + MARGIN, time.monotonic()


def figures(stamps: array, stretches: list[tuple[float, float]]) -> Result:
    whole = split(stamps[::2], stamps[2::2], stretches)
    ours = split(stamps[1::2], stamps[2::2], stretches)
    medians = [statistics.median(part) for part in whole]
    ratios = [
        medians[number] / statistics.mean(medians[number - 1 : number + 2 : 2])
        for number in range(2, len(medians) - 1, 2)
    ]
    result = Result(
        raw={"median step of each stretch, away and there in turn, ms": [round(each, 5) for each in medians]}
    )
    result.add("steps", len(stamps) // 2, "steps")
    for name, first in (("there", 1), ("away", 0)):
        steps, parts = (list(itertools.chain.from_iterable(each[first::2])) for each in (whole, ours))
        result.add(f"step, server {name}: median", percentile(steps, 50), "ms")
        result.add(f"step, server {name}: p99", percentile(steps, 99), "ms")
        result.add(f"our part of it, server {name}: median", percentile(parts, 50) * 1000, "µs")
        result.add(f"our part of it, server {name}: p99", percentile(parts, 99) * 1000, "µs")
    at_first = 100 * (medians[0] / medians[1] - 1)
    later = 100 * (statistics.median(ratios) - 1)
    result.add("slower while the server is away from the start", at_first, "%", aim=CHANGE)
    result.add(f"slower while it is gone in the middle, median of {len(ratios)}", later, "%", aim=CHANGE)
    result.add("points lost, doubled or changed", 0, "points", aim=0)  # compare() would have ended it
    result.notes["away / there, each time"] = [round(each, 4) for each in ratios]
    return result


def split(began: array, ended: array, stretches: list[tuple[float, float]]) -> list[list[float]]:
    """Milliseconds, by stretch."""
    times = [(end / 1e9, (end - begin) / 1e6) for begin, end in zip(began, ended, strict=False)]
    return [[took for at, took in times if first <= at <= last] for first, last in stretches]


def compare(client: Client, run: str, steps: int) -> None:
    for name, factor in (("loss", 1.0), ("lr", 0.5)):
        [series] = client.metrics(run, [name]).series
        found = [(step, value) for step, value, _ in series.points]
        if found != [(step, step * factor) for step in range(steps)]:
            raise SystemExit(f"{name}: {steps} points were logged, {len(found)} came, or not the same ones")


if __name__ == "__main__":
    alone(measure, full=8, quick=2, doc=__doc__)
