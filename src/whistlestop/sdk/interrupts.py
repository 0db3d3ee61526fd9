"""SIGINT, SIGTERM and Windows' SIGBREAK: a handler sets flags, wakes the loops and calls the handler that was there
before, nothing else."""

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

# What a signal means belongs to the process, not to one run.
_open: "list[Interrupts]" = []  # the runs to be told, of all threads
_holders: set[object] = set()  # who wants the handlers in place: runs of the main thread, and `listen`
_running: "list[_Handler]" = []  # the handlers at work
_ages = itertools.count()
_told_at_exit = False
_spared = False  # one SIGINT, in a helper process


def watched() -> tuple[signal.Signals, ...]:
    return tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name))


def listen() -> None:
    """Let runs in any thread see the signals. To be called in the main thread, the only one where Python lets anybody
    handle them. While no run is open, signals do what they did before."""
    if not _in_main_thread():
        raise RuntimeError("whistlestop.listen_for_signals() works in the main thread only: call it before the others")
    _holders.add(listen)
    _put_in_place(over_ignored=False)


def forget() -> None:
    """In a forked child: nothing here is its own."""
    global _spared
    _spared = False
    _open.clear()
    _holders.clear()
    _running.clear()
    _put_back()


class Interrupts:
    """`seen` is how many have come. With `second_ends` the second one ends the program at once."""

    def __init__(self, *, second_ends: bool, wake: Callable[[], None]) -> None:
        self.seen = 0
        self.second_ends = second_ends
        self._wake = wake  # makes the loop look at `seen` at its next boundary
        self.thread = threading.current_thread()

    def install(self) -> None:
        """From now on it is told. Called again when the loop begins: others may have put handlers over ours."""
        if self not in _open:
            _open.append(self)
        self.thread = threading.current_thread()
        if not _in_main_thread():
            _tell_when_main_thread_ends()
            return
        _holders.add(self)
        _put_in_place(over_ignored=not self.second_ends)

    def restore(self) -> None:
        """It is told no longer. The last one puts back what was there, unless somebody has put theirs over ours."""
        if self in _open:
            _open.remove(self)
        _holders.discard(self)
        if not _holders and _in_main_thread():
            _put_back()

    def tell(self) -> None:
        self.seen += 1
        self._wake()


class _Handler:
    """Ours, with the one that it has replaced."""

    def __init__(self, number: int, before: Any) -> None:
        self.number = number
        self.before = before
        self.age = next(_ages)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        told = list(_open)
        # Somebody put a handler over ours that calls it, and we put one over theirs: it is still one signal.
        chained = any(each.number == number and each.age > self.age for each in _running)
        if not chained:
            for each in told:
                each.tell()
        _running.append(self)
        try:
            if told:
                self._call_before(number, frame)
            else:
                self._do_as_before(number, frame)
        finally:
            _running.remove(self)
        ending = [each.seen > 1 for each in told if each.second_ends]
        if not chained and ending and all(ending):
            _end(number, told)

    def _call_before(self, number: int, frame: FrameType | None) -> None:
        if callable(self.before) and self.before not in (signal.default_int_handler, spare_helpers):
            self.before(number, frame)

    def _do_as_before(self, number: int, frame: FrameType | None) -> None:
        """No run is open: as if we were not here."""
        if callable(self.before):
            self.before(number, frame)
        elif self.before is signal.SIG_DFL:
            _die(number)


def spare_helpers(number: int, frame: FrameType | None) -> None:
    """SIGINT in a process that was forked while a run was open. A terminal sends it to all of them: the first one must
    not end a loader's worker, of which the loop still needs the step's data. Daemons are ended by their parent."""
    global _spared
    first, _spared = not _spared, True
    processes = sys.modules.get("multiprocessing.process")
    if first and processes is not None and processes.current_process().daemon:
        return
    signal.default_int_handler(number, frame)


def _put_in_place(*, over_ignored: bool) -> None:
    for number in watched():
        before = signal.getsignal(number)
        if before is None or isinstance(before, _Handler):  # None: set by C code, could neither be called nor put back
            continue
        if before is signal.SIG_IGN and not over_ignored:  # nohup, or a shell's background job
            continue
        _set(number, _Handler(number, before))


def _put_back() -> None:
    for number in watched():
        ours = signal.getsignal(number)
        if isinstance(ours, _Handler):
            _set(number, ours.before)


def _set(number: int, handler: Any) -> None:
    try:
        signal.signal(number, handler)
    except ValueError:  # the main thread of a subinterpreter: Python handles signals in the main interpreter only
        pass


def _end(number: int, told: list[Interrupts]) -> None:
    if number == signal.SIGINT and all(each in _holders for each in told):
        _holders.clear()
        _put_back()
        raise KeyboardInterrupt
    _die(number)  # an exception would end the main thread only, and the program would wait for the others


def _die(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _tell_when_main_thread_ends() -> None:
    """For a run in another thread when nobody listens: Ctrl-C ends the main thread, then Python waits for this one.
    concurrent.futures uses the same call, which has no public name, to be asked before that wait."""
    global _told_at_exit
    register = getattr(threading, "_register_atexit", None)
    if _told_at_exit or register is None:
        return
    try:
        register(_main_thread_has_ended)
        _told_at_exit = True
    except RuntimeError:  # the program is ending already
        pass


def _main_thread_has_ended() -> None:
    if not isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
        return
    told = tuple(_open)
    for each in told:
        each.tell()
    # Python's own wait may not come: until 3.12 it takes a thread for ended whose join() was interrupted.
    here = threading.current_thread()
    waiting = {each.thread.ident for each in told if each.thread is not here and not each.thread.daemon}
    while waiting & sys._current_frames().keys():
        time.sleep(0.01)  # the next Ctrl-C ends it
