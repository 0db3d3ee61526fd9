"""From the loss of its capacity until a run trains again, at the step at which it was.

    python bench/preemption.py [--quick] [--rounds 30] [--out FILE]

One run with 8 MB of state and steps of 2 ms, on a server with one slot, loses its capacity again and again: the program
saves, leaves, is proven gone, goes through the queue and is started from its checkpoint. Measured from just before the
request until the first step of the next attempt is done. Beside every loss, in the same minute: the same program
without a server gets SIGTERM, saves, leaves, and is started again at once by whoever waits for its end.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from measuring import Result, alone, scratch, scratch_server

NOTICE = 20.0  # seconds

PROGRAM = """
import os, time
import whistlestop

mark = f"{os.environ['BENCH_MARK']}.{time.monotonic_ns()}"

def write(name, *numbers):
    with open(f"{mark}.part", "w") as file:
        file.write(" ".join(map(repr, numbers)))
    os.rename(f"{mark}.part", f"{mark}.{name}")

with whistlestop.run("bench") as run:
    state = {"steps": 0, "weights": bytearray(os.urandom(8 << 20))}
    run.track(state=state)
    first, done = True, (0.0, 0)
    try:
        for step in run.steps():
            time.sleep(0.002)
            state["steps"] += 1
            done = time.monotonic(), int(step)
            if first:
                write("first", *done)
                first = False
    finally:  # it leaves by an exception: what stands behind the loop is not reached
        write("last", *done)
"""


class Marks:
    """What the processes of one training have left, in their order."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def wait(self, name: str, count: int) -> tuple[float, int]:
        """Time and step of the newest one, once there are so many."""
        deadline = time.monotonic() + 60
        while len(found := sorted(self._path.parent.glob(f"{self._path.name}.*.{name}"))) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} number {count} of {self._path.name} was not written within 60 s")
            time.sleep(0.003)
        at, step = found[-1].read_text().split()
        return float(at), int(step)


def measure(rounds: int) -> Result:
    times: dict[str, list[float]] = {"left": [], "again": [], "bare left": [], "bare again": []}
    redone: list[int] = []
    with scratch() as directory, scratch_server() as server, server.client() as client:
        (directory / "program.py").write_text(PROGRAM)
        ours, bare = Marks(directory / "ours"), Marks(directory / "bare")
        phase = {
            "name": "train",
            "command": [sys.executable, "program.py"],
            "env": {"BENCH_MARK": str(directory / "ours")},
        }
        run = server.submit(phase, name="preempted", directory=directory)
        ours.wait("first", 1)
        with restarted(directory) as restart:
            bare.wait("first", 1)
            for number in range(1, rounds + 1):
                time.sleep(
                    random.uniform(0.3, 0.6)
                )  # start-up is over, and no moment of the runner's tick is preferred
                asked = time.monotonic()
                client.preempt(run.id, notice_s=NOTICE)
                left, last = ours.wait("last", number)
                again, step = ours.wait("first", number + 1)
                times["left"].append(left - asked)
                times["again"].append(again - asked)
                redone.append(last + 1 - step)
                time.sleep(random.uniform(0.1, 0.3))
                asked = time.monotonic()
                restart()
                times["bare left"].append(bare.wait("last", number)[0] - asked)
                times["bare again"].append(bare.wait("first", number + 1)[0] - asked)
        client.kill(run.id)
        server.wait(run.id)
    result = Result()
    result.add_times("preempted → its last step is done", times["left"])
    result.add_times("preempted → trains again", times["again"])
    result.add_times("floor: SIGTERM → its last step is done", times["bare left"])
    result.add_times("floor: SIGTERM → restarted, trains again", times["bare again"])
    result.add_ratio("preempted → trains again", times["again"], times["bare again"])
    result.add("steps that were done twice, the most", max(redone), "steps", aim=1)
    result.raw["steps done twice"] = [float(each) for each in redone]
    return result


@contextlib.contextmanager
def restarted(directory: Path) -> Iterator["Restart"]:
    place = directory / "bare-work"
    place.mkdir()
    restart = Restart([sys.executable, str(directory / "program.py")], place, str(directory / "bare"))
    try:
        yield restart
    finally:
        restart.end()


class Restart:
    """The program alone: ended by SIGTERM, and started again the moment it is gone."""

    def __init__(self, command: list[str], place: Path, mark: str) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WHISTLE_")}
        self._command, self._place, self._env = command, place, {**clean, "BENCH_MARK": mark}
        self._process = self._start()

    def __call__(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._process = self._start()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self._command, cwd=self._place, env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


if __name__ == "__main__":
    alone(measure, full=30, quick=4, doc=__doc__)
