"""A loop over numbered data, perhaps by several ranks, that goes wrong where it is told to. Environment: LENGTH, BAD
(numbers of batches, by commas, on rank BAD_RANK), PACE, DIE (exit with these words on stderr instead of a NaN), HALT
(instead, the first attempt stops itself, as a process does that hangs).

What each attempt trained on is appended to trained-RANK as lines "attempt step batch"."""

import os
import signal
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
            if "HALT" not in os.environ:
                model.weight = float("nan")
            elif ATTEMPT == "1":
                os.kill(os.getpid(), signal.SIGSTOP)
        model.weight += 1.0
        run.log(loss=1.0 / model.weight)
        # Slower with a NaN: on a busy machine, too, it is found before all is done.
        time.sleep(PACE if model.weight == model.weight else 10 * PACE)
    print(f"weight {model.weight}", flush=True)
