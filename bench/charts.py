"""One chart of one long series: time and bytes of the answer, and how many of ten one-step spikes it shows.

    python bench/charts.py [--quick] [--points 1000000] [--out FILE]

Ours over HTTP from a real server, at a thousandth of the points, at all of them, and at ten times as many; the points
are put into its store directly, how they get there is what ingest.py measures. Beside it the call that the page of
TensorBoard, MLflow, Aim and Trackio makes, in process and so without HTTP, each in a process of its own; those that
take too long to load have fewer points, and the record says how many. A peer that is not installed is named.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import numpy as np
from chart_peers import HEIGHT, PEERS, SPIKES
from log_peers import environment
from measuring import Result, alone, percentile, scratch, scratch_server, spec_of, submit

from whistlestop.client import Client
from whistlestop.server.store import metrics
from whistlestop.server.store.database import Database
from whistlestop.testing.server import ServerProcess

WIDTH = 600
ROUNDS = 100
AIM_MS = 10.0
AIM_BYTES = 40_000
PEER_SECONDS = 400.0
AT_ONCE = 500_000


def measure(points: int) -> Result:
    result = Result()
    with scratch() as directory, scratch_server() as server, server.client() as client:
        for count in (points // 1000, points, points * 10):
            ours(result, server, client, directory, count)
    for name in PEERS:
        peer(result, name, points)
    result.notes["ours"] = f"GET /runs/RUN/charts?name=loss&width={WIDTH} over a connection that is kept"
    return result


def ours(result: Result, server: ServerProcess, client: Client, directory: Path, count: int) -> None:
    run = submit(client, spec_of({"name": "main", "command": ["true"]}, name="charts"), directory)
    server.wait(run.id)
    fill(server, client.run(run.id).phases[0].attempts[0].id, count)
    with httpx2.Client(headers={"Authorization": f"Bearer {server.token}"}, timeout=60) as http:
        for what, window in (
            ("all of it", (0, count - 1)),
            ("a hundredth of it", (count // 2, count // 2 + count // 100)),
        ):
            query = {"name": "loss", "width": WIDTH, "from": window[0], "to": window[1]}
            times, body = [], b""
            for _ in range(ROUNDS):
                before = time.monotonic()
                body = http.get(f"{server.url}/api/v1/runs/{run.id}/charts", params=query).raise_for_status().content
                times.append(time.monotonic() - before)
            name = f"ours, {count:,} points, {what}"
            result.add_times(name, times, p50=AIM_MS)
            result.add(f"{name}: bytes", len(body), "bytes", aim=AIM_BYTES)
            if window[0] == 0:
                [line] = json.loads(body)["charts"][0]["lines"]
                shown = line["high"] or line["last"]
                seen = sum(HEIGHT + spike in shown for spike in range(SPIKES))
                result.add(f"{name}: of {SPIKES} spikes hidden", SPIKES - seen, "spikes", aim=0)
                result.notes[name] = f"{len(line['x'])} buckets"


def fill(server: ServerProcess, attempt: str, count: int) -> None:
    database = Database(f"sqlite:///{server.data / 'whistlestop.db'}")
    try:
        for start in range(0, count, AT_ONCE):
            steps = np.arange(start, min(count, start + AT_ONCE))
            values = curve(steps, count)
            with database.write(durable=False) as connection:
                new = metrics.Points(steps + 1, steps, 1_700_000_000.0 + steps * 0.01, values)
                metrics.append(connection, attempt, {"loss": new})
    finally:
        database.close()


def curve(steps: "np.ndarray", count: int) -> "np.ndarray":
    """As chart_peers.value has it."""
    every = count // SPIKES
    plain = 1.0 / (1.0 + steps * 10.0 / count) + 0.01 * ((steps * 7919) % 1000) / 1000
    return np.where(steps % every == every // 3 + 1, HEIGHT + steps // every, plain)


def peer(result: Result, name: str, points: int) -> None:
    count = int(points * PEERS[name][1])
    words = [sys.executable, str(Path(__file__).with_name("chart_peers.py")), name]
    with scratch() as directory:
        try:
            done = subprocess.run(
                [*words, str(directory), str(count)],
                env=environment(directory),
                capture_output=True,
                timeout=PEER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            result.notes[name] = f"NOT measured: {count:,} points took longer than {PEER_SECONDS:g} s"
            return
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        result.notes[name] = f"NOT measured: {said[-1] if said else 'it said nothing'}"
        return
    answer = json.loads(done.stdout.splitlines()[-1])
    result.raw[f"{name} ms"] = [each * 1000 for each in answer["times"]]
    result.add(f"{name}, {count:,} points: p50", percentile(answer["times"], 50) * 1000, "ms")
    result.add(f"{name}, {count:,} points: bytes", answer["bytes"], "bytes")
    result.add(f"{name}, {count:,} points: of {SPIKES} spikes hidden", SPIKES - answer["seen"], "spikes")
    loaded = f"{answer['loaded']:.0f} s to load, {answer['shown']:,} values in the answer"
    result.notes[name] = f"{answer['version']}, in process, without HTTP; {loaded}"


if __name__ == "__main__":
    alone(measure, full=1_000_000, quick=20_000, doc=__doc__, what="points")
