"""Paused and resumed again and again: no slot, no file and no memory is leaked, and the end is that of an uninterrupted
training.

python -m whistlestop.testing.pause_drill --rounds 100
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from whistlestop.blobs.manifest import TRASH
from whistlestop.engines.attempt_files import memory_of
from whistlestop.testing.programs.links import chained
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.watchers import PROGRAMS, alive_with
from whistlestop.wire.api import AttemptView

WARM = 10  # rounds before the first count: caches and pools have their size then
SLACK_BYTES = 40 << 20
SLACK_FILES, SLACK_HANDLES = 4, 12


@dataclass(frozen=True)
class Taken:
    """What a server holds of its machine."""

    files: int  # below its directory, what was removed and is kept for a day aside
    memory: int  # of the run's attempts: what they hold of it
    handles: int
    resident: int  # bytes

    @classmethod
    def of(cls, server: ServerProcess, attempts: Sequence[AttemptView]) -> "Taken":
        """When all attempts have ended: the engine forgets them, a moment later."""
        assert server.process is not None
        pid = server.process.pid
        until(lambda: not list(server.data.glob("attempts/*")), within=60, what="every attempt to be forgotten")
        files = [path for path in server.data.rglob("*") if not any(TRASH.fullmatch(part) for part in path.parts)]
        memory = sum(memory_of(attempt.id).exists() for attempt in attempts)
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(len(files), memory, len(os.listdir(f"/proc/{pid}/fd")), pages * os.sysconf("SC_PAGE_SIZE"))


@dataclass
class Report:
    rounds: int
    steps: int
    before: Taken
    after: Taken

    def __str__(self) -> str:
        grown = (self.after.resident - self.before.resident) / (1 << 20)
        return (
            f"{self.rounds} times paused and resumed, {self.steps} steps: the end is the right one; files "
            f"{self.before.files} -> {self.after.files}, handles {self.before.handles} -> {self.after.handles}, "
            f"memory of the server {grown:+.1f} MiB"
        )


def drill(server: ServerProcess, rounds: int) -> Report:
    env = {"STEPS": "1000000", "PACE": "0.01", "SIZE": "300000"}
    command = [sys.executable, "chain.py"]
    phase = {"name": "train", "command": command, "env": env, "checkpoint": {"every": "1000000 steps"}}
    run = server.submit(phase, name="again and again", directory=PROGRAMS).id
    before: Taken | None = None
    last, warm = 0, min(WARM, rounds // 2)
    with server.client() as client:
        for number in range(rounds):
            until(partial(_is_beyond, server, run, last + 3), within=60, what="some steps")
            client.pause(run)
            view = server.wait(run, "waiting", within=60)
            assert not alive_with(f"WHISTLE_RUN={run}\0"), "paused, and something of it lives"
            newest = max(client.checkpoints(run), key=lambda each: each.step)
            assert newest.step >= last + 3, f"paused behind {last + 3}, saved at {newest.step}"
            last = newest.step
            assert view.phases[0].attempts[-1].ended_at is not None
            if number == warm:
                before = Taken.of(server, view.phases[0].attempts)
            client.resume(run)
        until(partial(_is_beyond, server, run, last + 3), within=60, what="some more steps")
        client.stop(run)
        view = server.wait(run, within=60)
        assert view.status == "completed", f"{view.status}: {view.reason}"
        attempts = view.phases[0].attempts
        for earlier, later in itertools.pairwise(attempts):
            assert later.resumed_from == earlier.last_step, "a step was lost or done twice"
        other = server.submit({"name": "t", "kind": "task", "command": "true", "slots": server.slots}, name="all slots")
        assert server.wait(other.id, within=60).status == "completed", "a slot was not given back"
        steps = attempts[-1].last_step or 0
    after = Taken.of(server, attempts)
    assert before is not None, "a drill needs a round"
    ends = [line.split()[1] for line in server.logs(run) if line.startswith("end ")]
    assert ends == [chained(steps).hex()], "the end is not what an uninterrupted training would have given"
    assert after.files <= before.files + SLACK_FILES, f"files were left: {before} -> {after}"
    assert after.handles <= before.handles + SLACK_HANDLES, f"handles were left: {before} -> {after}"
    assert after.resident <= before.resident + SLACK_BYTES, f"memory was left: {before} -> {after}"
    assert not after.memory, f"slots were left in memory: {before} -> {after}"
    return Report(rounds, steps, before, after)


def _is_beyond(server: ServerProcess, run: str, step: int) -> bool:
    with server.client() as client:
        return (client.run(run).phases[0].progress.step or 0) >= step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    chosen = parser.parse_args()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="whistle-drill-") as directory,
        ServerProcess(Path(directory)) as server,
    ):
        print(drill(server, chosen.rounds))
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
