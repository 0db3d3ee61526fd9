"""A small real loop: a model of one number, tracked, logged, evaluated. STEPS, PACE (seconds) and FAIL_AT by env."""

import os
import time

import whistlestop

STEPS, PACE = int(os.environ.get("STEPS", "50")), float(os.environ.get("PACE", "0.01"))
FAIL_AT = int(os.environ.get("FAIL_AT", "-1"))


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
    for step in run.steps(total=STEPS, per_epoch=10):
        if int(step) == FAIL_AT and not os.path.exists("failed-once"):
            open("failed-once", "w").close()
            raise RuntimeError("the loss went away")
        model.weight += 1.0
        run.log(loss=1.0 / model.weight, weight=model.weight)
        print(f"step {int(step)} weight {model.weight}", flush=True)
        time.sleep(PACE)
    print(f"after the loop: weight {model.weight}", flush=True)
