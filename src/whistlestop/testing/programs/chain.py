"""A training whose state can be told to be right from its step alone: a chain of hashes, beside much that is saved.

STEPS, PACE (seconds a step), SIZE (bytes of ballast, of which a tenth changes with every step).
"""

import os
import sys
import time
from typing import Any

from links import ballast, chained  # type: ignore[import-not-found]

import whistlestop

STEPS, PACE = int(os.environ.get("STEPS", "1000000")), float(os.environ.get("PACE", "0.01"))
SIZE = int(os.environ.get("SIZE", "1000000"))


class State:
    step, link = 0, b""

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "link": self.link,
            "moves": ballast(self.step, SIZE // 10),
            "stays": bytes(SIZE * 9 // 10),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step, self.link = state["step"], state["link"]
        if self.link != chained(self.step) or state["moves"] != ballast(self.step, SIZE // 10):
            print(f"WRONG at step {self.step}", flush=True)
            sys.exit(9)


state = State()
with whistlestop.run() as run:
    run.track(state=state)
    restored = run.restore()
    if restored is not None and restored.step != state.step:
        print(f"WRONG: step {restored.step} holds {state.step}", flush=True)
        sys.exit(9)
    for step in run.steps(total=STEPS):
        state.link = chained(int(step) + 1, state.link, int(step))
        state.step = int(step) + 1
        time.sleep(PACE)
    print(f"end {state.link.hex()}", flush=True)
