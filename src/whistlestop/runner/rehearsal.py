"""The rehearsal of a resume: the same program straight, and interrupted and resumed, must come to the same bits.

It plays the runner towards the program, with a bare channel and no server. What one process does is in
rehearsal_process.py, the comparison in rehearsal_report.py.
"""

import os
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from whistlestop.domain.errors import BadRequest
from whistlestop.runner.leaving import Leaving
from whistlestop.runner.rehearsal_process import Played, Stage, play
from whistlestop.runner.rehearsal_report import Difference, Kind, Outcome, Report, compare, failed

__all__ = ["Difference", "Kind", "Report", "rehearse"]

SECONDS = 1800.0
_SEED = 17


def rehearse(
    command: Sequence[str],
    *,
    steps: int = 20,
    at: int | Sequence[int] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    timeout: float = SECONDS,
    ignore: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Run `command` to `steps` steps, then again with a pause at `at` and a resume, and compare.

    `at`: one step or several; without it, one in the middle that is the same each time. `timeout` counts for each
    process. `ignore`: patterns of leaves that do not count, as `trainer/*_runtime`. A program that can't be rehearsed
    gives a report with a `problem`, not an error.
    """
    given = [at] if isinstance(at, int) else sorted(set(at or ()))
    if steps < 2:
        raise BadRequest("a rehearsal takes at least 2 steps")
    if any(not 0 < each < steps for each in given):
        raise BadRequest(f"the interruption must be at one of the steps 1 to {steps - 1}")
    with Leaving() as leaving, tempfile.TemporaryDirectory(prefix="whistle-rehearsal-") as root, leaving.allowed():
        stage = Stage(
            command=tuple(command),
            root=Path(root),
            env=dict(os.environ if env is None else env),
            cwd=Path(cwd or "."),
            timeout=timeout,
            say=say,
        )
        return _rehearse(stage, steps, given, tuple(ignore))


def _rehearse(stage: Stage, steps: int, given: list[int], ignore: tuple[str, ...]) -> Report:
    straight = play(stage, "straight", "the straight run", to=steps)
    if straight.trouble:
        return failed(stage.command, steps, given, straight.trouble)
    end = straight.step
    if end < 2:
        return failed(stage.command, end, given, f"It ends after {end} step: there is nothing to interrupt.")
    if any(each >= end for each in given):
        return failed(stage.command, end, given, f"It ends by itself after {end} steps: interrupt it before that.")
    points = given or [_middle(end)]
    resumed: dict[int, Played] = {}
    for point in points:
        paused, outcome = _interrupted(stage, point, steps, end)
        if outcome.trouble:
            return failed(stage.command, end, points, outcome.trouble)
        resumed[paused.step] = outcome
    first = Outcome.of(straight, ignore)
    others = {point: Outcome.of(each, ignore) for point, each in resumed.items()}
    again: Outcome | None = None
    if any(other != first for other in others.values()):
        # Equal results prove that the program repeats itself; unequal ones leave the question open.
        repeated = play(stage, "again", "the straight run once more", to=steps)
        if repeated.trouble:
            return failed(stage.command, end, points, repeated.trouble)
        again = Outcome.of(repeated, ignore)
    return compare(stage.command, end, first, again, others)


def _interrupted(stage: Stage, point: int, steps: int, end: int) -> tuple[Played, Played]:
    """The part before the pause, and the whole line at its end."""
    line = f"interrupted-{point}"
    paused = play(stage, line, f"the run that pauses at step {point}", to=point, pause=True)
    if paused.trouble:
        return paused, paused
    if paused.step >= end:  # several steps are one to its framework
        why = f"It could be paused only at step {paused.step}, where the straight run ended: take more steps."
        return paused, replace(paused, trouble=why)
    what = f"the run resumed at step {paused.step}"
    resumed = play(stage, line, what, to=steps, restore=paused.checkpoint, number=2)
    return paused, resumed.after(paused)


def _middle(end: int) -> int:
    """Not the very middle: there an epoch often ends, and much that is not saved does no harm."""
    low, high = max(1, end // 4), max(1, (3 * end) // 4)
    return random.Random(_SEED).randint(low, min(high, end - 1))
