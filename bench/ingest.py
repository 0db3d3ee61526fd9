"""Points through one runner's link: from the loop that logs them to a server that shows them.

    python bench/ingest.py [--quick] [--steps 300000] [--out FILE]

A program logs three scalars a step at full speed. Measured from its first step until the runner has the server's word
for everything (its `done` file, written after the last acknowledgement, which comes after the commit). Then every
point is read back over HTTP and compared with what was logged: a lost, doubled or changed one ends the benchmark.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from measuring import Result, alone, numbers_in, scratch, scratch_server, spec_of, submit

from whistlestop.client import Client
from whistlestop.engines.attempt_files import DONE
from whistlestop.testing.server import ServerProcess

ROUNDS = 3
LIMIT = 300.0  # seconds
LOGGED: dict[str, Callable[[int], float]] = {
    "loss": float,
    "lr": lambda step: step * 0.5,
    "grad_norm": lambda step: step + 0.25,
}

PROGRAM = """
import os, sys, time
import whistlestop

with whistlestop.run() as run:
    began = time.monotonic()
    for step in run.steps(int(sys.argv[1])):
        run.log(loss=float(step), lr=step * 0.5, grad_norm=step + 0.25)
    ended = time.monotonic()
with open(os.environ["BENCH_MARK"], "w") as file:
    print(began, ended, file=file)
"""


def measure(steps: int) -> Result:
    with scratch() as directory, scratch_server() as server, server.client() as client:
        (directory / "program.py").write_text(PROGRAM)
        found = [one_round(server, client, directory, number, steps) for number in range(ROUNDS)]
    points = steps * len(LOGGED)
    result = Result(raw={f"{name} s": [round(each[name], 4) for each in found] for name in found[0]})
    middle = {name: sorted(each[name] for each in found)[len(found) // 2] for name in found[0]}
    result.add("points a run", points, "")
    result.add("the loop itself", points / middle["loop"], "points/s")
    result.add("end to end: first step → all at the server", points / middle["safe"], "points/s")
    result.add("the loop's end → all at the server", middle["behind"] * 1000, "ms")
    result.add("the loop's end → run shown completed", middle["completed"] * 1000, "ms")
    result.add("reading all back as JSON", points / middle["read"], "points/s")
    result.add("points lost, doubled or changed", 0, "points", aim=0)  # compare() would have ended it
    return result


def one_round(server: ServerProcess, client: Client, directory: Path, number: int, steps: int) -> dict[str, float]:
    mark = directory / f"run-{number}"
    phase = {"name": "main", "command": [sys.executable, "program.py", str(steps)], "env": {"BENCH_MARK": str(mark)}}
    run = submit(client, spec_of(phase, name="ingest"), directory)
    began, ended = numbers_in(mark)
    attempt = client.run(run.id).phases[0].attempts[0].id
    completed = safe = 0.0
    while not (completed and safe):
        now = time.monotonic()
        if not completed and (status := client.run(run.id).status) in ("completed", "failed", "killed"):
            completed = now
            if status != "completed":
                raise SystemExit(f"run #{run.number} is {status}")
        if not safe and (server.data / "attempts" / attempt / DONE).exists():
            safe = now
        if now - ended > LIMIT:
            raise SystemExit(f"run #{run.number}: not everything was at the server {LIMIT:g} s after its loop")
        time.sleep(0.02)
    reading = time.monotonic()
    compare(client, run.id, steps)
    return {
        "loop": ended - began,
        "safe": safe - began,
        "behind": safe - ended,
        "completed": completed - ended,
        "read": time.monotonic() - reading,
    }


def compare(client: Client, run: str, steps: int) -> None:
    """One series at a time: as JSON a million points are large."""
    for name, expected in LOGGED.items():
        [series] = client.metrics(run, [name]).series
        if len(series.points) != steps:
            raise SystemExit(f"{name}: {steps} points were logged, {len(series.points)} can be read")
        for step, (at, value, _) in enumerate(series.points):
            if (at, value) != (step, expected(step)):
                raise SystemExit(f"{name}: step {step} was logged as {expected(step)}, read as {value} of step {at}")


if __name__ == "__main__":
    alone(measure, full=300_000, quick=30_000, doc=__doc__, what="steps")
