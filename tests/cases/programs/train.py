"""What every case runs: a real training as the environment's CASE says it, with the fault that it says, if any."""

import json
import math
import os
import sys
import time

CASE = json.loads(os.environ["CASE"])


def faults():
    """Each half of the library has errors and places of its own."""
    if CASE["split"] == "tuning":
        import faults as mine
    else:
        import other_faults as mine
    return mine


if CASE.get("when") == "import":
    getattr(faults(), CASE["fault"])(CASE)

import numpy as np  # noqa: E402
from models import MODELS  # noqa: E402

import whistlestop  # noqa: E402

RANK = int(os.environ.get("RANK", "0"))


def rate(step):
    """The learning rate of a step."""
    lr, shape, total = CASE.get("lr", 0.05), CASE.get("schedule", ""), CASE["steps"]
    if shape == "warmup":
        return lr * min(1.0, (step + 1) / CASE.get("warm", total // 8))
    if shape == "cosine":
        return lr * 0.5 * (1 + math.cos(math.pi * step / total))
    if shape == "restarts":
        part = CASE.get("cycle", total // 4)
        return lr * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step % part) / part)))
    if shape == "decay":
        return lr * CASE.get("factor", 0.2) ** (step // CASE.get("every", total // 3))
    if shape == "exponential":  # somebody has written * where / was meant
        return lr * CASE.get("factor", 1.02) ** max(0, step - CASE.get("from", total // 2))
    if shape == "off":  # a scheduler that reached its end long before the training does
        return lr if step < CASE.get("from", total // 3) else 0.0
    return lr


class Meeting:
    """Ranks that wait for each other at every step, through a file."""

    def __init__(self):
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        if self.world > 1:
            path = os.path.join(os.environ["MEETING"], "counts")
            if not os.path.exists(path):
                with open(path, "ab") as file:
                    file.truncate(8 * self.world)
            self.counts = np.memmap(path, np.int64, "r+", shape=(self.world,))

    def wait(self, step):
        if self.world > 1:
            self.counts[RANK] = step + 1
            while int(self.counts.min()) <= step:
                time.sleep(0.0002)


def work(seconds):
    """What a device would take: most of it waiting, some of it computing."""
    if CASE.get("busy"):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
    elif seconds > 0:
        time.sleep(seconds)


def pace(step, rng):
    """Seconds of work of a step."""
    each = CASE.get("pace", 0.004)
    if CASE.get("jitter"):
        each *= float(rng.lognormal(0.0, CASE["jitter"]))
    if CASE.get("slow_first") and step == 0:
        each += CASE["slow_first"]
    if CASE.get("slows") and step >= CASE.get("slows_from", 0):
        each *= 1 + CASE["slows"] * (step - CASE.get("slows_from", 0)) / CASE["steps"]
    if CASE.get("slow_at_once") and step >= CASE["at"]:
        each *= CASE["slow_at_once"]
    if CASE.get("warms") and step < CASE["warms"]:
        each *= CASE.get("warm_factor", 4.0)
    if CASE.get("slow_rank") == RANK and RANK:
        each += CASE.get("behind", 0.01)
    return each


def main():
    rng = np.random.default_rng(CASE["seed"] + 1000 * RANK)
    if CASE.get("when") == "start":
        getattr(faults(), CASE["fault"])(CASE)
    model = MODELS[CASE["model"]](rng, dict(CASE.get("options", {})))
    if CASE.get("over"):  # how far above what least squares bears
        CASE["lr"] = CASE["over"] / float(np.linalg.eigvalsh(model.x.T @ model.x / len(model.x)).max())
    names, every = CASE.get("names", {}), CASE.get("evaluate_every", 0)
    meeting, leak = Meeting(), []
    with whistlestop.run(every=CASE.get("save_every")) as run:
        run.track(params=model.params)
        if CASE.get("when") == "track":
            getattr(faults(), CASE["fault"])(CASE, run)
        for step in run.steps(CASE["steps"], per_epoch=CASE.get("per_epoch")):
            number = int(step)
            if CASE.get("when") == "step" and number == CASE["at"] and CASE.get("on_rank", RANK) == RANK:
                getattr(faults(), CASE["fault"])(CASE)
            began = time.perf_counter()
            if CASE.get("starved") and number >= CASE.get("at", 0):
                time.sleep(CASE["starved"])
            ready = time.perf_counter()
            if CASE.get("leaks"):  # every step goes over all that was kept so far
                leak.append(np.ones(CASE["leaks"]))
                sum(float(each.sum()) for each in leak)
            lr = rate(number)
            told = model.learn(number, lr)
            if CASE.get("half"):  # half precision, and a scale that only ever grows
                told["loss"] = float(np.float16(told["loss"] * CASE["half"] ** number))
            if CASE.get("ratio"):  # a metric of its own that divides by what becomes zero
                told["ratio"] = float(np.float64(told["loss"]) / np.float64(max(0, CASE["at"] - number)) * 0)
            work(pace(number, rng))
            if CASE.get("log_times"):
                told |= {"data_time": ready - began, "batch_time": time.perf_counter() - began}
            if CASE.get("log_lr", True):
                told["lr"] = lr
            for extra in range(CASE.get("many", 0)):
                told[f"layer{extra}/weight_norm"] = 1.0 + 0.1 * math.sin(number / 20 + extra) + 0.01 * rng.random()
            if CASE.get("only"):
                told = {name: value for name, value in told.items() if name in CASE["only"]}
            if number % CASE.get("log_every", 1) == 0:
                run.log_at(number, {names.get(name, name): value for name, value in told.items()})
            if every and (number + 1) % every == 0:
                with run.evaluating():
                    work(
                        CASE.get("evaluation", 0.0)
                        + (CASE.get("long_evaluation", 0.0) if number + 1 >= CASE.get("at", 0) else 0)
                    )
                    seen = model.evaluate()
                    if CASE.get("only"):
                        seen = {name: value for name, value in seen.items() if name in CASE["only"]}
                    run.log_at(number, {names.get(name, name): value for name, value in seen.items()})
            if CASE.get("prints") and number % CASE["prints"] == 0:
                print(f"step {number} " + " ".join(f"{name}={value:.4g}" for name, value in told.items()), flush=True)
            if CASE.get("warns") and number % CASE["warns"] == 0:
                print(
                    f"UserWarning: {CASE.get('warning', 'the given buffer is not writable')}",
                    file=sys.stderr,
                    flush=True,
                )
            meeting.wait(number)
    if CASE.get("when") == "end":
        getattr(faults(), CASE["fault"])(CASE)
    if CASE.get("prints"):
        print("done", flush=True)


if __name__ == "__main__":
    main()
