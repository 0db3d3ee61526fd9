"""A loop over numbered data, perhaps by several ranks, that goes wrong where it is told to. Environment: LENGTH, BAD
(numbers of batches, by commas, on rank BAD_RANK), PACE, DIE (exit with these words on stderr instead of a NaN).

What each attempt trained on is appended to trained-RANK as lines "attempt step batch"."""

import os
import sys
import time

import whistlestop

LENGTH, PACE = int(os.environ.get("LENGTH", "60")), float(os.environ.get("PACE", "0.01"))
BAD = {int(each) for each in os.environ.get("BAD", "").split(",") if each}
RANK, BAD_RANK = int(os.environ.get("RANK", "0")), int(os.environ.get("BAD_RANK", "0"))
ATTEMPT = os.environ.get("WHISTLE_ATTEMPT_NUMBER", "0")


class Model:
    weight = 0.0

    def state_dict(self) -> dict[str, float]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.weight = state["weight"]


model = Model()
with whistlestop.run() as run, open(f"trained-{RANK}", "a") as trained:
    run.track(model=model)
    for step, batch in run.each(range(LENGTH)):
        trained.write(f"{ATTEMPT} {int(step)} {batch}\n")
        trained.flush()
        if batch in BAD and RANK == BAD_RANK:
            if "DIE" in os.environ:
                sys.exit(os.environ["DIE"])
            model.weight = float("nan")
        model.weight += 1.0
        run.log(loss=1.0 / model.weight)
        time.sleep(PACE)
    print(f"weight {model.weight}", flush=True)
