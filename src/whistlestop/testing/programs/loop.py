"""A training loop for drills: it counts, logs and prints every step, so that a lost or doubled one shows.

STEPS, PACE (seconds a step), IMPORT (seconds before the SDK is attached), SAVE (seconds a save takes), HOSTILE (a mode
of hostile.py to be in while training), TRACE (a file that gets a line for every start of this program).
"""

import os
import time

time.sleep(float(os.environ.get("IMPORT", "0")))

import hostile  # type: ignore[import-not-found]  # noqa: E402

import whistlestop  # noqa: E402

STEPS, PACE = int(os.environ.get("STEPS", "1000000")), float(os.environ.get("PACE", "0.005"))


class Counter:
    count = 0

    def state_dict(self) -> dict[str, int]:
        time.sleep(float(os.environ.get("SAVE", "0")))
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


if trace := os.environ.get("TRACE"):
    with open(trace, "a") as file:
        file.write(f"{os.environ.get('WHISTLE_ATTEMPT')} {os.getpid()}\n")
if mode := os.environ.get("HOSTILE"):
    hostile.MODES[mode]()
counter = Counter()
with whistlestop.run() as run:
    run.track(counter=counter)
    for step in run.steps(total=STEPS, per_epoch=100):
        counter.count += 1
        run.log(count=counter.count, step=int(step))
        print(f"step {int(step)}", flush=True)
        time.sleep(PACE)
    print(f"end {counter.count}", flush=True)
