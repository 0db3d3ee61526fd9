"""SIGKILL to the server at random moments, during submits, stops, kills and training: nothing is lost or doubled.

python -m whistlestop.testing.restart_drill --rounds 100
"""

import argparse
import itertools
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from whistlestop.domain.errors import Refused, WhistleError
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.watchers import PROGRAMS, alive_with
from whistlestop.wire.api import AttemptView, LogLineView, RunView
from whistlestop.wire.spec_file import spec_to_text


@dataclass
class Acknowledged:
    """What the server said yes to before it died: it has to keep all of it."""

    submitted: list[str] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)
    killed: set[str] = field(default_factory=set)


@dataclass
class Report:
    rounds: int = 0
    runs: int = 0
    stopped: int = 0
    killed: int = 0
    points: int = 0
    lines: int = 0
    attempts: int = 0


def drill(server: ServerProcess, rounds: int, *, seed: int = 0) -> Report:
    chance, kept = random.Random(seed), Acknowledged()
    trace = server.data / "trace"
    _submit(server, kept, trace, steps=10**6)  # one run trains through all of it
    for _ in range(rounds):
        asking = threading.Thread(target=_ask, args=(server, kept, trace, random.Random(chance.random())))
        asking.start()
        time.sleep(chance.random() * 0.4)
        server.kill()
        asking.join()
        server.start()
    _end(server, kept)
    return _judge(server, kept, trace, rounds)


def _ask(server: ServerProcess, kept: Acknowledged, trace: Path, chance: random.Random) -> None:
    """Requests until the server is gone. Only what was answered counts."""
    try:
        for _ in range(5):
            match chance.choice(("submit", "submit", "stop", "kill")):
                case "submit":
                    _submit(server, kept, trace, steps=chance.choice((20, 100, 10**6)))
                case "stop":
                    run = chance.choice(kept.submitted[1:] or [""])
                    if run:
                        server.client().stop(run)
                        kept.stopped.add(run)
                case "kill":
                    run = chance.choice(kept.submitted[1:] or [""])
                    if run:
                        server.client().kill(run)
                        kept.killed.add(run)
    except Refused:
        pass  # it had ended already
    except (WhistleError, OSError, ValueError):
        pass  # the server is gone: not acknowledged


def _submit(server: ServerProcess, kept: Acknowledged, trace: Path, *, steps: int) -> None:
    env = {"STEPS": str(steps), "PACE": "0.005", "TRACE": str(trace)}
    spec = {"name": "drill", "phases": [{"name": "main", "command": [sys.executable, "loop.py"], "env": env}]}
    run = server.client().submit(spec_to_text(spec), in_place=str(PROGRAMS), env={"PATH": "/usr/bin:/bin"})
    kept.submitted.append(run.id)


def _end(server: ServerProcess, kept: Acknowledged) -> None:
    """Everything that still runs is stopped with its result; then all of it has an end that can be judged. Also what
    was submitted and never answered: it may be there, and then it holds slots."""
    with server.client() as client:
        for view in list(client.all_runs()):
            try:
                client.stop(view.id)
            except Refused:
                continue
    for run in kept.submitted:
        server.wait(run, within=240)


def _judge(server: ServerProcess, kept: Acknowledged, trace: Path, rounds: int) -> Report:
    report = Report(rounds=rounds, runs=len(kept.submitted), stopped=len(kept.stopped), killed=len(kept.killed))
    starts = [line.split()[0] for line in trace.read_text().splitlines()] if trace.exists() else []
    assert len(starts) == len(set(starts)), "an attempt's program was started twice"
    with server.client() as client:
        assert len({view.id for view in client.all_runs()} & set(kept.submitted)) == len(kept.submitted)
        for run in kept.submitted:
            view = client.run(run)
            assert view.status in ("completed", "killed"), f"{run} is {view.status}: {view.reason}"
            if run in kept.killed:
                assert view.status == "killed", f"{run} was killed with an answer, and is {view.status}"
            attempts = view.phases[0].attempts
            _one_after_another(attempts)
            report.attempts += len(attempts)
            lines = _all_lines(server, run)
            for attempt in attempts:
                report.lines += _check_lines(view, attempt, [line for line in lines if line.attempt == attempt.number])
            report.points += _check_points(view, client.metrics(run, ["count"]).series, attempts)
            assert not alive_with(f"WHISTLE_RUN={run}"), f"{run} has ended, and something of it lives"
    return report


def _one_after_another(attempts: list[AttemptView]) -> None:
    for before, after in itertools.pairwise(attempts):
        assert before.ended_at is not None
        assert before.ended_at <= after.started_at, "two attempts of one phase lived at once"


def _check_lines(view: RunView, attempt: AttemptView, lines: list[LogLineView]) -> int:
    """Every step's line once and in order: what the program printed is what is kept."""
    assert [line.line for line in lines] == list(range(1, len(lines) + 1))
    steps = [int(line.text.split()[1]) for line in lines if line.text.startswith("step ")]
    first = attempt.resumed_from or 0
    assert steps == list(range(first, first + len(steps))), f"{view.id}: lines lost or doubled"
    if attempt.status == "completed":
        assert len(steps) == (attempt.last_step or 0) - first
    return len(lines)


def _check_points(view: RunView, series: object, attempts: list[AttemptView]) -> int:
    points = [point for item in series for point in item.points]  # type: ignore[attr-defined]
    steps = [step for step, _, _ in points]
    assert steps == list(range(len(steps))), f"{view.id}: points lost or doubled"
    assert [value for _, value, _ in points] == [step + 1 for step in steps], f"{view.id}: wrong values"
    if attempts and attempts[-1].status == "completed":
        assert len(steps) == attempts[-1].last_step, (
            f"{view.id}: {len(steps)} points for {attempts[-1].last_step} steps"
        )
    return len(points)


def _all_lines(server: ServerProcess, run: str) -> list[LogLineView]:
    lines: list[LogLineView] = []
    cursor: str | None = None
    with server.client() as client:
        while True:
            page = client.logs(run, after=cursor, limit=10_000)
            lines += page.lines
            cursor = page.cursor
            if not page.more:
                return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="whistle-drill-") as directory,
        ServerProcess(Path(directory), slots=3) as server,
    ):
        report = drill(server, chosen.rounds, seed=chosen.seed)
    print(f"seed {chosen.seed}: {report}")


if __name__ == "__main__":
    main()
