"""From a kill request to a tree that is gone, and to the next queued run's first line.

    python bench/kill_latency.py [--quick] [--rounds 200] [--out FILE]

One slot, and always runs in the queue. The one that runs is a training (SDK, 1 ms steps) with 8 forked workers; it is
killed at a random moment. Who is gone is not asked of Whistlestop: pidfds of all nine processes are opened before the
request and polled. The next run writes the time as the first thing it does. The floor is the same program without
Whistlestop: SIGKILL to its process group, and then the next one started with a bare Popen.
"""

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from measuring import Result, alone, numbers_in, scratch, scratch_server

from whistlestop.client import Client
from whistlestop.engines.attempt_files import read_began
from whistlestop.testing.server import ServerProcess

WORKERS = 8
GONE_P99, NEXT_P99 = 500.0, 1000.0  # ms
AHEAD = 2  # runs that wait in the queue

PROGRAM = f"""
import time
began = time.monotonic()
import os

mark = os.environ["BENCH_MARK"]

def write(name, *numbers):
    with open(f"{{mark}}.{{name}}", "w") as file:
        file.write(" ".join(map(repr, numbers)) + "\\n")

write("began", began)
import whistlestop

with whistlestop.run() as run:
    for step in run.steps():
        if step == 0:
            pids = [os.getpid()]
            for _ in range({WORKERS}):
                pid = os.fork()
                while pid == 0:
                    time.sleep(3600)
                pids.append(pid)
        if step == 20:
            write("tree", *pids)
        time.sleep(0.001)
"""


class Witness:
    """Polls pidfds: a pidfd becomes readable when its process has ended, whoever reaps it, and is never recycled."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._fds = [os.pidfd_open(pid) for pid in pids]
        self._poll = select.poll()
        for fd in self._fds:
            self._poll.register(fd, select.POLLIN)
        if ended := self._poll.poll(0):
            raise SystemExit(f"{len(ended)} of the processes {pids} had ended before the kill")
        self._gone_at: float | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def gone_at(self, *, within: float = 30.0) -> float:
        self._thread.join(within)
        if self._gone_at is None:
            raise SystemExit(f"the tree was not gone {within:g} s after the kill")
        return self._gone_at

    def _watch(self) -> None:
        left = len(self._fds)
        while left:
            for fd, _ in self._poll.poll():
                self._poll.unregister(fd)
                left -= 1
        self._gone_at = time.monotonic()
        for fd in self._fds:
            os.close(fd)


def measure(rounds: int) -> Result:
    result = Result()
    with scratch() as directory:
        (directory / "program.py").write_text(PROGRAM)
        ours = kill_by_request(directory, rounds, result)
        floor = kill_bare(directory, rounds)
    result.add_times("kill request → tree of 9 gone", ours["gone"], p99=GONE_P99)
    result.add_times("kill request → next run's first line", ours["next"], p99=NEXT_P99)
    result.add_times("kill request → answer", ours["answered"])
    result.add_times("floor: killpg → tree of 9 gone", floor["gone"])
    result.add_times("floor: killpg → gone → Popen → first line", floor["next"])
    result.add_ratio("kill request → tree of 9 gone", ours["gone"], floor["gone"])
    result.add_ratio("kill request → next run's first line", ours["next"], floor["next"])
    return result


def kill_by_request(directory: Path, rounds: int, result: Result) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"gone": [], "next": [], "answered": []}
    slowest, timeline = 0.0, ""
    with scratch_server() as server, server.client() as client:
        runs = [submit(server, directory, number) for number in range(1 + AHEAD)]
        for number in range(rounds):
            pids = [int(pid) for pid in numbers_in(directory / f"run-{number}.tree")]
            result.notes.setdefault("containment", containment(server, client, runs[number]))
            time.sleep(random.uniform(0.2, 0.5))
            witness = Witness(pids)
            asked, clock = time.monotonic(), time.time()
            client.kill(runs[number])
            times["answered"].append(time.monotonic() - asked)
            times["gone"].append(witness.gone_at() - asked)
            times["next"].append(numbers_in(directory / f"run-{number + 1}.began")[0] - asked)
            runs.append(submit(server, directory, number + 1 + AHEAD))
            if times["next"][-1] > slowest:
                slowest = times["next"][-1]
                timeline = told(client, runs[number], runs[number + 1], clock)
    result.notes["the slowest round, ms after the request"] = timeline
    return times


def submit(server: ServerProcess, directory: Path, number: int) -> str:
    env = {"BENCH_MARK": str(directory / f"run-{number}")}
    phase = {"name": "main", "command": [sys.executable, "program.py"], "env": env}
    return server.submit(phase, name=f"run-{number}", directory=directory).id


def told(client: Client, killed: str, following: str, asked: float) -> str:
    """What the server wrote down about this kill, by its own clock."""
    lines = [
        (datetime.fromisoformat(event.at).timestamp() - asked, f"{whose} {event.kind}")
        for whose, run in (("killed:", killed), ("next:", following))
        for event in client.events(run)
    ]
    return "; ".join(f"{at * 1000:.0f} {what}" for at, what in sorted(lines) if at > -0.01)


def containment(server: ServerProcess, client: Client, run: str) -> str:
    attempt = client.run(run).phases[0].attempts[0].id
    began = read_began(server.data / "attempts" / attempt)
    return "not told" if began is None else ("cgroup" if began.group else "walk of /proc (no cgroup may be made here)")


def kill_bare(directory: Path, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"gone": [], "next": []}
    program = start(directory, 0)
    try:
        for number in range(rounds):
            pids = [int(pid) for pid in numbers_in(directory / f"bare-{number}.tree")]
            time.sleep(random.uniform(0.05, 0.2))
            witness = Witness(pids)
            asked = time.monotonic()
            os.killpg(program.pid, signal.SIGKILL)
            times["gone"].append(witness.gone_at() - asked)
            ended, program = program, start(directory, number + 1)
            ended.wait()
            times["next"].append(numbers_in(directory / f"bare-{number + 1}.began")[0] - asked)
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    return times


def start(directory: Path, number: int) -> subprocess.Popen[bytes]:
    mark = directory / f"bare-{number}"
    mark.mkdir()
    return subprocess.Popen(
        [sys.executable, str(directory / "program.py")],
        env={**os.environ, "BENCH_MARK": str(mark)},
        cwd=mark,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


if __name__ == "__main__":
    alone(measure, full=200, quick=10, doc=__doc__)
