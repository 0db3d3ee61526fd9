"""Saves that several nodes make: each runner brings its own ranks' part to the storage; the first one waits there for
the others' and joins them. No server is needed, and no way from node to node but the storage."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from whistlestop.blobs.manifest import SaveFailed
from whistlestop.blobs.shares import Shares
from whistlestop.blobs.staged import Staged
from whistlestop.blobs.storage import Committed, Storage
from whistlestop.runner.notes import note

PATIENCE = 900.0  # seconds for a share, once the program has ended; as for a storage that fails
RUNNING_PATIENCE = 3600.0  # and while it runs
NEWS = 60.0  # then it is told what a save waits for
FIRST_LOOK, LAST_LOOK = 0.05, 2.0  # seconds between two looks


class Open(NamedTuple):
    """A save, and what it waits for in words."""

    save: Staged
    text: str


class Sharing:
    """`left`: nobody waits any more. `ended`: when the program had, by the monotonic clock."""

    def __init__(
        self,
        storage: Storage,
        *,
        left: threading.Event,
        ended: Callable[[], float | None],
        say: Callable[[str, str], None],
    ) -> None:
        self._storage, self._left, self._ended, self._say = storage, left, ended, say
        self.open: Open | None = None

    def commit(self, found: Staged) -> Committed | None:
        """As Storage.commit. None: this node has brought its share, the rest is the first one's; or nobody waits."""
        assert found.share is not None
        began, first = time.perf_counter(), found.share.node == 0
        if first and (done := self._storage.joined(found)) is not None:
            return Committed(done, 0, 0.0)
        written = self._storage.lay_share(found, cancelled=self._left.is_set)
        shares = self._gather(found) if first else None
        if shares is None:
            return None
        checkpoint = self._storage.join(found, shares, cancelled=self._left.is_set)
        return Committed(checkpoint, written, time.perf_counter() - began)

    def let_go(self, found: Staged, why: str) -> None:
        """The others need not wait for ours, nor keep theirs. Should this fail, a sweep takes them, and the first node
        sees that we have gone on to a later one."""
        assert found.share is not None
        try:
            if found.share.node > 0:
                self._storage.refuse_share(found, why)
            else:
                self._storage.drop_shares(found)
        except Exception as problem:  # a storage may answer anything
            note(f"shares: {problem!r}")

    def _gather(self, found: Staged) -> Shares | None:
        """SaveFailed if some never come. Nothing tells of them but the storage: it is asked, ever more slowly, and only
        while such a save is open."""
        delay, began, told = FIRST_LOOK, time.monotonic(), False
        try:
            while True:
                shares = self._storage.shares(found)
                shares.check(found.step)
                if not shares.missing:
                    return shares
                waited, words = time.monotonic() - began, _words(shares.missing)
                self.open = Open(found, words)
                if waited > RUNNING_PATIENCE or self._is_over():
                    raise SaveFailed(f"{words} for {waited:.0f} s")
                if waited > NEWS and not told:
                    told = True
                    self._say("notice", f"Step {found.step} is not safe yet: {words} for {waited:.0f} s.")
                if self._left.wait(delay):
                    return None
                delay = min(LAST_LOOK, delay * 1.5)
        finally:
            if not self._left.is_set():
                self.open = None

    def _is_over(self) -> bool:
        ended = self._ended()
        return ended is not None and time.monotonic() - ended > PATIENCE


def _words(missing: Sequence[int]) -> str:
    if len(missing) == 1:
        return f"node {missing[0]} has not brought its ranks' part of it"
    few = ", ".join(map(str, missing[:5]))
    return f"nodes {few}{' and others' if len(missing) > 5 else ''} have not brought their ranks' parts of it"
