"""The user's program as a process: forked before the runner has threads, let go when everything is prepared."""

import contextlib
import errno
import fcntl
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from whistlestop.engines.containment import Reaper, Tree

NOT_STARTED = 127
_ASIDE = 100
_PIPE = 1 << 20  # a program that prints in bursts is not held up by our reading
_RESTORED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


class NotStarted(Exception):
    """The program could not be started; the text says why and what to do."""


class Program:
    """`out` and `err` are our ends of its output pipes."""

    def __init__(self, pid: int, reaper: Reaper, *, go: int, error: int, out: int, err: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.out, self.err = out, err
        self.started_at: float | None = None
        self._reaper = reaper
        self._go, self._error = go, error

    @classmethod
    def fork(cls, tree: Tree, reaper: Reaper) -> "Program":
        """A process in its own session and in the tree, that waits. The caller must have no threads yet."""
        go, error, out, err = os.pipe(), os.pipe(), os.pipe(), os.pipe()
        for pipe in (out, err):
            with contextlib.suppress(OSError):
                fcntl.fcntl(pipe[0], fcntl.F_SETPIPE_SZ, _PIPE)
        pid = os.fork()
        if pid == 0:
            _become_program(tree, go=go, error=error, out=out[1], err=err[1])
        for fd in (go[0], error[1], out[1], err[1]):
            os.close(fd)
        reaper.watch(pid)
        return cls(pid, reaper, go=go[1], error=error[0], out=out[0], err=err[0])

    def start(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        """Returns once the command runs. Raises NotStarted."""
        with open(self._go, "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump({"command": list(command), "env": dict(env), "cwd": str(cwd)}, file)
        with open(self._error, "rb") as file:
            trouble = file.read()  # exec closes the other end
        if trouble:
            raise NotStarted(_explain(json.loads(trouble), command[0], cwd, env.get("PATH", os.defpath)))
        self.started_at = time.time()

    def status(self) -> int | None:
        """Its wait status once it has ended."""
        return self._reaper.status(self.pid)

    def signal(self, number: int) -> bool:
        """To the program and its process group, as a terminal does it."""
        if self.status() is not None:
            return False  # reaped: the number may belong to others by now
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # gone, or of another user: the ladder goes on
            return False
        return True


def _become_program(tree: Tree, *, go: tuple[int, int], error: tuple[int, int], out: int, err: int) -> NoReturn:
    where = "start"
    try:
        os.setsid()
        with contextlib.suppress(OSError):  # refused in spite of all permissions: the walk finds us as well
            tree.enter()
        os.close(go[1])
        with open(go[0], "rb") as file:
            orders = file.read()
        if not orders:
            os._exit(0)  # the runner decided otherwise, or died
        task = json.loads(orders)
        for number in _RESTORED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        null = os.open(os.devnull, os.O_RDONLY)
        ends = (null, out, err, error[1])
        for place, fd in enumerate(ends):
            os.dup2(fd, _ASIDE + place)  # out of the way of 0 to 3 first
        for place in range(len(ends)):
            os.dup2(_ASIDE + place, place, inheritable=place < 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        error = (-1, 3)
        where = "cwd"
        os.chdir(task["cwd"])
        where = "exec"
        os.execvpe(task["command"][0], task["command"], task["env"])
    except OSError as problem:
        os.write(error[1], json.dumps({"where": where, "errno": problem.errno}).encode())
    finally:
        os._exit(NOT_STARTED)


def _explain(trouble: dict[str, object], command: str, cwd: Path, path: str) -> str:
    number = int(str(trouble["errno"]))
    if trouble["where"] == "cwd":
        return (
            f"The directory {cwd} can't be entered ({os.strerror(number)}): check `workdir` and what the bundle holds."
        )
    if number == errno.ENOENT and "/" in command:
        return f"{command} does not exist in {cwd}, or the interpreter in its first line does not."
    if number == errno.ENOENT:
        return f"The command {command!r} was not found on PATH ({path}): install it, or give its full path."
    if number == errno.EACCES:
        return f"{command} may not be executed: `chmod +x` it, or start it with its interpreter."
    if number == errno.ENOEXEC:
        return f"{command} is not an executable and has no `#!` line: start it with its interpreter."
    if number == errno.E2BIG:
        return "The command and its environment are larger than the system allows: make them smaller."
    return f"{command} could not be started: {os.strerror(number)}."
