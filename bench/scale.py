"""What one server bears: attempts of a thousand nodes, of which only the server is real.

    python bench/scale.py [--quick] [--nodes 1000] [--out FILE]

The cluster is made up: an `sbatch` that writes down what it is given, a `squeue` that says it runs. One process then
does what the runners of all nodes do: each asks for its launch, opens its connection, says hello, waits until it is
told of the others, reports progress, and ends when it is told to. Measured: how long the server takes to bring all of
them together, what they cost it while they train, and how long a stop, a kill and the end take. Both share two cores.
"""

import asyncio
import json
import os
import re
import shlex
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from measuring import Result, alone, scratch
from websockets.asyncio.client import connect

from whistlestop.client import Client
from whistlestop.domain.stops import Stop
from whistlestop.testing.server import ServerProcess, environment
from whistlestop.wire import frames
from whistlestop.wire.spec_file import spec_to_text

WATCHED = 10.0  # seconds of training
LIMIT = 300.0

SBATCH = """#!/bin/sh
cat > "$FAKE_CLUSTER/job.part" && mv "$FAKE_CLUSTER/job.part" "$FAKE_CLUSTER/job"
for word in "$@"; do case "$word" in --job-name=*) echo "${word#--job-name=}" > "$FAKE_CLUSTER/name";; esac; done
echo 1
"""
SQUEUE = """#!/bin/sh
[ -e "$FAKE_CLUSTER/name" ] && echo "1|$(cat "$FAKE_CLUSTER/name")|RUNNING|n[1-1000]|N/A|0|None"
exit 0
"""


