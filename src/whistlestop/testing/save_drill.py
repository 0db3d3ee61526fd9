"""SIGKILL of program, runner and server at random moments of saving, a storage that fails, and a person who removes
checkpoints and brings them back: every listed checkpoint loads, none is older than what was committed, and each run
comes to its end with the state it would have had.

python -m whistlestop.testing.save_drill --rounds 1000 [--storage s3]
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from whistlestop.blobs.manifest import Checkpoint, Damaged
from whistlestop.blobs.open import open_storage
from whistlestop.blobs.storage import Removed, Storage
from whistlestop.client import Client
from whistlestop.domain.errors import NoCheckpoint, NotFound, Refused, ServerUnreachable, StorageUnreachable
from whistlestop.domain.states import RUN_ENDED
from whistlestop.testing.programs.links import chained
from whistlestop.testing.proxy import Fault, FaultProxy, Rule
from whistlestop.testing.s3 import S3Server
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.spawning import fork_from_now_on
from whistlestop.testing.wait import until
from whistlestop.testing.watchers import PROGRAMS, alive_with, runners_of

PER_RUN = 9  # strikes; then it is stopped and judged
DEATHS = 2  # of its program, likewise: one that dies again and again waits longer each time
EVERY = 3  # steps: something is being saved at nearly every moment
PINNED = 4  # by the person, who brings things back; then one is let go
LOOKED_AT = "intact"


@dataclass
class Report:
    rounds: int = 0
    victims: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    steps: int = 0
    looks: int = 0  # at single checkpoints
    set_aside: int = 0
    failed_saves: int = 0
    did: Counter[str] = field(default_factory=Counter)  # the person
    seconds: float = 0.0

    def __str__(self) -> str:
        said = ", ".join(f"{count} {name}" for name, count in sorted(self.victims.items()))
        did = ", ".join(f"{count} {name}" for name, count in sorted(self.did.items())) or "nothing"
        return (
            f"{self.rounds} rounds ({said}) in {self.seconds:.0f} s: {self.attempts} attempts, {self.steps} steps, "
            f"{self.failed_saves} saves failed and were told of; a person did: {did}; {self.looks} looks at listed "
            "checkpoints: each one loads, none is missing, every end is the right one"
        )


class Drill:
    """As many runs at once as the server has slots: while one starts again, another one is struck.

    `faults`: more victims by name, each a function that does something to the storage.
    """

    def __init__(
        self,
        server: ServerProcess,
        storage: Callable[[str], Storage],
        *,
        seed: int,
        faults: dict[str, Callable[[], None]] | None = None,
    ) -> None:
        self._server, self._storage = server, storage
        self._seed = seed
        self._faults = faults or {}
        self._report = Report()
        self._up = threading.Lock()  # who has it may count on the server
        self._counting = threading.Lock()
        self._over = threading.Event()
        self._runs: set[str] = set()  # that the person may look at
        self._left = 0

    def run(self, rounds: int, victims: Sequence[str] = ("program", "runner", "server")) -> Report:
        began, self._left = time.monotonic(), rounds
        lanes = min(self._server.slots, rounds)
        with ThreadPoolExecutor(lanes + 1) as threads:
            person = threads.submit(self._person, random.Random(f"{self._seed} person"))
            work = [
                threads.submit(self._lane, random.Random(f"{self._seed} {lane}"), (*victims, *self._faults))
                for lane in range(lanes)
            ]
            try:
                for each in work:
                    each.result()
            finally:
                self._over.set()
            person.result()
        self._report.seconds = time.monotonic() - began
        return self._report

    def _lane(self, chance: random.Random, victims: Sequence[str]) -> None:
        try:
            while self._take_round():
                self._one_run(chance, victims)
        except BaseException:
            self._over.set()  # the others need not go on
            raise

    def _take_round(self) -> bool:
        with self._counting:
            self._left -= 1
            return self._left >= 0 and not self._over.is_set()

    def _one_run(self, chance: random.Random, victims: Sequence[str]) -> None:
        """Its first round is taken already."""
        run = self._submit()
        self._runs.add(run)
        try:
            self._finish(run, self._strikes(run, chance, victims))
        except AssertionError:
            with self._client() as client:  # what there is to go by
                for event in client.events(run):
                    print(event.at, event.attempt or "", event.kind, event.text, file=sys.stderr)
            raise

    def _strikes(self, run: str, chance: random.Random, victims: Sequence[str]) -> int:
        deaths = committed = 0
        for number in range(1, PER_RUN + 1):
            victim = chance.choice(victims)
            deaths += victim == "program"
            with self._counting:
                self._report.victims[victim] += 1
                self._report.rounds += 1
            self._strike(run, victim, chance)
            committed = self._look(run, committed)
            if number == PER_RUN or deaths == DEATHS or not self._take_round():
                break
        return committed

    @contextmanager
    def _client(self) -> Iterator[Client]:
        with self._up, self._server.client() as client:
            yield client

    def _submit(self) -> str:
        phase = {
            "name": "train",
            "command": [sys.executable, "chain.py"],
            "env": {"STEPS": "1000000", "PACE": "0.01", "SIZE": "300000"},
            "retries": 1000,
            "checkpoint": {"every": f"{EVERY} steps"},
        }
        with self._up:
            return self._server.submit(phase, name="drill", directory=PROGRAMS).id

    def _strike(self, run: str, victim: str, chance: random.Random) -> None:
        def alive() -> str | None:
            with self._client() as client:
                attempts = client.run(run).phases[0].attempts
            return attempts[-1].id if attempts and alive_with(f"WHISTLE_ATTEMPT={attempts[-1].id}\0") else None

        attempt = until(alive, within=120, what="the program")
        assert attempt is not None
        time.sleep(chance.random() * 0.5)  # a moment of any kind
        if victim in self._faults:
            self._faults[victim]()
        elif victim == "server":
            with self._up:
                self._server.kill()
                self._server.start()
        else:
            pids = alive_with(f"WHISTLE_ATTEMPT={attempt}\0") if victim == "program" else runners_of(attempt)
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def _look(self, run: str, committed: int) -> int:
        """In the storage itself, at every checkpoint, and at what the server says of it. The newest step."""
        steps = self._look_at_all(run)
        step = max(steps, default=0)
        assert step >= committed, f"step {committed} of {run} was committed, and the newest is {step}"
        with self._client() as client:
            view = client.run(run)
            assert view.status in ("running", "starting", "queued", "waiting"), f"{run}: {view.status}: {view.reason}"
            known = client.checkpoints(run)
        wrong = [each for each in known if not each.verified]
        assert not wrong, f"called damaged, and nothing was: {wrong}"
        return max([committed, step, *(each.step for each in known)])

    def _look_at_all(self, run: str) -> list[int]:
        storage, steps = self._storage(run), list[int]()

        def look(checkpoint: Checkpoint) -> None:
            try:
                storage.verify(checkpoint)
                steps.append(checkpoint.step)
            except Removed:  # by its rules, or by the person
                pass
            raise Damaged(LOOKED_AT)  # so that the next older one is looked at, too

        _, aside = storage.newest("train", verify=look)
        torn = [(checkpoint.path, why) for checkpoint, why in aside if why != LOOKED_AT]
        assert not torn, f"a checkpoint that does not verify was listed: {torn}"
        with self._counting:
            self._report.looks += len(steps)
        return steps

    def _person(self, chance: random.Random) -> None:
        """Removes what may be removed and brings things back, whatever happens meanwhile."""
        while not self._over.wait(chance.random() * 0.4):
            try:
                with self._server.client() as client:
                    did = _meddle(client, chance, chance.choice(sorted(self._runs) or [""]))
            except (ServerUnreachable, StorageUnreachable, NoCheckpoint, NotFound, Refused, OSError, ValueError):
                continue  # the server is being killed, or somebody else was quicker
            if did:
                self._report.did[did] += 1

    def _finish(self, run: str, committed: int) -> None:
        """A stop, as a person would ask for it; then what the run has to show for all that."""

        def ended() -> bool:
            with self._client() as client:
                return client.run(run).status in {state.value for state in RUN_ENDED}

        with self._client() as client:
            client.stop(run)
        until(ended, within=240, what=f"run {run} to end")
        self._runs.discard(run)
        with self._client() as client:
            view = client.run(run)
            events = [event.kind for event in client.events(run)]
            lines = [line.text for line in client.logs(run, limit=10_000).lines]
        assert view.status == "completed", f"{run}: {view.status}: {view.reason}"
        attempts = view.phases[0].attempts
        last = attempts[-1].last_step or 0
        with self._counting:
            self._report.attempts += len(attempts)
            self._report.steps += last
            self._report.failed_saves += events.count("save_failed")
        assert "checkpoint_set_aside" not in events, f"{run}: a checkpoint was set aside"
        assert "checkpoint_damaged" not in events, f"{run}: a checkpoint was called damaged"
        assert not [line for line in lines if "WRONG" in line]
        newest = max(self._look_at_all(run))
        assert newest == last >= committed, f"{run}: committed {committed}, ended at {last}, saved {newest}"
        ends = [line.removeprefix("end ") for line in lines if line.startswith("end ")]
        assert ends == [chained(last).hex()], "the end is not what an uninterrupted training would have given"
        left = [attempt.id for attempt in attempts if Path(f"/dev/shm/whistle-{attempt.id}").exists()]
        assert not left, f"slots were left in memory: {left}"


def _meddle(client: Client, chance: random.Random, run: str) -> str | None:
    """One thing to one checkpoint: what was done."""
    found = client.checkpoints(run, trashed=True) if run else []
    gone = [each for each in found if each.trashed_until is not None]
    pinned = [each for each in found if each.pinned]
    free = [each for each in found if not (each.trashed_until or each.pinned or each.newest)]
    if len(pinned) > PINNED:
        return "unpinned" if client.pin_checkpoint(run, chance.choice(pinned).id, pinned=False).changed else None
    if free and chance.random() < 0.5:
        return "removed" if client.remove_checkpoint(run, chance.choice(free).id).changed else None
    if gone:
        return "brought back" if client.restore_checkpoint(run, chance.choice(gone).id).changed else None
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--lanes", type=int, default=3, help="runs at once")
    parser.add_argument("--storage", choices=["file", "s3"], default="file")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    fork_from_now_on()  # a server is killed every few seconds
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="whistle-drill-")))
        if chosen.storage == "file":
            server = stack.enter_context(ServerProcess(directory, slots=chosen.lanes))
            drill = Drill(server, lambda run: local_storage(server, run), seed=chosen.seed)
        else:
            drill = on_s3(stack, directory, stack.enter_context(S3Server()), seed=chosen.seed, slots=chosen.lanes)
        print(drill.run(chosen.rounds))


def on_s3(stack: ExitStack, directory: Path, store: S3Server, *, seed: int, slots: int = 2) -> Drill:
    """Behind a proxy that answers 500 and 503, is slow, cuts uploads, loses answers and sends half of them, a few at a
    time. We ourselves look at it without."""
    proxy = stack.enter_context(FaultProxy(store.endpoint, seed=seed))
    root = f"s3://{store.bucket()}/drill"
    extra = ("--checkpoints", root, "--checkpoints-endpoint", proxy.endpoint)
    server = ServerProcess(directory, slots=slots, extra=extra)
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
