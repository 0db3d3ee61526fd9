"""What a step costs: `for step in run.steps()` + `run.log(three scalars)`, beside a bare list append.

    python bench/step_cost.py [--steps 200000] [--out FILE]

Attached to a real channel directory, as under a runner. Also: bytes per point, and how much of what was logged can
be read back after SIGKILL right behind the last call.
"""

import argparse
import itertools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

from whistlestop.channel.control import Control
from whistlestop.channel.journal import JournalReader
from whistlestop.channel.layout import CONTROL_FILE, ENV_CHANNEL, ENV_CHECKPOINTS, Kind, metrics_prefix

KILLED_CHILD = """
import os, signal, whistlestop
with whistlestop.run() as run:
    for step in run.steps({steps}):
        run.log(loss=1.0, lr=0.1, grad_norm=2.0)
        if step.last:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--steps", type=int, default=200_000)
    arguments.add_argument("--out", type=Path)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory) / "measured", chosen.steps)
        figures |= kill(Path(directory) / "killed", min(chosen.steps, 20_000))
    figures |= {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
    for name, value in figures.items():
        print(f"{name:34} {value:>12,.1f}" if isinstance(value, float) else f"{name:34} {value:>12}")
    if chosen.out:
        chosen.out.write_text(json.dumps(figures, indent=1) + "\n")


def measure(root: Path, steps: int) -> dict[str, float | int]:
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
    return {
        "steps": len(ours),
        "steps()+log(3) median ns": float(statistics.median(ours)),
        "steps()+log(3) p99 ns": float(statistics.quantiles(ours, n=100)[98]),
        "list append median ns": float(statistics.median(bare)),
        "list append p99 ns": float(statistics.quantiles(bare, n=100)[98]),
        "bytes per point of 3 values": size / points,
    }


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


def kill(root: Path, steps: int) -> dict[str, int]:
    channel = make_channel(root)
    environment = os.environ | {ENV_CHANNEL: str(channel), ENV_CHECKPOINTS: str(root / "checkpoints")}
    child = subprocess.run([sys.executable, "-c", KILLED_CHILD.format(steps=steps)], env=environment, check=False)
    if child.returncode != -signal.SIGKILL:
        raise SystemExit(f"the child ended with {child.returncode} instead of SIGKILL")
    points, _ = count_points(channel)
    return {"logged before SIGKILL": steps, "read back after SIGKILL": points, "lost": steps - points}


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
    main()
