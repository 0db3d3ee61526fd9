"""What a step costs: `for step in run.steps()` + `run.log(three scalars)`, beside a bare list append.

    python bench/step_cost.py [--quick] [--steps 200000] [--out FILE]

Attached to a real channel directory, as under a runner. Also: bytes per point, and how much of what was logged can
be read back after SIGKILL right behind the last call.
"""

import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from measuring import Result, alone, percentile, scratch

from whistlestop.channel.control import Control
from whistlestop.channel.journal import JournalReader
from whistlestop.channel.layout import CONTROL_FILE, ENV_CHANNEL, ENV_CHECKPOINTS, Kind, metrics_prefix

MEDIAN = 2000.0  # ns

KILLED_CHILD = """
import os, signal, whistlestop
with whistlestop.run() as run:
    for step in run.steps({steps}):
        run.log(loss=1.0, lr=0.1, grad_norm=2.0)
        if step.last:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def figures(steps: int) -> Result:
    result = Result()
    with scratch() as directory:
        ours, bare, size = measure(directory / "measured", steps)
        logged, found = kill(directory / "killed", min(steps, 20_000))
    for name, times, aim in (("steps() + log(3 scalars)", ours, MEDIAN), ("floor: list append", bare, None)):
        result.add(f"{name}: median", float(statistics.median(times)), "ns", aim=aim)
        result.add(f"{name}: p99", percentile(times, 99), "ns")
        result.notes[name] = f"{len(times):,} steps; nanoseconds at each tenth: {tenths(times)}"
    result.add(
        "steps() + log(3 scalars): median, times its floor", statistics.median(ours) / statistics.median(bare), "x"
    )
    result.add("size of a point of 3 values", size, "bytes")
    result.add(f"lost of {logged:,} steps, SIGKILL right behind the last call", logged - found, "steps", aim=0)
    return result


def tenths(times: Sequence[int]) -> list[int]:
    """Instead of every single one: there are too many to keep."""
    return [round(percentile(times, tenth * 10)) for tenth in range(1, 10)]


def measure(root: Path, steps: int) -> tuple[array, array, float]:
    """Rounds of both loops in turn: whatever else the machine does hits both alike."""
    import whistlestop

    channel = make_channel(root)
    os.environ |= {ENV_CHANNEL: str(channel), ENV_CHECKPOINTS: str(root / "checkpoints")}
    ours, bare, rounds = array("q"), array("q"), 10
    with whistlestop.run() as run:
        loop = run.steps(steps)
        for _ in range(rounds):
            ours.extend(time_ours(run, loop, steps // rounds))
            bare.extend(time_bare(steps // rounds))
        for _ in loop:
            pass
    points, size = count_points(channel)
    return ours, bare, size / points


def time_ours(run: object, loop: object, count: int) -> array:
    """Both loops pay for one clock reading a step, which is in the figures."""
    clock, stamps, left = time.perf_counter_ns, array("q", bytes(8 * (count + 1))), count
    log = run.log
    for _ in loop:
        stamps[count - left] = clock()
        log(loss=0.5, lr=0.1, grad_norm=2.0)
        left -= 1
        if not left:
            break
    return differences(stamps)


def time_bare(count: int) -> array:
    clock, stamps, left = time.perf_counter_ns, array("q", bytes(8 * (count + 1))), count
    values: list[tuple[float, float, float]] = []
    for _ in range(count):
        stamps[count - left] = clock()
        values.append((0.5, 0.1, 2.0))
        left -= 1
        if not left:
            break
    return differences(stamps)


def differences(stamps: array) -> array:
    return array("q", (after - before for before, after in itertools.pairwise(stamps[:-1])))


def kill(root: Path, steps: int) -> tuple[int, int]:
    """Steps logged, and steps that can be read back."""
    channel = make_channel(root)
    environment = os.environ | {ENV_CHANNEL: str(channel), ENV_CHECKPOINTS: str(root / "checkpoints")}
    child = subprocess.run([sys.executable, "-c", KILLED_CHILD.format(steps=steps)], env=environment, check=False)
    if child.returncode != -signal.SIGKILL:
        raise SystemExit(f"the child ended with {child.returncode} instead of SIGKILL")
    points, _ = count_points(channel)
    return steps, points


def make_channel(root: Path) -> Path:
    channel = root / "channel"
    channel.mkdir(parents=True)
    Control.create(channel / CONTROL_FILE).close()
    return channel


def count_points(channel: Path) -> tuple[int, int]:
    reader = JournalReader(channel, metrics_prefix(0))
    points = sum(record.kind == Kind.POINTS for record in reader.records())
    size = reader.end()
    reader.close()
    return points, size


if __name__ == "__main__":
    alone(figures, full=200_000, quick=20_000, doc=__doc__, what="steps")
