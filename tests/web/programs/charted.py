"""A real loop with much to draw: a spike of one step, a NaN, names with HTML, prefixes. STEPS, PACE, LINES by env."""

import math
import os
import random
import time

import whistlestop

STEPS, PACE = int(os.environ.get("STEPS", "400")), float(os.environ.get("PACE", "0.01"))
LINES, SLOPE = int(os.environ.get("LINES", "0")), float(os.environ.get("SLOPE", "0.01"))
random.seed(os.environ.get("SEED", "1"))


class Model:
    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


model = Model()
with whistlestop.run() as run:
    run.track(model=model)
    print("INFO a line with <b>bold</b> & <img src=x onerror=\"document.title='owned'\">", flush=True)
    print("\x1b[31mred words\x1b[0m and plain ones", flush=True)
    print("WARNING the learning rate is high", flush=True)
    print("ERROR the needle in the haystack", flush=True)
    print("long " + "x" * 3000, flush=True)
    for number in range(LINES):
        print(f"line {number} of many")
    for step in run.steps(total=STEPS, per_epoch=50):
        at = int(step)
        model.step = at
        loss = 2 * math.exp(-SLOPE * at) + 0.1 + random.random() * 0.05
        values = {
            "loss": 40.0 if at == 137 else loss,
            "lr": 1e-3 * min(1.0, (at + 1) / 100),
            "grad_norm": math.nan if at == 90 else 1 + random.random(),
            "optim/beta": 0.9 + at * 1e-5,
            "optim/<b onmouseover=alert(1)>": float(at % 7),
            "accuracy": 1 - math.exp(-SLOPE * at),
        }
        if at % 10 == 0:
            values["val/loss"] = loss * 1.1
        run.log(**values)
        if at % 20 == 0:
            print(f"INFO step {at} loss {loss:.4f}", flush=True)
        time.sleep(PACE)
