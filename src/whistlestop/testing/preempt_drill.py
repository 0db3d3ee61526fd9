"""A real training on three pools that take it back again and again, with notice and without: it finishes by itself, its
weights are those of an uninterrupted training bit for bit, and what was done twice is in the ledger.

python -m whistlestop.testing.preempt_drill --notices 10 --kills 10
"""

import argparse
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from whistlestop.client import Client
from whistlestop.client.recovery import Recovery, wait_for_recovery
from whistlestop.testing.server import ServerProcess, environment
from whistlestop.testing.wait import until
from whistlestop.testing.watchers import PROGRAMS, alive_with, runners_of
from whistlestop.wire.api import RunView

POOLS = {"spot-a": ("spot", 1.0), "spot-b": ("spot", 1.5), "reserved": ("on_demand", 4.0)}
EVERY = 20  # steps between two checkpoints
APART = 10  # steps between a recovery and the next blow, at least
PER_BLOW = 80  # steps that the training is long, for every blow: it must not be done before the last
NOTICE = 5.0  # seconds
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Blow:
    how: str  # preempt | file | kill
    recovery: Recovery


@dataclass
class Report:
    blows: list[Blow] = field(default_factory=list)
    steps: int = 0
    redone_credits: float = 0.0
    credits: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [
            f"{number:2d}. {blow.how:8s} {blow.recovery.pool} -> {blow.recovery.next_pool}: at step "
            f"{blow.recovery.last_step}, from {blow.recovery.resumed_from}, {blow.recovery.redone} redone, "
            f"trains again after {blow.recovery.seconds:.1f} s"
            for number, blow in enumerate(self.blows, 1)
        ]
        redone = sum(blow.recovery.redone for blow in self.blows)
        share = self.redone_credits / self.credits if self.credits else 0.0
        return "\n".join(
            [
                *lines,
                f"{len(self.blows)} times taken back, {self.steps} steps in {self.seconds:.0f} s, {redone} of them "
                f"done twice ({share:.1%} of the credits, by the ledger); it finished by itself, bit for bit the same",
            ]
        )


def drill(server: ServerProcess, *, notices: int, kills: int, seed: int = 0) -> Report:
    """Raises AssertionError at the first thing that is not as it must be."""
    began, report = time.monotonic(), Report()
    hows = ["kill"] * kills + [("preempt", "file")[number % 2] for number in range(notices)]
    random.Random(seed).shuffle(hows)
    steps = PER_BLOW * (len(hows) + 1)
    with server.client() as client, _pools(server, client) as files, _uninterrupted(steps) as uninterrupted:
        run = _submit(server, steps)
        for how in hows:
            report.blows.append(Blow(how, _strike(client, run, how, files)))
        view = server.wait(run, within=120)
        assert view.status == "completed", f"{view.status}: {view.reason}"
        _judge(report, view)
        weights = [line.split()[1] for line in server.logs(run) if line.startswith("end ")]
        alone = uninterrupted()
        assert weights == [alone], f"the weights are not those of an uninterrupted training: {weights}, {alone}"
        spent = client.run(run).credits
        assert math.isclose(sum(spent.kinds.values()), spent.used), f"some of it is of no kind: {spent}"
        report.steps, report.credits = steps, spent.used
        report.redone_credits = spent.kinds.get("redone", 0.0)
    if any(blow.recovery.redone for blow in report.blows):
        assert report.redone_credits > 0, "steps were done twice, and the ledger does not know"
    assert report.redone_credits < report.credits
    report.seconds = time.monotonic() - began
    return report


@contextmanager
def _pools(server: ServerProcess, client: Client) -> Iterator[dict[str, Path]]:
    """By pool: the file whose existence is its notice."""
    files = {name: server.data / f"notice-{name}" for name in POOLS}
    for rank, (name, (market, price)) in enumerate(POOLS.items()):
        client.add_pool(name, slots=1, market=market, price=price, rank=rank, notices={"file": str(files[name])})
    client.set_pool("local", slots=0)
    yield files


