"""The ranks of one node share a few pages of memory: each tells its step there, rank 0 tells what is decided.

    page 0           orders for rank 0 where there is no runner: other ranks say there that they were interrupted
    page 1           what is decided: the words of an order, with the step it holds for
    page 2 + local   progress of each rank; without a runner, of rank 0 too

How all ranks act at the same step, without a collective and without a cost to the steps before it: every rank stores
its step at a boundary before it looks at page 1. Rank 0 stands at a boundary, writes "at step S" with S beyond all of
them, waits a moment, and looks at their steps again: whoever is still below S is going to see it in time. Whoever has
overtaken S meanwhile, because it runs ahead of rank 0 or without it, makes S larger. That holds whether or not the
ranks train in lockstep.
"""

import mmap
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from whistlestop.channel.control import Control
from whistlestop.channel.layout import SIZE, Loop, Word
from whistlestop.domain.errors import WhistleError
from whistlestop.sdk.world import World

_SETTLE_SECONDS = 0.001  # far longer than a store takes to be seen by another core
_LOOK_SECONDS = 0.002
PATIENCE_SECONDS = 600.0  # for other ranks to come to a point; their death ends it at once

# Rank 0's words for the others, in page 1, beside those of an order.
PLACE_READY, TRAINING, ATTEMPT, START_STEP, START_ATTEMPT, START_REVISION = range(200, 206)
SPENT = 206  # steps that spent privacy and are not in the checkpoint + 1
OUTCOME = 207  # of the pauses that were tried: 2 * how many + whether the last one could save
DIED = 210  # the rank that is gone + 1
# Every rank's words for rank 0, in its own page.
STAGED, STAGE_FAILED = 220, 221  # how many saves it has made its part of; the last one that failed
_DONE = 1 << 62
_DECIDED = (Word.PAUSE_LATEST, Word.PREEMPT_DEADLINE, Word.CHECKPOINT_NOW, Word.STEERING, Word.STOP_LEVEL)
_ENDED = (Loop.FINISHED, Loop.STOPPED, Loop.PAUSED, Loop.LEFT)


class RanksApart(WhistleError):
    """The ranks of this training could not come together."""

    code = "ranks_apart"


class Node(Protocol):
    """Another node's pages, from afar."""

    def decide(self, words: Mapping[int, int]) -> int:
        """Write these there; the furthest step of its ranks, looked at afterwards."""

    def least(self, word: int) -> int:
        """The smallest value of this word in its ranks' pages."""

    def most(self, word: int) -> int: ...


class Group:
    def __init__(self, world: World, mapped: mmap.mmap, path: Path) -> None:
        self.world = world
        self.path = path
        self.nodes: list[Node] = []
        self._mapped = mapped
        self._pages = [Control(mapped, page * SIZE) for page in range(2 + world.local_size)]
        self.orders, self.decided = self._pages[:2]
        self.mine = self._pages[2 + world.local_rank]
        self.mine[Word.PID] = os.getpid()

    @classmethod
    def join(cls, world: World, directory: Path | None) -> "Group":
        """`directory`: the runner's channel; None: a place that the ranks of this launcher find by themselves."""
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        if directory is not None:
            path = directory / f"group-{world.node}-{restarts}"
        else:
            path = _shared_memory() / f"whistle-{_launcher()}-{world.node}-{restarts}"
        return cls(world, _open(path, SIZE * (2 + world.local_size)), path)

    def leave(self) -> None:
        """Rank 0 of the node takes the file's name away; whoever has it mapped keeps it."""
        if self.world.local_rank == 0:
            self.path.unlink(missing_ok=True)

    # Rank 0 decides.

    def decide(self, step: int, words: Mapping[int, int], *, earliest: int = 0) -> int:
        """The step at which all ranks will carry this out. Called by rank 0 at its boundary `step`."""
        seq = self.decided[Word.STOP_SEQ] + 1
        at = max(max(step, self.furthest()) + 2, earliest)
        while True:
            # The step first: who sees the rest has seen it too.
            told: dict[int, int] = {Word.STOP_AT_STEP: at}
            told |= {word: words[word] for word in _DECIDED if word in words}
            told[Word.STOP_SEQ] = seq
            ahead = max((node.decide(told) for node in self.nodes), default=0)
            ahead = max(ahead, self.write(told))
            if ahead < at:
                return at
            at = ahead + 2

    def write(self, words: Mapping[int, int]) -> int:
        """Put these words into this node's page; the furthest step of its ranks afterwards."""
        for word, value in words.items():
            self.decided[word] = value
        time.sleep(_SETTLE_SECONDS)
        return self.furthest()

    def furthest(self) -> int:
        return max(page[Word.STEP] for page in self._pages[2:])

    def tell(self, words: Mapping[int, int]) -> None:
        """Rank 0 tells all nodes, in this order."""
        for node in self.nodes:
            node.decide(words)
        for word, value in words.items():
            self.decided[word] = value

    def all_acknowledged(self) -> bool:
        """Every rank has acted on the last decision: the next one may be told."""
        return self.least(Word.ACK_SEQ) >= self.decided[Word.STOP_SEQ]

    def acknowledge(self) -> None:
        self.mine[Word.ACK_SEQ] = self.decided[Word.STOP_SEQ]

    def end(self, loop: Loop) -> None:
        """This rank's loop has come to its end: nobody waits for it any more."""
        self.mine[Word.LOOP] = loop
        self.mine[Word.ACK_SEQ] = _DONE

    def least(self, word: int) -> int:
        """The smallest value of this word in all ranks' pages."""
        return min([page[word] for page in self._pages[2:]] + [node.least(word) for node in self.nodes])

    def most(self, word: int) -> int:
        return max([page[word] for page in self._pages[2:]] + [node.most(word) for node in self.nodes])

    # All ranks look at each other.

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Until the others have come so far. RanksApart in the end; a rank that dies ends the waiting much earlier."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if self.decided[DIED]:
                raise RanksApart(f"rank {self.decided[DIED] - 1} has died")
            if time.monotonic() > deadline:
                raise RanksApart(f"waited {PATIENCE_SECONDS:.0f} s for {what}")
            time.sleep(_LOOK_SECONDS)

    def peers(self) -> Iterator[tuple[int, Control]]:
        """The other ranks of this node, with their pages."""
        first = self.world.rank - self.world.local_rank
        for local in range(self.world.local_size):
            if local != self.world.local_rank:
                yield first + local, self._pages[2 + local]

    @staticmethod
    def ended(page: Control) -> bool:
        """This rank has left its loop in good order."""
        return page[Word.LOOP] in _ENDED


def _open(path: Path, size: int) -> mmap.mmap:
    """Whoever comes first makes it. Only ours: the shared place belongs to everybody on this machine."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags, 0o600)
    try:
        status = os.fstat(handle)
        if hasattr(os, "getuid") and (status.st_uid != os.getuid() or not stat.S_ISREG(status.st_mode)):
            raise RanksApart(f"{path} belongs to somebody else; remove it")
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)  # never shrinks, never clears: the order of arrival does not matter
        elif status.st_size < size:
            os.ftruncate(handle, size)
        return mmap.mmap(handle, size)
    finally:
        os.close(handle)


def _shared_memory() -> Path:
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        return memory
    import tempfile

    return Path(tempfile.gettempdir())


def _launcher() -> str:
    """The ranks of one node have one parent; its number alone is given away again one day."""
    parent = os.getppid()
    try:
        started = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        started = "0"
    return f"{parent}-{started}-{os.environ.get('MASTER_PORT', '')}"
