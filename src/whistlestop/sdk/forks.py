"""Processes that the program forks, loader workers and the like: they let go of the run and die of their signals."""

import os
import signal
import weakref
from typing import Protocol

from whistlestop.sdk.interrupts import forget, spare_helpers, watched


class Open(Protocol):
    def _let_go(self) -> None:
        """Let go of everything: it belongs to the parent. Called in the child."""


open_runs: "weakref.WeakSet[Open]" = weakref.WeakSet()

_masks: list[set[signal.Signals]] = []  # one per fork in progress


def _before_fork() -> None:
    """Python forgets a signal that comes to a child before its handlers are put back: it has to wait for that."""
    _masks.append({signal.Signals(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, watched())})


def _after_fork_in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.pop())


def _after_fork_in_child() -> None:
    runs = list(open_runs)
    for run in runs:
        run._let_go()
    forget()
    if runs and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, spare_helpers)
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
