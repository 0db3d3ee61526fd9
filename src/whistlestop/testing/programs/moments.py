"""A training whose every moment lasts a while: start-up, loading, training, evaluation, saving. It says where it is."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import whistlestop

WHERE = os.open(os.environ["WHERE"], os.O_WRONLY | os.O_CREAT)


def at(place: str) -> None:
    os.pwrite(WHERE, place.encode(), 0)


def items() -> Iterator[int]:
    while True:
        at("l")
        time.sleep(0.02)
        yield 1


def save() -> dict[str, int]:
    at("s")
    time.sleep(0.03)
    return {"state": 1}


def main() -> None:
    at("p")
    time.sleep(0.1)
    done = 0
    with whistlestop.run("moments", every="4 steps") as run:
        run.saves(save=save, load=lambda state: None)
        for step, _ in run.each(items(), epochs=None):
            at("t")
            time.sleep(0.02)
            run.log(loss=1.0)
            if step.every(3):
                with run.evaluating() as over:
                    for _ in over(range(10)):
                        at("e")
                        time.sleep(0.005)
            done = int(step) + 1
    Path(os.environ["DONE"]).write_text(str(done))


if __name__ == "__main__":
    main()
