"""Servers forked from one process that has loaded what they all need: loading it takes longer than most tests.

A process that is made this way is a server like any other from its first line on. It is not a child of the test's
process, so it is watched by its pidfd, and the one that forked it tells how it ended.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

# Answers to every line on stdin with the pid of a new process, and says of each one when it has ended, and how.
_FORKING = """
import json, os, select, signal, sys
import whistlestop.cli.up, whistlestop.server.app
from whistlestop.cli.main import main

def serve():
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    orders = b""
    while True:
        ready = select.select([0, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            tell_ended()
        if 0 in ready:
            read = os.read(0, 65536)
            if not read:
                os._exit(0)
            *lines, orders = (orders + read).split(b"\\n")
            for line in lines:
                order = json.loads(line)
                child = os.fork()
                if not child:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.close(woken)
                    os.close(wake)
                    return order
                tell({"pid": child})

def tell_ended():
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        tell({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

def tell(what):
    os.write(1, json.dumps(what).encode() + b"\\n")

order = serve()
os.setsid()
nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(order["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for number, file in ((0, nothing), (1, output), (2, output)):
    os.dup2(file, number)
os.close(nothing)
os.close(output)
os.chdir(order["cwd"])
os.environ.clear()
os.environ.update(order["env"])
main(order["words"])
"""


class Process(Protocol):
    """What tests need of a process."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def spawn(words: Sequence[str], *, env: Mapping[str, str], output: Path) -> Process:
    """`whistle WORDS…` in a session of its own. Its output is added to a file."""
    if _forking is not None and _forking.network == _network():
        return _forking.spawn(words, env=env, output=output)
    with output.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "whistlestop", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=dict(env),
            start_new_session=True,
        )


def fork_from_now_on() -> None:
    """For the rest of this process's life; until then every server is started from nothing."""
    global _forking
    if _forking is None and hasattr(os, "pidfd_open"):
        _forking = _Forking()


def _network() -> str:
    """The namespace that this thread is in: a test may have entered that of a cluster."""
    return os.readlink("/proc/thread-self/ns/net")


class _Forking:
    def __init__(self) -> None:
        self.network = _network()  # what it forks is there, too
        self._process: subprocess.Popen[bytes] | None = None
        self._ordering = threading.Lock()
        self._said = threading.Condition()
        self._new: list[int] = []
        self._codes: dict[int, int] = {}

    def spawn(self, words: Sequence[str], *, env: Mapping[str, str], output: Path) -> "_Forked":
        order = {"words": list(words), "env": dict(env), "output": str(output.absolute()), "cwd": os.getcwd()}
        with self._ordering:
            into = self._start()
            into.write(json.dumps(order).encode() + b"\n")
            into.flush()
            with self._said:
                if not self._said.wait_for(lambda: self._new, 60):
                    raise AssertionError("no server was forked within a minute")
                return _Forked(self._new.pop(), self)

    def code_of(self, pid: int) -> int:
        with self._said:
            assert self._said.wait_for(lambda: pid in self._codes, 60), f"how {pid} ended was never told"
            return self._codes[pid]

    def _start(self) -> IO[bytes]:
        if self._process is None:
            command = [sys.executable, "-c", _FORKING]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        assert self._process.stdin is not None
        return self._process.stdin

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            with self._said:
                if "pid" in said:
                    self._new.append(said["pid"])
                else:
                    self._codes[said["ended"]] = said["code"]
                self._said.notify_all()


class _Forked:
    def __init__(self, pid: int, forking: _Forking) -> None:
        self.pid = pid
        self._forking = forking
        self._code: int | None = None
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended already
            self._handle = None

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            if self._handle is not None:
                ended = select.poll()
                ended.register(self._handle, select.POLLIN)
                if not ended.poll(None if timeout is None else timeout * 1000):
                    raise subprocess.TimeoutExpired(["whistle"], timeout or 0)
                os.close(self._handle)
                self._handle = None
            self._code = self._forking.code_of(self.pid)
        return self._code

    def send_signal(self, number: int, /) -> None:
        if self._handle is not None:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                pass

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


_forking: _Forking | None = None