@contextmanager
def _uninterrupted(steps: int) -> Iterator[Callable[[], str]]:
    """Trained beside it, with nothing around: how to wait for its weights' hash."""
    process = subprocess.Popen(
        [sys.executable, "perceptron.py"],
        cwd=PROGRAMS,
        env={**environment(), **ONE_THREAD, "STEPS": str(steps)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield lambda: process.communicate(timeout=120)[0].strip()
    finally:
        process.kill()
        process.communicate()


def _submit(server: ServerProcess, steps: int) -> str:
    phase = {
        "name": "train",
        "command": [sys.executable, "perceptron_train.py"],
        "env": {**ONE_THREAD, "STEPS": str(steps), "PACE": "0.01"},
        "checkpoint": {"every": f"{EVERY} steps"},
    }
    return server.submit(phase, name="taken back", directory=PROGRAMS).id


def _strike(client: Client, run: str, how: str, files: dict[str, Path]) -> Recovery:
    """Its pool goes, as a market that has nothing left; the others have room."""

    def ready() -> RunView | None:
        view = client.run(run)
        assert view.status in ("queued", "starting", "running"), f"{view.status} before the last blow: {view.reason}"
        attempt = view.phases[0].attempts[-1] if view.phases[0].attempts else None
        moved = attempt is not None and attempt.up and view.progress.step >= (attempt.resumed_from or 0) + APART
        return view if moved and attempt is not None and attempt.stage in ("training", "saving") else None

    view = until(ready, within=120, what="it to train")
    assert view is not None
    attempt = view.phases[0].attempts[-1]
    client.set_pool(attempt.pool, slots=0)
    durable = max((each.step for each in client.checkpoints(run)), default=0)
    began = time.monotonic()
    if how == "preempt":
        assert client.preempt(run, notice_s=NOTICE, attempts=[attempt.number]).changed
    elif how == "file":
        temporary = files[attempt.pool].with_suffix(".new")
        temporary.write_text(json.dumps({"in_seconds": NOTICE}))
        temporary.rename(files[attempt.pool])
    else:
        for pid in (*runners_of(attempt.id), *alive_with(f"WHISTLE_ATTEMPT={attempt.id}\0")):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    found = wait_for_recovery(client, run, "train", attempt.number, within=120, since=began)
    files[attempt.pool].unlink(missing_ok=True)
    client.set_pool(attempt.pool, slots=1)
    assert found.recovered, f"{how}: it did not come back: {found}"
    assert found.next_pool != attempt.pool, "it went on where there was nothing"
    assert (found.resumed_from or 0) >= durable, f"step {durable} was safe, and it went on from before: {found}"
    if how != "kill":
        assert found.redone <= 1, f"{how}: with notice no more than one step is done again: {found}"
    return found


def _judge(report: Report, view: RunView) -> None:
    attempts = view.phases[0].attempts
    assert len(attempts) == len(report.blows) + 1, f"{len(attempts)} attempts for {len(report.blows)} blows"
    ends = [attempt.reason for attempt in attempts[:-1]]
    expected = ["runner_lost" if blow.how == "kill" else "preempted" for blow in report.blows]
    assert ends == expected, f"{ends} for {expected}"
    for blow, (earlier, later) in zip(report.blows, itertools.pairwise(attempts), strict=True):
        assert blow.recovery.redone == (earlier.last_step or 0) - (later.resumed_from or 0)
    assert len({attempt.pool for attempt in attempts}) == min(len(POOLS), len(attempts)), "not every pool had it"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notices", type=int, default=10)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="whistle-drill-") as directory,
        ServerProcess(Path(directory), slots=1) as server,
    ):
        print(drill(server, notices=chosen.notices, kills=chosen.kills, seed=chosen.seed))


if __name__ == "__main__":
    main()
