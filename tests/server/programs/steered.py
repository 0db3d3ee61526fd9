"""A loop that is changed on its way: a number grows by a declared rate. STEPS and PACE (seconds) by env."""

import os
import time

import whistlestop

STEPS, PACE = int(os.environ.get("STEPS", "100000")), float(os.environ.get("PACE", "0.005"))


class Model:
    def __init__(self) -> None:
        self.weight = 0.0

    def state_dict(self) -> dict[str, float]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.weight = state["weight"]


model = Model()
with whistlestop.run() as run:
    run.track(model=model)
    for _step in run.steps(total=STEPS):
        rate = run.param("rate", 1.0, low=0.0, high=10.0)
        model.weight += float(rate)
        run.log(rate=float(rate), weight=model.weight)
        time.sleep(PACE)
    print(f"after the loop: weight {model.weight}", flush=True)
