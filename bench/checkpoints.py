"""What a save costs: about a gigabyte of PyTorch state, beside torch.save, torch.distributed.checkpoint, Orbax and the
floor, which is a copy of the bytes.

    python bench/checkpoints.py [--quick] [--layers 28] [--out FILE]

Ours is measured in a program under a real runner and a real server, by the program itself: the time between two of its
steps. Each of the others in a process of its own, in turn, so that whatever else the machine does hits all alike. Also
what the first save costs, which for others is several times the later ones; lazy mode; a state that has not changed;
real training with and without saves; and restoring, beside a plain read.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from checkpoint_peers import PEERS
from measuring import Result, alone, scratch

from whistlestop.testing.server import ServerProcess

HERE = Path(__file__).parent
FLOOR = "memcpy"
Measured = dict[str, Any]


def figures(layers: int) -> Result:
    result = Result()
    saves, rounds = (5, 2) if layers > 10 else (3, 1)
    with scratch() as directory:
        peers = {name: [peer(name, directory / "peer", layers, saves) for _ in range(rounds)] for name in PEERS}
        with ServerProcess(directory / "server") as server:
            eager = ours(server, "eager", layers, saves)
            lazy = ours(server, "lazy", layers, saves)
            same = ours(server, "unchanged", layers, saves)
            trained = {threads: ours(server, "trained", layers, saves, threads) for threads in (1, 2)}
            restored = restoring(server, layers)
        floor = floor_of_reading(directory, eager["bytes"])
    blocked = {name: [each for run in runs for each in run["blocked"][1:]] for name, runs in peers.items()}
    first = {name: [run["blocked"][0] for run in runs] for name, runs in peers.items()}
    copy = statistics.median(blocked[FLOOR])
    result.notes["state"] = f"{eager['bytes'] / 1e6:.0f} MB; {saves} saves each, the first one apart"
    result.add("floor: copy of the bytes, warm", copy * 1000, "ms")
    add(result, "ours", eager["blocked"], copy, eager["durable"], aim=1.2)
    result.add("ours, lazy: blocked at the step", statistics.median(lazy["blocked"]) * 1000, "ms", aim=5.0)
    waits = [each for each in lazy["waited"] if each > 0]
    plain = [-each for each in lazy["waited"] if each < 0]
    late = statistics.median(waits) - statistics.median(plain)
    result.add("ours, lazy: the optimizer's step is longer by", late * 1000, "ms")
    for name in PEERS:
        if name != FLOOR:
            durable = [each for run in peers[name] for each in run["durable"][1:]]
            add(result, name, [statistics.median(first[name]), *blocked[name]], copy, durable)
    result.add("unchanged state: bytes written again", same["written"] * 100, "%", aim=5.0)
    for threads, found in trained.items():
        add_training(result, f"training, {threads} of 2 cores", found)
    result.add("restore: the parts into model and optimizer", restored, "s")
    result.add("floor: plain read of as many bytes", floor, "s")
    result.add("restore, times its floor", restored / floor, "x")
    return result


def add(
    result: Result, name: str, blocked: list[float], copy: float, durable: list[float], aim: float | None = None
) -> None:
    result.raw[f"{name}: blocked s"], result.raw[f"{name}: durable s"] = blocked, durable
    later = statistics.median(blocked[1:])
    result.add(f"{name}: blocked", later * 1000, "ms")
    result.add(f"{name}: blocked, times its floor", later / copy, "x", aim=aim)
    result.add(f"{name}: the first save, times its floor", blocked[0] / copy, "x", aim=aim)
    result.add(f"{name}: durable", statistics.median(durable), "s")


def add_training(result: Result, name: str, found: Measured) -> None:
    """A round with a save against one without, the call itself apart."""
    plain, beside = found["rounds"]["without"], found["rounds"]["with"]
    result.raw[f"{name}: rounds without a save s"], result.raw[f"{name}: rounds beside an upload s"] = plain, beside
    longer = statistics.median(beside) - statistics.median(plain)
    result.add(f"{name}: a round without a save", statistics.median(plain), "s")
    result.add(f"{name}: spread of these (max - min)", max(plain) - min(plain), "s")
    result.add(f"{name}: beside an upload it is longer by", longer, "s")
    result.add(f"{name}: run.save() itself", statistics.median(found["called"]) * 1000, "ms")


def peer(name: str, directory: Path, layers: int, saves: int) -> Measured:
    words = [sys.executable, str(HERE / "checkpoint_peers.py"), name, str(directory), str(layers), str(saves)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    subprocess.run(["rm", "-rf", str(directory)], check=True)
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
    found: Measured = json.loads(done.stdout.splitlines()[-1])
    return found


def ours(server: ServerProcess, mode: str, layers: int, saves: int, threads: int = 2) -> Measured:
    phase = {
        "name": "train",
        "command": [sys.executable, str(HERE / "saving.py")],
        "env": {"LAYERS": str(layers), "SAVES": str(saves), "MODE": mode, "THREADS": str(threads)},
        "checkpoint": {"every": "1000000 steps" if mode == "trained" else "1 epoch", "keep": 2},
    }
    run = server.submit(phase, name=mode, directory=HERE)
    view = server.wait(run.id, within=900)
    if view.status != "completed":
        raise SystemExit(f"{mode}: {view.status}: {view.reason}\n" + "\n".join(server.logs(run.id)[-20:]))
    said = [line.removeprefix("MEASURED ") for line in server.logs(run.id) if line.startswith("MEASURED ")]
    found: Measured = json.loads(said[-1])
    with server.client() as client:
        kept = client.checkpoints(run.id)
    found["durable"] = [each.upload_seconds for each in kept if each.upload_seconds is not None]
    newest = max(kept, key=lambda each: each.step)
    found["written"] = (newest.written or 0) / newest.bytes
    return found


def restoring(server: ServerProcess, layers: int) -> float:
    """A run that goes on from the checkpoint of another."""
    with server.client() as client:
        parent = next(run for run in client.all_runs() if run.name == "eager")
        run = client.continue_run(parent.id)
    view = server.wait(run.id, within=900)
    said = [line.removeprefix("MEASURED ") for line in server.logs(view.id) if line.startswith("MEASURED ")]
    if not said:
        raise SystemExit(f"restoring: {view.status}: {view.reason}\n" + "\n".join(server.logs(view.id)[-20:]))
    return float(json.loads(said[-1])["restore"])


def floor_of_reading(directory: Path, size: int) -> float:
    path = directory / "plain"
    with path.open("wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    space = bytearray(size)
    space[::4096] = b"\1" * len(space[::4096])
    began = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        file.readinto(space)
    return time.perf_counter() - began


if __name__ == "__main__":
    alone(figures, full=28, quick=3, doc=__doc__, what="layers")
