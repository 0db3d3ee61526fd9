"""A thousand queued runs: how fast they are taken, listed and killed, and what they cost the server.

    python bench/queue_1000.py [--quick] [--runs 1000] [--out FILE]

One slot, taken by a run that does nothing. Half of the runs are submitted by one client, the other half by four at
once. Then: `whistle ls` as its own process, the list and the queue over HTTP, the position of the last run, and one
bulk kill, until the server shows no queued run any more. The floor of a submit is a note in the same server (one
request, one durable write), of the CLI `whistle version`, which asks the smallest question there is.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from measuring import Result, alone, scratch, scratch_server, spec_of, submit

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess

CLIENTS = 4
REPEATS = 7  # of each question
LOOK = 0.02  # between two looks whether all are killed
SPEC = spec_of({"name": "main", "kind": "task", "command": "true"}, name="queued")
BLOCKER = spec_of({"name": "main", "kind": "task", "command": "sleep 86400"}, name="blocker")


def measure(count: int) -> Result:
    result = Result()
    with scratch() as directory, scratch_server() as server, server.client() as client:
        blocker = submit(client, BLOCKER, directory)
        server.wait(blocker.id, "running")
        add_memory(result, server, "idle, one run")
        fill(result, server, client, directory, count)
        add_memory(result, server, f"{count} queued")
        ask(result, server, client, count)
        kill_all(result, client, count, blocker.id)
        add_memory(result, server, f"{count} killed")
    return result


def fill(result: Result, server: ServerProcess, client: Client, directory: Path, count: int) -> None:
    first = client.runs(limit=1).runs[0].id
    notes = [timed(lambda: client.note(first, "floor")) for _ in range(min(100, count))]
    half = count // 2
    alone_times = [timed(lambda: submit(client, SPEC, directory)) for _ in range(half)]
    shares = [(count - half) // CLIENTS + (number < (count - half) % CLIENTS) for number in range(CLIENTS)]
    together, seconds = submit_together(server, directory, shares)
    result.add("submit rate, 1 client", half / sum(alone_times), "runs/s")
    result.add(f"submit rate, {CLIENTS} clients", (count - half) / seconds, "runs/s")
    result.add_times("submit, 1 client", alone_times)
    result.add_times(f"submit, {CLIENTS} clients", together)
    result.add_times("floor: note", notes)
    result.add_ratio("submit, 1 client", alone_times, notes)


def submit_together(server: ServerProcess, directory: Path, shares: list[int]) -> tuple[list[float], float]:
    times: list[float] = []
    ready = threading.Barrier(len(shares) + 1)

    def work(share: int) -> None:
        with server.client() as own:
            own.whoami()  # connected
            ready.wait(30)
            mine = [timed(lambda: submit(own, SPEC, directory)) for _ in range(share)]
        times.extend(mine)

    threads = [threading.Thread(target=work, args=(share,), daemon=True) for share in shares]
    for thread in threads:
        thread.start()
    ready.wait(30)
    began = time.monotonic()
    for thread in threads:
        thread.join(600)
    seconds = time.monotonic() - began
    if len(times) != sum(shares):
        raise SystemExit(f"{sum(shares) - len(times)} submits failed")
    return times, seconds


def ask(result: Result, server: ServerProcess, client: Client, count: int) -> None:
    last = client.runs(limit=1).runs[0].id  # the newest
    position = client.run(last).queue
    if position is None or position.position != count:
        raise SystemExit(f"the last of {count} queued runs is told to be at {position}")
    result.add_times("whistle ls (50 rows), whole process", again(lambda: whistle(server, "ls")))
    result.add_times(
        f"whistle ls --all ({count + 1} rows), whole process", again(lambda: whistle(server, "ls", "--all"))
    )
    result.add_times("floor: whistle version, whole process", again(lambda: whistle(server, "version")))
    result.add_times("GET /runs (100)", again(lambda: client.runs()))
    result.add_times(f"GET /runs?limit=1000 ({min(1000, count + 1)})", again(lambda: client.runs(limit=1000)))
    result.add_times("GET /queue", again(lambda: client.queue()))
    result.add_times("GET /runs/LAST, with its position", again(lambda: client.run(last)))


def kill_all(result: Result, client: Client, count: int, blocker: str) -> None:
    began = time.monotonic()
    done = client.bulk("kill", status=["queued"])
    answered = time.monotonic() - began
    while client.runs(status=["queued", "starting"], limit=1).runs:
        if time.monotonic() - began > 120:
            raise SystemExit("not all of the runs were killed within 120 s")
        time.sleep(LOOK)
    shown = time.monotonic() - began
    killed = sum(1 for _ in client.all_runs(status=["killed"]))
    if len(done.items) != count or killed != count or client.run(blocker).status != "running":
        raise SystemExit(f"{count} were queued, {len(done.items)} asked, {killed} killed")
    result.add(f"kill all {count}: request → answer", answered * 1000, "ms")
    result.add(f"kill all {count}: request → all shown killed", shown * 1000, "ms")


def whistle(server: ServerProcess, *arguments: str) -> None:
    command, null = [str(Path(sys.executable).parent / "whistle"), *arguments], subprocess.DEVNULL
    subprocess.run(command, env=dict(server.env), stdout=null, stderr=null, check=True, timeout=120)


def again(action: Callable[[], object]) -> list[float]:
    return [timed(action) for _ in range(REPEATS)]


def timed(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def add_memory(result: Result, server: ServerProcess, when: str) -> None:
    assert server.process is not None
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    result.add(f"server's memory (RSS), {when}", pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20), "MiB")


if __name__ == "__main__":
    alone(measure, full=1000, quick=100, doc=__doc__, what="runs")
