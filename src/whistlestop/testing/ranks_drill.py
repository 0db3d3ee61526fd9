"""Real torch.distributed trainings (gloo) that are stopped and preempted at random moments: every rank ends at the
same step, one checkpoint is complete, nobody hangs, and a step without a request has no collective of ours.

python -m whistlestop.testing.ranks_drill --stops 50 --preemptions 50
"""

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from whistlestop.blobs.checkpoints import Checkpoint, CheckpointStore
from whistlestop.channel import layout
from whistlestop.channel.control import Control
from whistlestop.channel.layout import EXIT_PAUSED, Word
from whistlestop.domain.stops import Stop
from whistlestop.testing.wait import until

KINDS = ("stop", "preempt", "pause", "signal one rank", "signal all ranks")


@dataclass
class Report:
    rounds: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # from the request to the end of the last rank


class Ranks:
    """Ranks of one training, forked from this process: it has torch loaded already, and they start in no time."""

    def __init__(
        self, root: Path, world: int, *, attempt: int = 1, nodes: int = 1, env: Mapping[str, str] = {}
    ) -> None:
        self.root, self.world = root, world
        self.out = root / f"out-{attempt}"
        self.channel = root / f"channel-{attempt}"
        self.out.mkdir()
        self.channel.mkdir()
        self.control = Control.create(self.channel / layout.CONTROL_FILE)
        self.codes: dict[int, int] = {}
        port = _free_port()
        shared = {
            layout.ENV_CHANNEL: str(self.channel),
            layout.ENV_CHECKPOINTS: str(root / "checkpoints"),
            layout.ENV_PHASE: "train",
            layout.ENV_RUN_NAME: "ranks",
            layout.ENV_ATTEMPT: f"a-{attempt}",
            layout.ENV_ATTEMPT_NUMBER: str(attempt),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OUT": str(self.out),
            **(env or {}),
        }
        if nodes > 1:
            shared["LOCAL_WORLD_SIZE"] = str(world // nodes)
        newest = self.newest()
        if newest is not None:
            shared[layout.ENV_RESTORE] = str(newest.path)
        self.processes = {rank: self._fork(rank, shared) for rank in range(world)}

    def newest(self) -> Checkpoint | None:
        found, aside = CheckpointStore(self.root / "checkpoints").newest("train")
        assert not aside, aside
        return found

    def step(self) -> int:
        return self.control[Word.STEP]

    def all_train(self) -> bool:
        return all((self.out / f"step-{rank}").exists() for rank in range(self.world))

    def wait(self, within: float = 60.0) -> dict[int, int]:
        """Exit codes by rank; a signal is negative. AssertionError if one hangs."""
        until(self._reap, within=within, what=f"all ranks to end; {self.codes} have")
        return self.codes

    def kill(self) -> None:
        for rank, process in self.processes.items():
            if rank not in self.codes:
                os.kill(process, signal.SIGKILL)
        self.wait()
        self.control.close()

    def done(self) -> list[int]:
        """Steps that each rank has finished."""
        return [int((self.out / f"step-{rank}").read_text()) for rank in range(self.world)]

    def results(self) -> list[dict[str, object]]:
        return [json.loads((self.out / f"end-{rank}.json").read_text()) for rank in range(self.world)]

    def words(self) -> str:
        return "".join(path.read_text() for path in sorted(self.out.glob("*.log")))

    def _reap(self) -> bool:
        for rank, process in self.processes.items():
            if rank not in self.codes:
                pid, status = os.waitpid(process, os.WNOHANG)
                if pid:
                    self.codes[rank] = os.waitstatus_to_exitcode(status)
        return len(self.codes) == self.world

    def _fork(self, rank: int, env: Mapping[str, str]) -> int:
        process = os.fork()
        if process:
            return process
        code = 1
        try:
            os.environ.update(env, RANK=str(rank))
            log = os.open(self.out / f"{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            code = _be_a_rank()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _be_a_rank() -> int:
    from whistlestop.testing.programs import ranks

    ranks.RANK, ranks.OUT = int(os.environ["RANK"]), Path(os.environ["OUT"])
    ranks.FREE = os.environ.get("FREE") == "1"
    try:
        ranks.main()
    except SystemExit as left:
        return int(left.code or 0)
    except BaseException as error:
        import traceback

        traceback.print_exception(error)
        return 1
    return 0


def drill(
    root: Path, kinds: Mapping[str, int], *, world: int = 4, nodes: int = 1, seed: int = 0, free: bool = False
) -> Report:
    """AssertionError at the first thing that is not as it must be. `free`: the ranks train without lockstep."""
    chance, report = random.Random(seed), Report()
    rounds = [kind for kind, count in kinds.items() for _ in range(count)]
    chance.shuffle(rounds)
    for number, kind in enumerate(rounds):
        place = root / f"round-{number}"
        place.mkdir()
        env = _agreed(nodes) | ({"FREE": "1"} if free else {})
        _round(Ranks(place, world, nodes=nodes, env=env), kind, chance, report)
    return report


def _round(ranks: Ranks, kind: str, chance: random.Random, report: Report) -> None:
    try:
        # A signal before the program has come to its loop ends it, as it would end any program.
        first = chance.randint(1 if kind.startswith("signal") else 0, 20)
        until(lambda: ranks.step() >= first, within=120, what=f"step {first}")
        if kind.startswith("signal"):
            until(ranks.all_train, within=120, what="all ranks to be in their loops")
        time.sleep(chance.random() * 0.02)  # any moment within a step
        asked = time.monotonic()
        _ask(ranks, kind, chance)
        codes = ranks.wait(within=120)
        report.seconds.append(time.monotonic() - asked)
        expected = 0 if kind == "stop" else EXIT_PAUSED
        assert set(codes.values()) == {expected}, f"{kind}: {codes}\n{ranks.words()}"
        done = ranks.done()
        assert len(set(done)) == 1, f"{kind}: the ranks ended at different steps: {done}\n{ranks.words()}"
        newest = ranks.newest()
        assert newest is not None, f"{kind}: no checkpoint; ended at {done}\n{ranks.words()}"
        assert newest.step == done[0], f"{kind}: ended at {done[0]}, saved at {newest.step}"
        parts = {name for name in newest.files if name.startswith("ranks/")}
        assert parts == {f"ranks/{rank}/parts/rng.pickle" for rank in range(ranks.world)}, parts
        for result in ranks.results() if kind == "stop" else ():
            assert result["collectives"] in ([2], [0], []), f"collectives in a step: {result}"
            assert result["between"] == 0, f"collectives between steps: {result}"
        report.rounds += 1
        report.kinds[kind] += 1
        report.steps.append(done[0])
    finally:
        ranks.kill()


def _ask(ranks: Ranks, kind: str, chance: random.Random) -> None:
    control = ranks.control
    if kind == "preempt":
        control.set_seconds(Word.PREEMPT_DEADLINE, time.time() + 30)
    elif kind in ("stop", "pause"):
        control[Word.STOP_LEVEL] = Stop.FINISH_PHASE if kind == "stop" else Stop.PAUSE
        control[Word.STOP_SEQ] += 1
    else:
        all_ranks = list(ranks.processes)
        for rank in all_ranks if kind == "signal all ranks" else [chance.choice(all_ranks)]:
            os.kill(ranks.processes[rank], signal.SIGTERM)


def _agreed(nodes: int) -> dict[str, str]:
    return (
        {layout.ENV_AGREE: f"127.0.0.1:{_free_port()}", "WHISTLE_AGREE_KEY": os.urandom(8).hex()} if nodes > 1 else {}
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--stops", type=int, default=50)
    options.add_argument("--preemptions", type=int, default=50)
    options.add_argument("--world", type=int, default=4)
    options.add_argument("--nodes", type=int, default=1)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--free", action="store_true", help="ranks that don't wait for each other in any step")
    given = options.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch  # noqa: F401

    half = given.preemptions // 4
    kinds = {"stop": given.stops, "preempt": given.preemptions - 3 * half, "pause": half,
             "signal one rank": half, "signal all ranks": half}  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="whistle-ranks-") as root:
        report = drill(Path(root), kinds, world=given.world, nodes=given.nodes, seed=given.seed, free=given.free)
    worst = max(report.seconds)
    print(f"{report.rounds} trainings of {given.world} ranks on {given.nodes} nodes, {dict(report.kinds)}: all ranks "
          f"ended at the same step each time, one checkpoint each; longest from request to end {worst:.2f} s"
          )  # fmt: skip


if __name__ == "__main__":
    main()