class Swarm:
    """All nodes of one attempt. Times are monotonic; a list has one entry for each node that has come so far."""

    def __init__(self, ticket: dict[str, Any], nodes: int) -> None:
        self._ticket, self._nodes = ticket, nodes
        self.launched: list[float] = []
        self.met: list[float] = []
        self.told: dict[Stop, list[float]] = {Stop.FINISH_PHASE: [], Stop.KILL: []}
        self._attempt = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="swarm", daemon=True)

    def start(self) -> None:
        with ThreadPoolExecutor(8) as pool:  # as many as ask at once: nodes come as the cluster starts them
            list(pool.map(self._ask, range(self._nodes)))
        self._thread.start()

    def join(self) -> None:
        self._thread.join(LIMIT)

    def _ask(self, node: int) -> None:
        request = urllib.request.Request(f"{self._ticket['server']}/api/v1/runner/launch?node={node}")
        request.add_header("Authorization", f"Bearer {self._ticket['token']}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            self._attempt = json.load(answer)["launch"]["attempt_id"]
        self.launched.append(time.monotonic())

    def _run(self) -> None:
        self._loop.run_until_complete(self._all())

    async def _all(self) -> None:
        await asyncio.gather(*(self._node(node) for node in range(self._nodes)))

    async def _node(self, node: int) -> None:
        url = f"{self._ticket['server'].replace('http', 'ws', 1)}/api/v1/runner"
        headers = {"Authorization": f"Bearer {self._ticket['token']}"}
        async with connect(url, additional_headers=headers, open_timeout=LIMIT, max_size=None) as socket:
            here = frames.Peer("127.0.0.1", [1, 2])
            await socket.send(frames.encode(frames.Hello(self._attempt, frames.PROTOCOL, f"n{node}", 1, node, here)))
            steps = asyncio.create_task(self._progress(socket, node))
            try:
                async for data in socket:
                    if self._take(frames.decode_down(bytes(data))):  # type: ignore[arg-type]
                        break
                await self._end(socket, node)
            finally:
                steps.cancel()

    def _take(self, frame: frames.Down) -> bool:
        """True: it has to end."""
        now = time.monotonic()
        match frame:
            case frames.Gang():
                self.met.append(now)
            case frames.Order(stop=stop) if stop in self.told:
                self.told[Stop(stop)].append(now)
                return stop == Stop.KILL
        return False

    async def _progress(self, socket: Any, node: int) -> None:
        """As a runner does: the first node five times a second, the others as a sign of life."""
        step = 0
        while True:
            step += 1
            await socket.send(frames.encode(frames.Progress(time.time(), "training", step, progress_at=time.time())))
            await asyncio.sleep(0.2 if node == 0 else 10.0)

    async def _end(self, socket: Any, node: int) -> None:
        ended = frames.RunnerEvent(time.time(), "ended", "killed", {"reason": "killed", "last_step": 1})
        await socket.send(frames.encode(frames.Data(frames.on_node("runner", node), 0, frames.pack_record(ended))))
        async for data in socket:
            if isinstance(frames.decode_down(bytes(data)), frames.Ack | frames.Bye):
                return


def measure(nodes: int) -> Result:
    result = Result()
    with scratch() as directory:
        for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", "#!/bin/sh\nexit 0\n")):
            (directory / name).write_text(text)
            (directory / name).chmod(0o755)
        os.environ["PATH"] = f"{directory}{os.pathsep}{os.environ['PATH']}"
        os.environ["FAKE_CLUSTER"] = str(directory)
        with ServerProcess(directory / "server", slots=1) as server, server.client() as client:
            client.apply_pools(
                f"pools:\n- {{name: local, slots: 0}}\n- name: many\n  slots: {nodes}\n"
                f"  slurm: {{directory: {directory}/nodes, shared: true}}\n"
            )
            one(result, server, client, directory, nodes)
    return result


def one(result: Result, server: ServerProcess, client: Client, directory: Path, nodes: int) -> None:
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    idle = process.memory_info().rss
    phase = {"name": "train", "command": "true", "nodes": nodes, "slots": 1}
    run = client.submit(
        spec_to_text({"name": "many", "phases": [phase]}), in_place=str(directory), env=environment()
    ).id
    until(lambda: (directory / "job").exists(), "the job to be submitted")
    found = re.search(r"^export WHISTLE_TICKET=(.*)$", (directory / "job").read_text(), re.MULTILINE)
    assert found is not None
    swarm = Swarm(json.loads(shlex.split(found[1])[0]), nodes)
    began = time.monotonic()
    swarm.start()
    result.add(f"{nodes} nodes have asked for their launch", max(swarm.launched) - began, "s")
    connecting = time.monotonic()
    until(lambda: len(swarm.met) == nodes, "all nodes to be told of each other")
    result.add(f"{nodes} nodes have connected and know each other", max(swarm.met) - connecting, "s")
    until(lambda: client.run(run).phases[0].progress.step > 0, "a step")
    before, at = cpu(process), time.monotonic()
    latency = []
    while time.monotonic() - at < WATCHED:
        asked = time.monotonic()
        client.run(run)
        latency.append(time.monotonic() - asked)
        time.sleep(0.1)
    result.add("processor of the server while they train", 100 * (cpu(process) - before) / WATCHED, "% of a core")
    result.add("memory of the server for each node", (process.memory_info().rss - idle) / nodes / 1024, "KiB")
    result.add_times("GET /runs/{run} meanwhile", latency)
    asked = time.monotonic()
    client.stop(run)
    until(lambda: swarm.told[Stop.FINISH_PHASE], "the stop to arrive")
    result.add("stop → the first connection that has it", min(swarm.told[Stop.FINISH_PHASE]) - asked, "s")
    asked = time.monotonic()
    client.kill(run)
    until(lambda: len(swarm.told[Stop.KILL]) == nodes, "the kill to arrive everywhere")
    result.add("kill → the last node has it", max(swarm.told[Stop.KILL]) - asked, "s")
    until(lambda: client.run(run).status == "killed", "the end")
    result.add("kill → all have ended, killed is shown", time.monotonic() - asked, "s")
    swarm.join()


def cpu(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {LIMIT:g} s")
        time.sleep(0.005)


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    alone(measure, full=1000, quick=50, doc=__doc__)
