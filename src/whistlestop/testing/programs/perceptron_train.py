"""perceptron.py under Whistlestop."""

import time

from perceptron import PACE, STEPS, Training  # type: ignore[import-not-found]

import whistlestop

training = Training()
with whistlestop.run() as run:
    run.track(training=training)
    for _ in run.steps(total=STEPS):
        run.log(loss=training.step())
        time.sleep(PACE)
    print(f"end {training.hash()}", flush=True)
