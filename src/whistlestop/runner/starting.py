"""Starts a command once for each rank of this node and waits for all of them. A script by itself: it is run without our
package, by whatever interpreter the runner has.

The ranks are in this process's session and group: a signal to the group reaches them without us. The first that fails
decides; the others can't go on without it.
"""

import json
import os
import signal
import sys
import time

PAUSED = 75  # saved and left: no failure, if all do
PATIENCE = 20.0  # seconds for the others to end by themselves after one has failed; they may have something to say
LAST = 10.0  # and after SIGTERM


def main(command: list[str]) -> int:
    ranks = json.loads(os.environ.pop("WHISTLE_RANK_ENV"))
    caught = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
    pipes = os.environ.get("WHISTLE_CHANNEL", "")
    pids = [_start(command, variables, caught, f"{pipes}/rank-{local}") for local, variables in enumerate(ranks)]
    for number in caught:
        signal.signal(number, lambda *_: None)  # they are the ranks' business; we stay until the last has ended
    return _wait(pids)


def _start(command: list[str], variables: dict[str, str], caught: list[signal.Signals], pipe: str) -> int:
    """`pipe`: each rank has its own for what it prints, .out and .err; without them it prints where we do."""
    env = {**os.environ, **variables}
    pid = os.fork()
    if pid:
        return pid
    try:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)
        for place, stream in ((1, "out"), (2, "err")):
            if os.path.exists(f"{pipe}.{stream}"):
                end = os.open(f"{pipe}.{stream}", os.O_WRONLY)
                os.dup2(end, place)
                os.close(end)
        os.execvpe(command[0], command, env)
    except OSError as error:
        os.write(2, f"{command[0]} can't be started: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _wait(pids: list[int]) -> int:
    left, codes, decisive = set(pids), [], 0
    end = float("inf")
    stage = 0
    while left:
        pid, status = _next(end - time.monotonic())
        if pid in left:
            left.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            codes.append(code)
            if code not in (0, PAUSED) and not decisive:
                decisive, end = code, time.monotonic() + PATIENCE
        elif pid is None and left and time.monotonic() >= end:
            _signal(left, signal.SIGKILL if stage else signal.SIGTERM)
            stage, end = stage + 1, time.monotonic() + LAST
    if not decisive and PAUSED in codes:
        decisive = PAUSED
    if decisive < 0:  # end as it did
        signal.signal(-decisive, signal.SIG_DFL) if -decisive != signal.SIGKILL else None
        os.kill(os.getpid(), -decisive)
    return decisive


def _next(seconds: float) -> tuple[int | None, int]:
    """The next child that has ended; None: none has, for so long."""
    if seconds == float("inf"):
        return os.wait()
    until = time.monotonic() + max(0.0, seconds)
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            return pid, status
        if time.monotonic() >= until:
            return None, 0
        time.sleep(0.05)


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
