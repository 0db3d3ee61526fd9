"""The loggers that log_peers.py compares: how each is opened, called once per step, and read back after a crash.

Each runs as a process: `python bench/peers.py log NAME DIRECTORY` obeys requests on its standard input, `… count …`
prints how many points can be read. Nothing of Whistlestop itself imports any of them.
"""

import itertools
import json
import os
import signal
import sqlite3
import struct
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

VALUES = {"loss": 0.5, "lr": 0.1, "grad_norm": 2.0}
Log = Callable[[int], object]  # one step
Work = Callable[[int, array], None]  # from this step on, one for every place in the array, which gets the times


@dataclass(frozen=True)
class Peer:
    """`open(directory)` gives a version and what logs a round; `count(directory)` the points that are there."""

    open: Callable[[Path], tuple[str, Work]]
    count: Callable[[Path], int]
    share: float = 1.0  # of the steps: slow ones would take hours

    def steps(self, steps: int) -> int:
        return max(100, round(steps * self.share))


def each(log: Log) -> Work:
    """One reading of the clock is in every step."""

    def work(first: int, stamps: array) -> None:
        clock = time.perf_counter_ns
        stamps[0] = clock()
        for number in range(1, len(stamps)):
            log(first + number - 1)
            stamps[number] = clock()

    return work


# --- floors and ours ---------------------------------------------------------------------------------------------


def open_list(directory: Path) -> tuple[str, Work]:
    values: list[tuple[float, float, float]] = []
    append = values.append
    return "in memory only", each(lambda step: append((0.5, 0.1, 2.0)))


def open_json(directory: Path) -> tuple[str, Work]:
    file = os.open(directory / "lines", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    dumps, write = json.dumps, os.write

    def log(step: int) -> None:
        write(file, dumps({"step": step, "loss": 0.5, "lr": 0.1, "grad_norm": 2.0}).encode() + b"\n")

    return "json.dumps and os.write", each(log)


def count_json(directory: Path) -> int:
    return 3 * len((directory / "lines").read_bytes().splitlines())


def open_ours(directory: Path) -> tuple[str, Work]:
    """Attached to a channel directory, as under a runner. `steps()` is in the figure."""
    from whistlestop.channel.control import Control
    from whistlestop.channel.layout import CONTROL_FILE, ENV_CHANNEL, ENV_CHECKPOINTS

    channel = directory / "channel"
    channel.mkdir()
    Control.create(channel / CONTROL_FILE).close()
    os.environ |= {ENV_CHANNEL: str(channel), ENV_CHECKPOINTS: str(directory / "checkpoints")}
    import whistlestop

    run = whistlestop.run()
    loop = run.steps()

    def work(first: int, stamps: array) -> None:
        """The loop that people write, so that it pays for `steps()` and not for a call of ours."""
        clock, log, last = time.perf_counter_ns, run.log, len(stamps) - 1
        stamps[0] = clock()
        for number, _ in enumerate(loop, 1):
            log(loss=0.5, lr=0.1, grad_norm=2.0)
            stamps[number] = clock()
            if number == last:
                return

    return f"whistlestop {whistlestop.__version__}", work


def count_ours(directory: Path) -> int:
    from whistlestop.channel.journal import JournalReader
    from whistlestop.channel.layout import Kind, metrics_prefix

    reader = JournalReader(directory / "channel", metrics_prefix(0))
    found = sum(len(record.point()[2]) for record in reader.records() if record.kind == Kind.POINTS)
    reader.close()
    return found


# --- peers -----------------------------------------------------------------------------------------------------------


def open_tensorboard(directory: Path) -> tuple[str, Work]:
    import torch
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(directory / "events"))

    def log(step: int) -> None:
        writer.add_scalar("loss", 0.5, step)
        writer.add_scalar("lr", 0.1, step)
        writer.add_scalar("grad_norm", 2.0, step)

    return f"torch {torch.__version__}, three add_scalar() a step", each(log)


def count_tensorboard(directory: Path) -> int:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory / "events"), size_guidance={"scalars": 0})
    events.Reload()
    return sum(len(events.Scalars(tag)) for tag in events.Tags()["scalars"])


def open_wandb(directory: Path) -> tuple[str, Work]:
    import wandb

    run = wandb.init(project="bench", settings=wandb.Settings(silent=True, console="off", x_disable_stats=True))
    return f"wandb {wandb.__version__}, offline", each(lambda step: run.log(VALUES, step=step))


def count_wandb(directory: Path) -> int:
    from wandb.proto.wandb_internal_pb2 import Record

    found = 0
    for path in directory.glob("wandb/offline-run-*/*.wandb"):
        for body in wandb_records(path.read_bytes()):
            items = Record.FromString(body).history.item
            found += sum((item.key or "/".join(item.nested_key)) in VALUES for item in items)
    return found


