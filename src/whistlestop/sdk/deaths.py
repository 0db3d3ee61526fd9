"""A rank that dies frees the others: they would wait for it in a collective for half an hour, or for ever."""

import os
import select
import threading
from collections.abc import Callable

from whistlestop.channel.layout import Word
from whistlestop.sdk.group import DIED, Group
from whistlestop.sdk.pages import gone
from whistlestop.sdk.processes import lives

_NAMING_SECONDS = 0.5
_COMING_SECONDS = 0.2  # between two looks for ranks that have not come yet
_OTHER_SYSTEMS_SECONDS = 1.0  # between two looks where a process can't be waited for


class Watch:
    """A thread that sleeps until another rank of this node ends. `died` is called once, with its rank, its name, and
    what to call when it has been told."""

    def __init__(self, group: Group, died: Callable[[int, str, Callable[[], None]], None]) -> None:
        self._group = group
        self._died = died
        self._gone: set[int] = set()
        self._told = threading.Event()
        self._closing, self._close = os.pipe()
        self._thread = threading.Thread(target=self._run, name="whistlestop-ranks", daemon=True)
        self._thread.start()

    def look_again(self) -> None:
        """This rank ends with an error, perhaps since another one has just died: let it be named first."""
        self._told.wait(_NAMING_SECONDS)

    def close(self) -> None:
        """Nobody is watched any more. Closing twice is not an error."""
        if self._close >= 0:
            close, self._close = self._close, -1
            os.write(close, b"!")  # a helper that the program has forked may hold the other end open
            os.close(close)
            if threading.current_thread() is not self._thread:
                self._thread.join(1.0)

    def _run(self) -> None:
        known: dict[int, tuple[int, int]] = {}  # its descriptor -> rank, process
        waiting = select.poll()
        waiting.register(self._closing, select.POLLIN | select.POLLHUP)
        try:
            while True:
                missing = self._look(known, waiting)
                ready = {handle for handle, _ in waiting.poll(_patience(missing, known))}
                if self._closing in ready:
                    return
                for handle, (rank, process) in list(known.items()):
                    if handle in ready or (handle < 0 and not lives(process)):
                        del known[handle]
                        if handle >= 0:
                            waiting.unregister(handle)
                            os.close(handle)
                        self._judge(rank, process)
        finally:
            for handle in known:
                if handle >= 0:
                    os.close(handle)
            os.close(self._closing)

    def _look(self, known: dict[int, tuple[int, int]], waiting: "select.poll") -> bool:
        """Take in the ranks that have come; True while some have not."""
        watched = {rank for rank, _ in known.values()}
        missing = False
        for rank, page in self._group.peers():
            process = page[Word.PID]
            if rank in watched or rank in self._gone:
                continue
            if not process:
                missing = True
                continue
            if not hasattr(os, "pidfd_open"):
                known[-1 - rank] = rank, process
                continue
            try:
                handle = os.pidfd_open(process)
            except OSError:
                handle = -1
            if handle < 0 or gone(page):  # its number may be somebody else's by now
                if handle >= 0:
                    os.close(handle)
                self._judge(rank, process)
                continue
            known[handle] = rank, process
            waiting.register(handle, select.POLLIN)
        return missing

    def _judge(self, rank: int, process: int) -> None:
        self._gone.add(rank)
        page = dict(self._group.peers())[rank]
        if self._told.is_set() or Group.ended(page) or Group.ended(self._group.mine):
            return
        first = self._group.decided[DIED] - 1  # of several that go, the one that took the others with it
        if first < 0:
            first = rank
            self._group.decided[DIED] = rank + 1
        self._died(first, f"rank {rank} (process {process})" if first == rank else f"rank {first}", self._told.set)


def _patience(missing: bool, known: dict[int, tuple[int, int]]) -> float | None:
    """Milliseconds until the next look; None: until something happens."""
    if missing:
        return _COMING_SECONDS * 1000
    return _OTHER_SYSTEMS_SECONDS * 1000 if any(handle < 0 for handle in known) else None
