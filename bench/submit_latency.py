"""From a submit to the first line of its program.

    python bench/submit_latency.py [--quick] [--rounds 100] [--out FILE]

A free slot, one run at a time, run in place: from just before the POST until `python -S -c` writes down the time as
the first thing it does. The floor is the same command with a bare Popen, in the same minutes.
"""

import random
import subprocess
import sys
import time
from pathlib import Path

from measuring import Result, alone, numbers_in, scratch, scratch_server, spec_of
from measuring import submit as post

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess

FIRST_LINE = "import time; now = time.monotonic(); import sys; print(now, file=open(sys.argv[1], 'w'))"


def measure(rounds: int) -> Result:
    started, answered, bare = [], [], []
    with scratch() as directory, scratch_server() as server, server.client() as client:
        for number in range(rounds):
            bare.append(start_bare(directory / f"bare-{number}"))
            asked, told, began = submit(server, client, directory, f"run-{number}")
            answered.append(told - asked)
            started.append(began - asked)
            time.sleep(random.uniform(0.05, 0.15))
    result = Result()
    result.add_times("submit → the program's first line", started)
    result.add_times("submit → answer", answered)
    result.add_times("floor: Popen → the program's first line", bare)
    result.add_ratio("submit → the program's first line", started, bare)
    return result


def submit(server: ServerProcess, client: Client, directory: Path, name: str) -> tuple[float, float, float]:
    path = directory / name
    spec = spec_of({"name": "main", "kind": "task", "command": command(path)}, name=name)
    asked = time.monotonic()
    run = post(client, spec, directory)
    told = time.monotonic()
    [began] = numbers_in(path)
    if (ended := server.wait(run.id)).status != "completed":
        raise SystemExit(f"run #{run.number} is {ended.status}: {ended.reason}")
    return asked, told, began


def start_bare(path: Path) -> float:
    asked = time.monotonic()
    with subprocess.Popen(command(path), stdin=subprocess.DEVNULL):
        [began] = numbers_in(path)
    return began - asked


def command(path: Path) -> list[str]:
    return [sys.executable, "-S", "-c", FIRST_LINE, str(path)]


if __name__ == "__main__":
    alone(measure, full=100, quick=10, doc=__doc__)
