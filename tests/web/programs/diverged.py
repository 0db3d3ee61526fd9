"""A loss of 1.0 that is NaN from step 50 on, to step 300; a spike at step 20 of `spiky`."""

import math

import whistlestop

with whistlestop.run() as run:
    for step in run.steps(total=300):
        at = int(step)
        run.log(loss=1.0 if at < 50 else math.nan, spiky=1000.0 if at == 20 else 1 + at / 300)
