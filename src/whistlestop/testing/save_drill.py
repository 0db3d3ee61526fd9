"""SIGKILL of program, runner and server at random moments of saving, and a storage that fails: the newest committed
checkpoint always loads, no torn one is ever listed, and the run comes to its end with the state it would have had.

python -m whistlestop.testing.save_drill --rounds 1000 [--storage s3]
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from whistlestop.blobs.open import open_storage
from whistlestop.blobs.storage import Storage
from whistlestop.testing.programs.links import chained
from whistlestop.testing.proxy import Fault, FaultProxy, Rule
from whistlestop.testing.s3 import S3Server
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.watchers import PROGRAMS, alive_with, runners_of
from whistlestop.wire.api import RunView

PER_RUN = 6  # then it is stopped and judged: a program that dies again and again waits longer each time
EVERY = 3  # steps: something is being saved at nearly every moment


@dataclass
class Report:
    rounds: int = 0
    victims: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    steps: int = 0
    set_aside: int = 0
    failed_saves: int = 0

    def __str__(self) -> str:
        said = ", ".join(f"{count} {name}" for name, count in sorted(self.victims.items()))
        return (
            f"{self.rounds} rounds ({said}): {self.attempts} attempts, {self.steps} steps, {self.failed_saves} saves "
            "failed and were told of; the newest checkpoint loaded every time, none was torn, the end is the right one"
        )


class Drill:
    """`faults`: more victims by name, each a function that does something to the storage."""

    def __init__(
        self,
        server: ServerProcess,
        storage: Callable[[str], Storage],
        *,
        seed: int,
        faults: dict[str, Callable[[], None]] | None = None,
    ) -> None:
        self._server, self._storage = server, storage
        self._chance = random.Random(seed)
        self._faults = faults or {}
        self._report = Report()
        self._committed = 0

    def run(self, rounds: int, victims: Sequence[str] = ("program", "runner", "server")) -> Report:
        while self._report.rounds < rounds:
            run, self._committed = self._submit(steps=10**6), 0
            for _ in range(min(PER_RUN, rounds - self._report.rounds)):
                victim = self._chance.choice((*victims, *self._faults))
                self._report.victims[victim] += 1
                self._report.rounds += 1
                self._strike(run.id, victim)
                self._look(run.id)
            self._finish(run.id)
        return self._report

    def _submit(self, steps: int) -> RunView:
        env = {"STEPS": str(steps), "PACE": "0.01", "SIZE": "600000"}
        phase = {
            "name": "train",
            "command": [sys.executable, "chain.py"],
            "env": env,
            "retries": 1000,
            "checkpoint": {"every": f"{EVERY} steps"},
        }
        return self._server.submit(phase, name="drill", directory=PROGRAMS)

    def _strike(self, run: str, victim: str) -> None:
        with self._server.client() as client:

            def alive() -> str | None:
                attempts = client.run(run).phases[0].attempts
                return attempts[-1].id if attempts and alive_with(f"WHISTLE_ATTEMPT={attempts[-1].id}\0") else None

            attempt = until(alive, within=120, what="the program")
            assert attempt is not None
        time.sleep(self._chance.random() * 0.5)  # a moment of any kind
        if victim in self._faults:
            self._faults[victim]()
        elif victim == "server":
            self._server.kill()
            self._server.start()
        else:
            pids = alive_with(f"WHISTLE_ATTEMPT={attempt}\0") if victim == "program" else runners_of(attempt)
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def _look(self, run: str) -> None:
        """In the storage itself, and at what the server says of it."""
        found, aside = self._storage(run).newest("train")
        assert not aside, f"a checkpoint that does not verify was listed: {aside}"
        step = found.step if found is not None else 0
        assert step >= self._committed, f"step {self._committed} was committed, and the newest is {step}"
        with self._server.client() as client:
            view = client.run(run)
            assert view.status in ("running", "starting", "queued", "waiting"), f"{view.status}: {view.reason}"
            known = max((each.step for each in client.checkpoints(run)), default=0)
        self._committed = max(self._committed, step, known)

    def _finish(self, run: str) -> None:
        """A stop, as a person would ask for it; then what the run has to show for all that."""
        with self._server.client() as client:
            client.stop(run)
            view = self._server.wait(run, within=240)
            assert view.status == "completed", f"{view.status}: {view.reason}"
            attempts = view.phases[0].attempts
            last = attempts[-1].last_step or 0
            self._report.attempts += len(attempts)
            self._report.steps += last
            for event in client.events(run):
                self._report.set_aside += event.kind == "checkpoint_set_aside"
                self._report.failed_saves += event.kind == "save_failed"
        assert not self._report.set_aside
        lines = self._server.logs(run)
        assert not [line for line in lines if "WRONG" in line]
        found, _ = self._storage(run).newest("train")
        assert found is not None
        assert found.step == last >= self._committed
        ends = [line.split()[1] for line in lines if line.startswith("end ")]
        assert ends == [chained(found.step).hex()], "the end is not what an uninterrupted training would have given"
        left = [path for path in Path("/dev/shm").glob("whistle-*") if path.name.removeprefix("whistle-") in
                {attempt.id for attempt in attempts}]  # fmt: skip
        assert not left, f"slots were left in memory: {left}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--storage", choices=["file", "s3"], default="file")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="whistle-drill-")))
        if chosen.storage == "file":
            server = stack.enter_context(ServerProcess(directory))
            drill = Drill(server, lambda run: local_storage(server, run), seed=chosen.seed)
        else:
            drill = on_s3(stack, directory, stack.enter_context(S3Server()), seed=chosen.seed)
        print(drill.run(chosen.rounds))


def on_s3(stack: ExitStack, directory: Path, store: S3Server, *, seed: int) -> Drill:
    """Behind a proxy that answers 500 and 503, is slow, cuts uploads, loses answers and sends half of them, a few at a
    time. We ourselves look at it without."""
    proxy = stack.enter_context(FaultProxy(store.endpoint, seed=seed))
    root = f"s3://{store.bucket()}/drill"
    server = ServerProcess(directory, extra=("--checkpoints", root, "--checkpoints-endpoint", proxy.endpoint))
    server.env = {**server.env, **store.env}
    for name, value in store.env.items():  # for our own looks
        stack.callback(os.environ.pop, name, None)
        os.environ[name] = value
    stack.enter_context(server)

    def strike(rule: Rule) -> Callable[[], None]:
        return lambda: proxy.add(replace(rule))

    faults = {
        "answers 500": strike(Rule(Fault.ANSWER, times=3, status=500)),
        "answers 503": strike(Rule(Fault.ANSWER, times=5, share=0.5, status=503)),
        "cut connections": strike(Rule(Fault.CUT, times=3)),
        "cut uploads": strike(Rule(Fault.CUT_UPLOAD, times=2, method="PUT")),
        "lost answers": strike(Rule(Fault.LOSE_ANSWER, times=2, method="PUT")),
        "half answers": strike(Rule(Fault.HALF_ANSWER, times=2, method="GET")),
        "slow answers": strike(Rule(Fault.SLOW, times=5, delay=0.3, rate=500_000)),
    }
    return Drill(server, lambda run: open_storage(f"{root}/{run}", store.options), seed=seed, faults=faults)


def local_storage(server: ServerProcess, run: str) -> Storage:
    return open_storage(str(server.data / "runs" / run / "checkpoints"))


if __name__ == "__main__":
    main()
