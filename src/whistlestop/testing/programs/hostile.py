"""A program that does not want to end. `hostile.py MODE`: each mode hides or holds on in another way.

It says "ready" once everything is in place, so that a drill can choose its moment.
"""

import os
import signal
import sys
import time


def hold() -> None:
    while True:
        time.sleep(3600)


def child(work: "object") -> None:
    if os.fork() == 0:
        try:
            work()  # type: ignore[operator]
        finally:
            os._exit(0)


def forks() -> None:
    for _ in range(3):
        child(hold)


def sessions() -> None:
    def leave() -> None:
        os.setsid()
        hold()

    for _ in range(3):
        child(leave)


def double_forks() -> None:
    def twice() -> None:
        os.setsid()
        child(hold)  # its parent ends at once: an orphan without a session of ours

    for _ in range(3):
        child(twice)


def ignores() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child(hold)


def stops_itself() -> None:
    def stopped() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        hold()

    child(stopped)


def workers() -> None:
    for _ in range(32):
        child(hold)


def respawns() -> None:
    """Whoever is killed one by one comes back."""

    def keep() -> None:
        os.setsid()
        while True:
            made = os.fork()
            if made == 0:
                hold()
            os.waitpid(made, 0)

    for _ in range(4):
        child(keep)


MODES = {work.__name__: work for work in (forks, sessions, double_forks, ignores, stops_itself, workers, respawns)}

if __name__ == "__main__":
    MODES[sys.argv[1]]()
    print("ready", flush=True)
    hold()
