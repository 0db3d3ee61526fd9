"""Stops at random moments of a training: in start-up, loading, training, evaluation, saving. None is ignored, and none
takes longer than the step that runs and one save: counted in steps, not in seconds.

python -m whistlestop.testing.stop_drill --stops 500
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.channel import layout
from whistlestop.channel.control import Control
from whistlestop.channel.layout import EXIT_PAUSED, Loop, Word
from whistlestop.domain.ids import new_id
from whistlestop.domain.stops import Stop

PLACES = {"": "before start-up", "p": "start-up", "l": "loading", "t": "training", "e": "evaluation", "s": "saving"}
_SECONDS = 60.0  # far beyond any of it: only against hanging


@dataclass
class Report:
    places: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # from the order to the end of the process

    @property
    def stops(self) -> int:
        return sum(self.places.values())


def drill(root: Path, stops: int, *, seed: int = 0, beside: int = 2) -> Report:
    """AssertionError at the first stop that is not as it must be."""
    report = Report()
    with ThreadPoolExecutor(beside) as pool:
        for place, seconds in pool.map(lambda number: _one(root / str(number), seed * 100_000 + number), range(stops)):
            report.places[place] += 1
            report.seconds.append(seconds)
    return report


def _one(root: Path, seed: int) -> tuple[str, float]:
    chance = random.Random(seed)
    root.mkdir()
    (root / "channel").mkdir()
    control = Control.create(root / "channel" / layout.CONTROL_FILE)
    where, done = root / "where", root / "done"
    env = {name: value for name, value in os.environ.items() if not name.startswith("WHISTLE_")}
    env |= {
        layout.ENV_CHANNEL: str(root / "channel"),
        layout.ENV_CHECKPOINTS: str(root / "checkpoints"),
        layout.ENV_PHASE: "train",
        layout.ENV_ATTEMPT: new_id("a"),
        layout.ENV_ATTEMPT_NUMBER: "1",
        "WHERE": str(where),
        "DONE": str(done),
    }
    program = subprocess.Popen(
        [sys.executable, "-m", "whistlestop.testing.programs.moments"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        time.sleep(chance.uniform(0.0, 1.5))  # any moment
        pause = chance.random() < 0.3
        place = where.read_text() if where.exists() else ""
        control[Word.STOP_SEQ] = 1
        control[Word.STOP_LEVEL] = Stop.PAUSE if pause else Stop.FINISH_PHASE
        asked, running = time.monotonic(), control[Word.STEP]  # the step with this index runs now
        words, _ = program.communicate(timeout=_SECONDS)
        seconds = time.monotonic() - asked
        assert program.returncode == (EXIT_PAUSED if pause else 0), f"seed {seed}: {program.returncode} {words}"
        loop, step = Loop(control[Word.LOOP]), control[Word.STEP]
        assert loop is (Loop.PAUSED if pause else Loop.STOPPED), f"seed {seed}, {PLACES[place]}: {loop!r}"
        assert step <= running + 1, f"seed {seed}, {PLACES[place]}: asked in step {running}, ended at {step}"
        kept = CheckpointStore(root / "checkpoints").list("train")
        assert step == 0 or kept[0].step == step, f"seed {seed}, {PLACES[place]}: ended at {step}, saved {kept[:1]}"
        assert pause or int(done.read_text()) == step, f"seed {seed}: the code behind the loop"
        return PLACES[place], seconds
    finally:
        if program.poll() is None:
            program.kill()
            program.communicate()
        control.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--stops", type=int, default=500)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="whistle-stops-") as root:
        report = drill(Path(root), given.stops, seed=given.seed)
    ranked = sorted(report.seconds)
    print(f"{report.stops} stops and pauses, none ignored, each within the step that ran and one save: "
          f"{dict(report.places)}; until the process had ended: median {ranked[len(ranked) // 2]:.2f} s, "
          f"longest {ranked[-1]:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
