"""Real torch.distributed trainings over two nodes of a real cluster, two ranks on each, that are stopped, paused,
killed, told to leave, robbed of a node, and go on without their server or their cluster's head: each time it
ends as it must, and nothing is left on any node. The cluster is a parameter."""

import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.watchers import PROGRAMS, alive_with
from whistlestop.wire.api import AttemptView, RunView

NODES, RANKS, EVERY = 2, 2, 20
ENV = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
LONG = 180.0  # seconds for anything: on two cores four ranks load torch in turn


class Cluster(Protocol):
    hosts: Sequence[str]

    def processes(self, host: str) -> list[int]:
        """What lives there of jobs."""

    def power_off(self, host: str) -> None: ...

    def power_on(self, host: str) -> None: ...

    def settle(self) -> None:
        """What its head knows now outlives it."""

    def restart_controller(self) -> None: ...


@dataclass
class Report:
    kinds: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)  # from the blow to what it must come to

    def __str__(self) -> str:
        lines = [
            f"{kind}: {count} times, {max(self.seconds[kind]):.1f} s at most" for kind, count in self.kinds.items()
        ]
        return "\n".join(
            [*lines, f"{self.kinds.total()} trainings over {NODES} nodes; nothing was left on any of them"]
        )


@dataclass(frozen=True)
class Drill:
    """`pool`: of the server, on this cluster, with room for all nodes; `notice` tells an attempt's capacity to go."""

    server: ServerProcess
    cluster: Cluster
    pool: str
    notice: Callable[[AttemptView], None]

    def run(self, kinds: Sequence[str], *, seed: int = 0) -> Report:
        """AssertionError at the first thing that is not as it must be."""
        rounds, report = list(kinds), Report()
        random.Random(seed).shuffle(rounds)
        for kind in rounds:
            report.seconds.setdefault(kind, []).append(self.round(kind))
            report.kinds[kind] += 1
        return report

    def round(self, *kinds: str) -> float:
        """One training, and what happens to it. The answer: how long it took to come through."""
        with self.server.client() as client:
            run, took = self._submit(), 0.0
            for kind in kinds:
                self._trains(client, run, above=client.run(run).phases[0].progress.step + 2 * EVERY)
                busy = [host for host in self.cluster.hosts if self.cluster.processes(host)]
                assert len(busy) == NODES, f"{kind}: it runs on {busy}"
                began = time.monotonic()
                getattr(self, f"_{kind}")(run, busy)
                took += time.monotonic() - began
            if client.run(run).status in ("running", "starting", "queued", "waiting"):
                client.kill(run)
                self.server.wait(run, "killed", within=LONG)
            self._clean(kinds, [attempt.id for attempt in client.run(run).phases[0].attempts])
            client.delete(run)
            return took

    # --- the blows ------------------------------------------------------------------------------------------------

    def _stop(self, run: str, busy: Sequence[str]) -> None:
        with self.server.client() as client:
            client.stop(run)
        view = self.server.wait(run, within=LONG)
        assert view.status == "completed", (view.reason, view.phases[0].attempts)
        said = [line.split() for line in self.server.logs(run) if " ended at " in line and line.startswith("rank ")]
        assert sorted(words[1] for words in said) == [str(rank) for rank in range(NODES * RANKS)], said
        assert len({words[-1] for words in said}) == 1, f"the ranks ended at different steps: {said}"

    def _pause(self, run: str, busy: Sequence[str]) -> None:
        with self.server.client() as client:
            before = client.run(run).phases[0].attempts[-1]
            client.pause(run)
            self.server.wait(run, "waiting", within=LONG)
            self._clean(["pause"], [before.id])
            client.resume(run)
            self._goes_on(client, run, before, redone=0)

    def _kill(self, run: str, busy: Sequence[str]) -> None:
        with self.server.client() as client:
            client.kill(run)
        self.server.wait(run, "killed", within=LONG)

    def _notice(self, run: str, busy: Sequence[str]) -> None:
        with self.server.client() as client:
            before = client.run(run).phases[0].attempts[-1]
            self.notice(before)
            assert self._goes_on(client, run, before, redone=0).reason == "preempted"

    def _node(self, run: str, busy: Sequence[str]) -> None:
        lost = random.choice(busy)
        with self.server.client() as client:
            before = client.run(run).phases[0].attempts[-1]
            self.cluster.power_off(lost)
            try:
                first = self._goes_on(client, run, before)
                assert first.status in ("lost", "preempted"), first
            finally:
                self.cluster.power_on(lost)

    def _server(self, run: str, busy: Sequence[str]) -> None:
        self.server.kill()
        self.server.start()
        self._untouched(run)

    def _controller(self, run: str, busy: Sequence[str]) -> None:
        self.cluster.settle()
        self.cluster.restart_controller()
        self._untouched(run)

    # --- what must be ---------------------------------------------------------------------------------------------

    def _submit(self) -> str:
        phase = {
            "name": "train",
            "command": [sys.executable, "nodes.py"],
            "env": ENV,
            "nodes": NODES,
            "slots": RANKS,
            "ranks": RANKS,
            "checkpoint": {"every": f"{EVERY} steps"},
            "capacity": {"pools": [self.pool]},
        }
        return self.server.submit(phase, name="nodes", directory=PROGRAMS).id

    def _trains(self, client: Client, run: str, *, above: int) -> RunView:
        def moved() -> RunView | None:
            view = client.run(run)
            assert view.status in ("queued", "starting", "running"), (view.status, view.reason, view.phases[0].attempts)
            return view if view.phases[0].progress.step > above else None

        found = until(moved, within=LONG, what=f"step {above}")
        assert found is not None
        return found

    def _goes_on(self, client: Client, run: str, before: AttemptView, *, redone: int | None = None) -> AttemptView:
        """In another attempt, from the newest checkpoint. The answer: how the one before has ended."""

        def attempts() -> list[AttemptView]:
            return client.run(run).phases[0].attempts[before.number - 1 :]

        until(lambda: len(attempts()) > 1, within=LONG, what="the next attempt")
        first = attempts()[0]
        self._trains(client, run, above=(first.last_step or 0) + 1)
        second = attempts()[1]
        assert second.resumed_from, f"it began at the beginning: {second}"
        lost = (first.last_step or 0) - second.resumed_from
        assert redone is None or lost == redone, f"{lost} steps were done again: {first}, {second}"
        return first

    def _untouched(self, run: str) -> None:
        with self.server.client() as client:
            before = len(client.run(run).phases[0].attempts)
            self._trains(client, run, above=client.run(run).phases[0].progress.step + EVERY)
            assert len(client.run(run).phases[0].attempts) == before, "it was started again"

    def _clean(self, kinds: Sequence[str], attempts: Sequence[str]) -> None:
        """At once: the end was proven before it was said. What is the cluster's own may still be tidied up."""
        left = {pid: words for attempt in attempts for pid, words in alive_with(f"WHISTLE_ATTEMPT={attempt}\0").items()}
        assert not left, f"{kinds}: {left}"
        until(lambda: not any(map(self.cluster.processes, self.cluster.hosts)), what="every node to be clean")
        memory = [each for attempt in attempts for each in Path("/dev/shm").glob(f"whistle-{attempt}*")]
        assert "node" in kinds or not memory, f"{kinds}: {memory}"
        for each in memory:  # of a host that has lost its power, and with it what was in its memory
            shutil.rmtree(each, ignore_errors=True)
