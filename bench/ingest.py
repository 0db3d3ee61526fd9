"""Points through real runners' links: from the loops that log them to a server that shows them.

    python bench/ingest.py [--quick] [--points 6000000] [--out FILE]

Programs log at full speed, three scalars a step or a hundred (in bulk), one of them or eight at once, on one signal.
Measured from that signal until the server has committed everything; runners, programs and server share the machine.
Then every point is read back from the store and compared with what was logged: a lost, doubled or changed one ends the
benchmark. One run is also read back whole over HTTP, as JSON.
"""

import itertools
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from measuring import Result, alone, numbers_in, scratch, scratch_server, spec_of, submit

from whistlestop.client import Client
from whistlestop.server.store import metrics
from whistlestop.server.store.database import Database
from whistlestop.testing.server import ServerProcess
from whistlestop.wire.api import RunView

CASES = tuple(itertools.product((3, 100), (1, 8)))  # scalars a step, runners
AIM = 1_000_000  # points a second in bulk
LIMIT = 300.0  # seconds

PROGRAM = """
import os, sys, time
import whistlestop

steps, scalars = int(sys.argv[1]), int(sys.argv[2])
mark, go = sys.argv[3], sys.argv[4]
names = [f"m{number}" for number in range(scalars)]
with whistlestop.run() as run:
    for step in run.steps(steps + 1):
        if step == 0:
            run.log(ready=1.0)
            open(mark + ".ready", "w").close()
            while not os.path.exists(go):
                time.sleep(0.001)
            began = time.monotonic()
        elif scalars == 3:
            run.log(m0=float(step), m1=step * 0.5, m2=step + 0.25)
        else:
            run.log(**dict.fromkeys(names, float(step)))
    ended = time.monotonic()
with open(mark, "w") as file:
    print(began, ended, file=file)
"""


def measure(points: int) -> Result:
    result = Result()
    with scratch() as directory:
        (directory / "program.py").write_text(PROGRAM)
        for scalars, runners in CASES:
            with scratch_server(slots=runners) as server, server.client() as client:
                one_case(result, server, client, directory, scalars, runners, points // scalars // runners)
    result.add("points lost, doubled or changed", 0, "points", aim=0)  # compare() would have ended it
    result.notes["points a case"] = points
    result.notes["aim"] = f"{AIM:,} points/s in bulk, that is: a hundred scalars a step"
    return result


def one_case(
    result: Result,
    server: ServerProcess,
    client: Client,
    directory: Path,
    scalars: int,
    runners: int,
    steps: int,
) -> None:
    name = f"{runners} runner{'s' if runners > 1 else ''}, {scalars} scalars a step"
    go = directory / f"go-{scalars}-{runners}"
    marks = [directory / f"mark-{scalars}-{runners}-{number}" for number in range(runners)]
    runs = [start(client, directory, mark, go, steps, scalars) for mark in marks]
    deadline = time.monotonic() + LIMIT
    wait(lambda: all(os.path.exists(f"{mark}.ready") for mark in marks), deadline, f"{name}: programs never began")
    go.touch()
    began = time.monotonic()
    with sqlite3.connect(f"file:{server.data / 'whistlestop.db'}?mode=ro", uri=True) as store:
        wait(lambda: points_of(store) >= runners * (steps * scalars + 1), deadline, f"{name}: not all have arrived")
    safe = time.monotonic()
    loops = [numbers_in(mark) for mark in marks]
    points = runners * steps * scalars
    result.raw[f"{name}: s"] = [safe - began, *(ended - start for start, ended in loops)]
    result.add(f"{name}: the loops themselves", points / (max(ended for _, ended in loops) - began), "points/s")
    result.add(f"{name}: first step → all at the server", points / (safe - began), "points/s")
    for run in runs:
        server.wait(run.id, "completed")
    compare(server, [attempt_of(client, run) for run in runs], steps, scalars)
    if (scalars, runners) == (3, 1):
        reading = time.monotonic()
        [series] = client.metrics(runs[0].id, ["m0"]).series
        result.add("reading a series back as JSON", len(series.points) / (time.monotonic() - reading), "points/s")
        if len(series.points) != steps:
            raise SystemExit(f"{steps} points were logged, {len(series.points)} can be read over HTTP")


def start(client: Client, directory: Path, mark: Path, go: Path, steps: int, scalars: int) -> RunView:
    words = [sys.executable, "program.py", str(steps), str(scalars), str(mark), str(go)]
    return submit(client, spec_of({"name": "main", "command": words}, name="ingest"), directory)


def points_of(store: sqlite3.Connection) -> int:
    found = store.execute("SELECT sum(points) FROM metric_series WHERE kind = 'program'").fetchone()[0]
    return int(found or 0)


def wait(reached: Callable[[], bool], deadline: float, trouble: str) -> None:
    while not reached():
        if time.monotonic() > deadline:
            raise SystemExit(trouble)
        time.sleep(0.01)


def attempt_of(client: Client, run: RunView) -> str:
    return client.run(run.id).phases[0].attempts[0].id


def compare(server: ServerProcess, attempts: Sequence[str], steps: int, scalars: int) -> None:
    """What the store has, bit for bit."""
    expected = np.arange(1, steps + 1)
    values = {"m0": expected * 1.0, "m1": expected * 0.5, "m2": expected + 0.25} if scalars == 3 else {}
    database = Database(f"sqlite:///{server.data / 'whistlestop.db'}")
    try:
        for attempt, number in itertools.product(attempts, range(scalars)):
            name = f"m{number}"
            with database.read() as connection:
                points = metrics.page(connection, attempt, wanted=[name], limit=steps + 1)[0][name]
            if not np.array_equal(points.step, expected):
                raise SystemExit(f"{name} of {attempt}: {steps} steps were logged, {len(points)} are stored")
            if not np.array_equal(points.value, values.get(name, expected * 1.0)):
                raise SystemExit(f"{name} of {attempt}: a value was changed")
    finally:
        database.close()


if __name__ == "__main__":
    alone(measure, full=6_000_000, quick=600_000, doc=__doc__, what="points")
