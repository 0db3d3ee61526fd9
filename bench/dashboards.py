"""Fifty open dashboards on one busy run: what they cost the training loop, the API and a stop.

    python bench/dashboards.py [--quick] [--seconds 20] [--out FILE]

A program logs ten scalars a step, a thousand steps a second, and prints. With 0 and with 50 clients, each of which
follows the run's stream as the run page does and asks for four charts once a second, for `seconds` each, in turns:
the loop's own step time, `GET /runs/{run}` every 20 ms, and at the end a stop, from the request to the loop's end.
Clients and server share this machine: with few cores the clients' own work is in the figures.
"""

import asyncio
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from measuring import Result, alone, numbers_in, percentile, scratch, scratch_server, spec_of, submit

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

CLIENTS = 50
WARM_UP = 3.0  # seconds: chunks, rollups and connections as they are in a run that is under way
TOPICS = "run,events,progress,series"
CHARTS = [("name", f"metric_{number}") for number in range(4)]

PROGRAM = """
import os, time
import whistlestop

NAMES = [f"metric_{number}" for number in range(10)]
spent = []
with whistlestop.run() as run:
    following = time.monotonic()
    for step in run.steps(10_000_000):
        began = time.perf_counter()
        run.log(**{name: float(step) for name in NAMES})
        spent.append(time.perf_counter() - began)
        if int(step) % 20 == 0:
            print("step", int(step), flush=True)
        following += 0.001
        pause = following - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        else:
            following = time.monotonic()
    ended = time.monotonic()
spent.sort()
with open(os.environ["BENCH_MARK"], "w") as file:
    print(ended, len(spent), spent[len(spent) // 2], spent[int(len(spent) * 0.99)], file=file)
"""


@dataclass
class Watched:
    """What was measured with one number of dashboards."""

    answers: list[float] = field(default_factory=list)  # GET /runs/{run}
    stop: list[float] = field(default_factory=list)
    steps: float = 0.0
    log_p50: float = 0.0
    log_p99: float = 0.0
    messages: int = 0
    charts: list[float] = field(default_factory=list)
    server_cpu: float = 0.0  # cores


def measure(seconds: int) -> Result:
    rounds = 1 if seconds < 10 else 3
    found: dict[int, list[Watched]] = {0: [], CLIENTS: []}
    with scratch() as directory, scratch_server() as server, server.client() as client:
        (directory / "program.py").write_text(PROGRAM)
        for number in range(rounds):
            for clients in (0, CLIENTS):
                found[clients].append(one_run(server, client, directory, f"{number}-{clients}", clients, seconds))
    result = Result()
    for clients, all_of in found.items():
        name = f"{clients} dashboards"
        result.add_times(f"{name}, GET /runs/{{run}}", [each for one in all_of for each in one.answers])
        result.add_times(f"{name}, a stop: request → the loop's end", [each for one in all_of for each in one.stop])
        result.add(f"{name}: log() of 10 scalars, p50", median([one.log_p50 * 1e6 for one in all_of]), "µs")
        result.add(f"{name}: log() of 10 scalars, p99", median([one.log_p99 * 1e6 for one in all_of]), "µs")
        result.add(f"{name}: the loop", median([one.steps for one in all_of]), "steps/s")
        result.add(f"{name}: the server", median([one.server_cpu for one in all_of]), "cores")
        if clients:
            result.add_times(f"{name}, four charts", [each for one in all_of for each in one.charts])
            result.add(f"{name}: messages", median([one.messages / seconds for one in all_of]), "1/s")
    result.notes["cores"] = os.cpu_count()
    result.notes["dashboards"] = (
        f"{CLIENTS} clients in a process of their own, topics {TOPICS}, four charts a second each"
    )
    return result


def one_run(server: ServerProcess, client: Client, directory: Path, name: str, clients: int, seconds: int) -> Watched:
    mark = directory / f"run-{name}"
    phase = {"name": "main", "command": [sys.executable, "program.py"], "env": {"BENCH_MARK": str(mark)}}
    run = submit(client, spec_of(phase, name=f"watched-{clients}"), directory)
    until(lambda: client.run(run.id).progress.step > 500, what="the loop to be under way")
    watched = Watched()
    dashboards = Dashboards(server, run.id, clients)
    try:
        time.sleep(WARM_UP)
        dashboards.reset()
        cpu, began = cpu_of(server), time.monotonic()
        while time.monotonic() - began < seconds:
            asked = time.perf_counter()
            client.run(run.id)
            watched.answers.append(time.perf_counter() - asked)
            time.sleep(0.02)
        watched.server_cpu = (cpu_of(server) - cpu) / (time.monotonic() - began)
        asked = time.monotonic()
        client.stop(run.id)
        ended, count, watched.log_p50, watched.log_p99 = numbers_in(mark)
        watched.stop.append(ended - asked)
        started = client.run(run.id).phases[0]
        watched.steps = count / max(0.001, started.elapsed_s)
    finally:
        watched.messages, watched.charts = dashboards.close()
    server.wait(run.id)
    return watched


class Dashboards:
    """Open pages, in another process: their own work must not be mistaken for the server's."""

    def __init__(self, server: ServerProcess, run: str, count: int) -> None:
        import multiprocessing

        made = multiprocessing.get_context("spawn")
        self._ours, theirs = made.Pipe()
        self._count = count
        if count:
            self._process = made.Process(target=_look, args=(server.url, server.token, run, count, theirs), daemon=True)
            self._process.start()
            assert self._ours.recv() == "open"

    def reset(self) -> None:
        if self._count:
            self._ours.send("reset")

    def close(self) -> tuple[int, list[float]]:
        if not self._count:
            return 0, []
        self._ours.send("close")
        found: tuple[int, list[float]] = self._ours.recv()
        self._process.join(20)
        return found


def _look(url: str, token: str, run: str, count: int, pipe: Any) -> None:
    asyncio.run(_look_at(url, token, run, count, pipe))


async def _look_at(url: str, token: str, run: str, count: int, pipe: Any) -> None:
    messages, charts, opened = [0], [], asyncio.Semaphore(0)
    limits = httpx2.Limits(max_connections=count * 2 + 10)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=f"{url}/api/v1", headers=headers, limits=limits, timeout=60) as http:

        async def stream() -> None:
            async with http.stream("GET", f"/runs/{run}/stream", params={"topics": TOPICS}) as answer:
                opened.release()
                async for chunk in answer.aiter_bytes():
                    messages[0] += chunk.count(b"event: ")

        async def refresh(number: int) -> None:
            await asyncio.sleep(number / count)
            while True:
                asked = time.perf_counter()
                await http.get(f"/runs/{run}/charts", params=[*CHARTS, ("width", "600"), ("max_age", "1")])
                charts.append(time.perf_counter() - asked)
                await asyncio.sleep(max(0.0, 1.0 - (time.perf_counter() - asked)))

        tasks = [asyncio.create_task(stream()) for _ in range(count)]
        for _ in range(count):
            await opened.acquire()
        tasks += [asyncio.create_task(refresh(number)) for number in range(count)]
        pipe.send("open")
        while await asyncio.to_thread(pipe.recv) == "reset":
            messages[0] = 0
            charts.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    pipe.send((messages[0], charts))


def cpu_of(server: ServerProcess) -> float:
    """Seconds of processor time so far."""
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def median(values: list[float]) -> float:
    return percentile(values, 50)


if __name__ == "__main__":
    alone(measure, full=20, quick=4, doc=__doc__, what="seconds")