def wandb_records(data: bytes) -> Iterator[bytes]:
    """LevelDB's log format behind a header of 7 bytes: blocks of 32 KiB, records cut at their ends."""
    position, whole = 7, b""
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, position)
        position += 7 + size
        if kind == 0 or position > len(data):
            return
        whole += data[position - size : position]
        if kind in (1, 4):  # full, last
            yield whole
            whole = b""


def open_mlflow(directory: Path) -> tuple[str, Work]:
    import mlflow

    mlflow.set_tracking_uri(mlflow_store(directory))
    mlflow.start_run()
    log_metrics = mlflow.log_metrics
    return f"mlflow {mlflow.__version__}, SQLite, synchronous", each(
        lambda step: log_metrics(VALUES, step, synchronous=True)
    )


def count_mlflow(directory: Path) -> int:
    with sqlite3.connect(directory / "mlflow.db") as connection:
        return int(connection.execute("SELECT count(*) FROM metrics").fetchone()[0])


def mlflow_store(directory: Path) -> str:
    return f"sqlite:///{directory / 'mlflow.db'}"


def open_mlflow_files(directory: Path) -> tuple[str, Work]:
    """MLflow has retired it, but it is MLflow's quickest."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    mlflow.set_tracking_uri((directory / "mlruns").as_uri())
    mlflow.start_run()
    log_metrics = mlflow.log_metrics
    return f"mlflow {mlflow.__version__}, files, synchronous", each(
        lambda step: log_metrics(VALUES, step, synchronous=True)
    )


def count_mlflow_files(directory: Path) -> int:
    return sum(
        len(path.read_bytes().splitlines()) for path in directory.glob("mlruns/*/*/metrics/*") if path.name in VALUES
    )


def open_aim(directory: Path) -> tuple[str, Work]:
    import importlib.metadata

    import aim

    run = aim.Run(repo=str(directory), system_tracking_interval=None, capture_terminal_logs=False)
    return f"aim {importlib.metadata.version('aim')}, local", each(lambda step: run.track(VALUES, step=step))


def count_aim(directory: Path) -> int:
    """Opened for writing: only then what is in its write-ahead log is read after a crash."""
    import aim

    found = 0
    for each in os.listdir(directory / ".aim" / "meta" / "chunks"):
        run = aim.Run(each, repo=str(directory), system_tracking_interval=None, capture_terminal_logs=False)
        found += sum(len(metric.values.sparse_list()[0]) for metric in run.metrics())
        run.close()
    return found


def open_trackio(directory: Path) -> tuple[str, Work]:
    import trackio

    run = trackio.init(project="bench", name="bench", auto_log_gpu=False, auto_log_cpu=False)
    return f"trackio {trackio.__version__}, local", each(lambda step: run.log(VALUES, step=step))


def count_trackio(directory: Path) -> int:
    found = 0
    for path in (directory / "trackio").glob("*.db"):
        with sqlite3.connect(path) as connection:
            for (text,) in connection.execute("SELECT metrics FROM metrics"):
                found += sum(name in VALUES for name in json.loads(text))
    return found


PEERS = {
    "floor: list append": Peer(open_list, lambda directory: 0),
    "floor: one line of JSON, write(2)": Peer(open_json, count_json),
    "ours: steps() + log(3 scalars)": Peer(open_ours, count_ours),
    "Trackio": Peer(open_trackio, count_trackio),
    "TensorBoard": Peer(open_tensorboard, count_tensorboard),
    "W&B offline": Peer(open_wandb, count_wandb),
    "Aim": Peer(open_aim, count_aim, share=0.5),
    "MLflow, files": Peer(open_mlflow_files, count_mlflow_files, share=0.1),
    "MLflow, SQLite": Peer(open_mlflow, count_mlflow, share=0.02),
}


# --- the process -----------------------------------------------------------------------------------------------------


def obey(peer: Peer, directory: Path) -> None:
    """Answers go to the real standard output; what a peer prints goes elsewhere."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    os.chdir(directory)
    version, work = peer.open(directory)
    print(json.dumps(version), file=answers)
    step = 0
    for line in sys.stdin:
        request = json.loads(line)
        stamps = array("q", bytes(8 * (request["steps"] + 1)))
        work(step, stamps)
        if request["times"] is None:
            os.kill(os.getpid(), signal.SIGKILL)
        step += request["steps"]
        times = array("q", (after - before for before, after in itertools.pairwise(stamps)))
        Path(request["times"]).write_bytes(times.tobytes())
        print(json.dumps(step), file=answers)


def main() -> None:
    what, peer, directory = sys.argv[1], PEERS[sys.argv[2]], Path(sys.argv[3])
    if what == "log":
        obey(peer, directory)
    else:
        print(peer.count(directory))


if __name__ == "__main__":
    main()
