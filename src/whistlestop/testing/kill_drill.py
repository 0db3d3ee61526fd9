"""Kills at random moments of programs that do not want to end: nothing survives, nobody else is touched.

python -m whistlestop.testing.kill_drill --rounds 200
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from whistlestop.client import Client
from whistlestop.testing.programs import hostile
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.watchers import PROGRAMS, alive_with
from whistlestop.wire.api import RunView

MOMENTS = ("queued", "starting", "importing", "training", "saving", "stopping", "pausing")


@dataclass
class Report:
    rounds: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # from the request to the shown status


def drill(server: ServerProcess, rounds: int, *, seed: int = 0) -> Report:
    """Raises AssertionError at the first thing that is not as it must be. The server has one slot."""
    chance, report = random.Random(seed), Report()
    bystander_mark = f"BYSTANDER={uuid.uuid4().hex}"
    bystanders = [_bystander(bystander_mark) for _ in range(3)]
    try:
        with server.client() as client:
            for _ in range(rounds):
                _one_round(server, client, chance, report)
                assert all(process.poll() is None for process in bystanders), "a bystander was hit"
    finally:
        for process in bystanders:
            os.killpg(process.pid, signal.SIGKILL)  # it leads a session, and has a child
            process.wait()
    return report


def _one_round(server: ServerProcess, client: Client, chance: random.Random, report: Report) -> None:
    moment, mode = chance.choice(MOMENTS), chance.choice(sorted(hostile.MODES))
    mark = f"DRILL={uuid.uuid4().hex}"
    blocker = _submit(server, f"{mark}-blocker", "forks", "training") if moment == "queued" else None
    if blocker is not None:
        server.wait(blocker.id, "running")
    victim = _submit(server, mark, mode, moment)
    following = server.submit({"name": "next", "kind": "task", "command": "true"}, name="next")
    _reach(client, victim, moment, chance)
    asked = time.monotonic()
    client.kill(victim.id, note=f"drill: {moment}, {mode}")
    server.wait(victim.id, "killed", within=60)
    report.seconds.append(time.monotonic() - asked)
    left = alive_with(mark) if blocker is None else {}
    assert not left, f"killed while {moment} ({mode}), and yet alive: {left}"
    if blocker is not None:
        assert alive_with(f"{mark}-blocker"), "killing a queued run ended the one that ran"
        client.kill(blocker.id)
        server.wait(blocker.id, "killed")
        assert not alive_with(mark)
    assert server.wait(following.id).status == "completed", "the next queued run did not start by itself"
    report.rounds += 1
    report.moments[moment] += 1
    report.modes[mode] += 1


def _submit(server: ServerProcess, mark: str, mode: str, moment: str) -> RunView:
    name, _, value = mark.partition("=")
    env = {name: value, "HOSTILE": mode}
    phase = {"name": "main", "command": [sys.executable, "loop.py"], "env": env, "grace": {"kill_save": "1s"}}
    if moment == "importing":
        env["IMPORT"] = "30"
    if moment in ("saving", "stopping", "pausing"):
        env["SAVE"] = "30"
    if moment == "saving":
        phase["checkpoint"] = {"every": "5 steps"}
    if mode == "ignores":  # without the SDK too: nothing but SIGKILL ends it
        phase["command"] = [sys.executable, "hostile.py", "ignores"] if moment == "training" else phase["command"]
    return server.submit(phase, name="victim", directory=PROGRAMS)


def _reach(client: Client, victim: RunView, moment: str, chance: random.Random) -> None:
    def stage(*wanted: str) -> None:
        until(lambda: _stage(client, victim.id) in wanted, what=f"stage {wanted}", within=60)

    match moment:
        case "queued" | "starting":
            time.sleep(chance.random() * 0.3)
        case "importing":
            stage("starting")
            time.sleep(chance.random() * 0.2)
        case "training":
            stage("training", "starting")
            time.sleep(chance.random() * 0.5)
        case "saving":
            stage("saving")
        case "stopping" | "pausing":
            stage("training")
            client.stop(victim.id) if moment == "stopping" else client.pause(victim.id)
            time.sleep(chance.random() * 0.3)


def _stage(client: Client, run: str) -> str | None:
    attempts = client.run(run).phases[0].attempts
    return attempts[-1].stage if attempts else None


def _bystander(mark: str) -> subprocess.Popen[bytes]:
    """Of the same user, the same script, in a session of its own."""
    name, _, value = mark.partition("=")
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / "hostile.py"), "stops_itself"],
        env={name: value},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="whistle-drill-") as directory,
        ServerProcess(Path(directory), slots=1) as server,
    ):
        report = drill(server, chosen.rounds, seed=chosen.seed)
    worst = sorted(report.seconds)
    print(f"{report.rounds} kills (seed {chosen.seed}), nothing survived, no bystander hit")
    print("moments:", dict(report.moments), "\nmodes:", dict(report.modes))
    print(f"request -> shown as killed: median {worst[len(worst) // 2]:.3f} s, longest {worst[-1]:.3f} s")


if __name__ == "__main__":
    main()
