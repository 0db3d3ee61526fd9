"""The trackers that charts.py compares: how each is filled with one long series, and the call its own page makes for
the chart. In process, without HTTP, to their advantage; as `python bench/chart_peers.py NAME DIRECTORY POINTS`.
"""

import importlib.metadata
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 10
SPIKES = 10
HEIGHT = 100.0  # of the first spike; each next one is one higher
Read = Callable[[], tuple[bytes, list[float]]]  # the answer's body, and the values in it


def value(step: int, points: int) -> float:
    """A slow curve with ten one-step spikes, none of them at a round place."""
    every = points // SPIKES
    if step % every == every // 3 + 1:
        return HEIGHT + step // every
    return 1.0 / (1.0 + step * 10.0 / points) + 0.01 * ((step * 7919) % 1000) / 1000


def tensorboard(directory: Path, points: int) -> tuple[str, Read]:
    """Its default reservoir of a thousand points a series, as loaded by its own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    with (directory / "events.out.tfevents.1.bench").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
        for step in range(points):
            summary = Summary(value=[Summary.Value(tag="loss", simple_value=value(step, points))])
            writer.write(Event(wall_time=1.0 + step, step=step, summary=summary).SerializeToString())
        writer.flush()
    events = EventAccumulator(str(directory), size_guidance={"scalars": 1000})
    events.Reload()

    def read() -> tuple[bytes, list[float]]:
        found = events.Scalars("loss")
        return json.dumps([[each.wall_time, each.step, each.value] for each in found]).encode(), [
            each.value for each in found
        ]

    return "tensorboard", read


def mlflow(directory: Path, points: int) -> tuple[str, Read]:
    """`metrics/get-history-bulk-interval` with the 320 points that its page asks for."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow.entities import Metric
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(f"sqlite:///{directory / 'mlflow.db'}", str(directory / "artifacts"))
    run = store.create_run("0", "bench", 0, [], "bench").info.run_id
    for start in range(0, points, 1000):
        steps = range(start, min(points, start + 1000))
        store.log_batch(run, [Metric("loss", value(step, points), step, step) for step in steps], [], [])

    def read() -> tuple[bytes, list[float]]:
        found = store.get_metric_history_bulk_interval([run], "loss", 320, None, None)
        return json.dumps([each.to_dict() for each in found]).encode(), [each.value for each in found]

    return "mlflow-skinny", read


def aim(directory: Path, points: int) -> tuple[str, Read]:
    """The 200 samples of a series that its page asks for."""
    import aim as package

    run = package.Run(repo=str(directory), system_tracking_interval=None, capture_terminal_logs=False)
    for step in range(points):
        run.track(value(step, points), name="loss", step=step)

    def read() -> tuple[bytes, list[float]]:
        [metric] = list(run.metrics())
        steps, (values,) = metric.data.view("val").sample(200).items_list()
        return json.dumps({"steps": list(map(int, steps)), "values": list(map(float, values))}).encode(), list(values)

    return "aim", read


def trackio(directory: Path, points: int) -> tuple[str, Read]:
    """`get_logs`, which its page asks for every second, with its own limit of 3,000 points."""
    os.environ["TRACKIO_DIR"] = str(directory)
    from trackio.sqlite_storage import SQLiteStorage

    for start in range(0, points, 10_000):
        steps = list(range(start, min(points, start + 10_000)))
        stamps = [f"2026-01-01T{step // 36_000_000:02}:00:00.{step % 36_000_000:08}" for step in steps]
        SQLiteStorage.bulk_log("bench", "bench", [{"loss": value(step, points)} for step in steps], steps, stamps)

    rounds = itertools.count()

    def read() -> tuple[bytes, list[float]]:
        found = SQLiteStorage.get_logs("bench", "bench", max_points=3000 - next(rounds))  # never the same: no cache
        return json.dumps(found, default=str).encode(), [each["loss"] for each in found]

    return "trackio", read


# Of the points: what takes too long to load is measured with fewer, and the record says how many.
PEERS: dict[str, tuple[Callable[[Path, int], tuple[str, Read]], float]] = {
    "TensorBoard": (tensorboard, 1.0),
    "Trackio": (trackio, 1.0),
    "MLflow": (mlflow, 0.3),
    "Aim": (aim, 0.1),
}


def main() -> None:
    name, directory, points = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    began = time.monotonic()
    package, read = PEERS[name][0](directory, points)
    loaded = time.monotonic() - began
    times = []
    for _ in range(ROUNDS):
        before = time.monotonic()
        body, values = read()
        times.append(time.monotonic() - before)
    seen = sum(any(abs(each - HEIGHT - spike) < 0.5 for each in values) for spike in range(SPIKES))
    version = f"{package} {importlib.metadata.version(package)}"
    answer = {"version": version, "loaded": loaded, "times": times, "bytes": len(body), "shown": len(values)}
    print(json.dumps({**answer, "seen": seen}), file=answers, flush=True)


if __name__ == "__main__":
    main()
