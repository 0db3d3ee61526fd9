"""The ranks of one node share a few pages of memory: each tells its step there, rank 0 tells what is decided.

    page 0           orders for rank 0 where there is no runner: other ranks say there that they were interrupted
    page 1           what is decided: the words of an order, with the step it holds for
    page 2 + local   progress of each rank; without a runner, of rank 0 too

How all ranks act at the same step, without a collective and without a cost to the steps before it: every rank stores
its step at a boundary before it looks at page 1. Rank 0 stands at a boundary, proposes "at step S" with S beyond all
of them, waits a moment, and looks at their steps again: whoever is still below S is going to see it in time. Whoever
has overtaken S meanwhile, because it runs ahead of rank 0 or without it, makes S larger. Then rank 0 confirms it: a
rank that comes to S before that waits there, and says so. That holds whether or not the ranks train in lockstep.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from whistlestop.channel.control import Control
from whistlestop.channel.layout import Loop, Word
from whistlestop.sdk.pages import DONE, FIRST, OUT, RanksApart, Shared, gone, share, shared_path, sweep
from whistlestop.sdk.world import World, is_elsewhere

if TYPE_CHECKING:
    from whistlestop.sdk.stragglers import Seen

__all__ = ["Group", "Node", "RanksApart"]

_SETTLE_SECONDS = 0.001  # far longer than a store takes to be seen by another core
_LOOK_SECONDS = 0.002
_SLOWEST_LOOK_SECONDS = 0.02
_GONE_SECONDS = 0.2  # between two looks whether somebody is gone
_SAY_SECONDS = 10.0  # of waiting, before it is told what for
_ORPHAN_SECONDS = 60.0  # for ranks that have not come, once their launcher is gone
_CONFIRM_SECONDS = 120.0  # rank 0 asks every node, and gives each half a minute
PATIENCE_SECONDS = 600.0  # for other ranks to come to a point; their death ends it at once

# Rank 0's words for the others, in page 1, beside those of an order.
PLACE_READY, TRAINING, ATTEMPT, START_STEP, START_ATTEMPT, START_REVISION = range(200, 206)
SPENT = 206  # steps that spent privacy and are not in the checkpoint + 1
OUTCOME = 207  # of the pauses that were tried: 2 * how many + whether the last one could save
PROPOSED, CONFIRMED = 208, 209  # decisions, by their numbers: what is only proposed may still move
DIED = 210  # the rank that is gone + 1
PUBLISHED = 212  # how many saves of all ranks rank 0 has handed over, or given up
SERIES = 213  # a number that no other start of this training has: which saves belong together
FRONT_ENDED = 211  # on other nodes than rank 0's: it has come to its end in good order
# Every rank's words for rank 0, in its own page.
STAGED, STAGE_FAILED = 220, 221  # how many saves it has made its part of; the last one that failed
PUT_OFF = 224  # the last save for which it found no free slot
POISONED = 222  # a value of this rank was not finite
ARRIVED, ARRIVALS = 256, 128  # (f) when this rank was ready for its last steps: a ring, by the step
_HELD = 223  # the step at which it waits for what is only proposed + 1
_DECIDED = (Word.PAUSE_LATEST, Word.PREEMPT_DEADLINE, Word.CHECKPOINT_NOW, Word.STEERING, Word.STOP_LEVEL)
_ENDED = (Loop.FINISHED, Loop.STOPPED, Loop.PAUSED, Loop.LEFT)

_runs: dict[tuple[str, int], int] = {}  # how often this process has joined: all ranks make their runs in one order


class Node(Protocol):
    """Another node's pages, from afar."""

    node: int

    def decide(self, words: Mapping[int, int]) -> int:
        """Write these there; what `Group.reach` says of it afterwards."""

    def least(self, word: int) -> int:
        """The smallest value of this word in its ranks' pages."""

    def most(self, word: int) -> int: ...

    def seen(self) -> "Seen | None":
        """When its ranks were ready for their last steps. None: they are not so far, or over."""


class Group:
    def __init__(self, world: World, shared: Shared, tag: str) -> None:
        self.world = world
        self.path = shared.path
        self.tag = tag  # the same in all ranks of this run, another one in their next
        self.nodes: list[Node] = []
        self.say: Callable[[str], None] = _say
        self._shared = shared
        self._parent = os.getppid()
        self._pages = shared.pages
        self._ranks = shared.pages[FIRST:]
        self.orders, self.decided = self._pages[:FIRST]
        self.mine = shared.mine

    @classmethod
    def join(cls, world: World, directory: Path | None, *, name: str = "") -> "Group":
        """`directory`: the runner's channel; None: a place that the ranks of this training find by themselves.
        RanksApart if they can't. `name` is that of the run."""
        _check_nodes(world, alone=directory is None)
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        key = (f"{directory}/{name}/{restarts}", world.rank)
        number = _runs[key] = _runs.get(key, 0) + 1
        tag = f"{name}/{restarts}/{number}"
        if directory is not None:
            path = directory / f"group-{world.node}-{restarts}-{number}"
        else:
            path = shared_path(world, tag)
            sweep(path)
        return cls(world, share(path, world), tag)

    def leave(self) -> None:
        """The last rank of the node takes the file's name away; whoever has it mapped keeps it."""
        self._shared.leave()

    # Rank 0 decides.

    def decide(self, step: int, words: Mapping[int, int], *, earliest: int = 0) -> int:
        """The step at which all ranks will carry this out. Called by rank 0 at its boundary `step`."""
        seq = self.decided[Word.STOP_SEQ] + 1
        at = max(max(step, self.furthest()) + 2, earliest)
        while True:
            # The number of what is open first, then the step: who sees the rest has seen them too.
            told: dict[int, int] = {PROPOSED: seq, Word.STOP_AT_STEP: at}
            told |= {word: words[word] for word in _DECIDED if word in words}
            told[Word.STOP_SEQ] = seq
            reach = max((node.decide(told) for node in self.nodes), default=0)
            reach = max(reach, self.write(told))
            if self.decided[DIED]:
                return at  # it is not confirmed: without all ranks nothing is carried out
            if reach <= at:
                self.tell({CONFIRMED: seq})
                return at
            at = reach + 1

    def write(self, words: Mapping[int, int]) -> int:
        """Put these words into this node's page; the reach of its ranks afterwards."""
        for word, value in words.items():
            self.decided[word] = value
        time.sleep(_SETTLE_SECONDS)
        return self.reach()

    def reach(self) -> int:
        """The first step that no rank of this node has gone beyond, and none can before it looks."""
        return max(page[Word.STEP] + (page[_HELD] != page[Word.STEP] + 1) for page in self._ranks)

    def furthest(self) -> int:
        return max(page[Word.STEP] for page in self._ranks)

    def tell(self, words: Mapping[int, int]) -> None:
        """Rank 0 tells all nodes, in this order."""
        for node in self.nodes:
            node.decide(words)
        for word, value in words.items():
            self.decided[word] = value

    def all_acknowledged(self) -> bool:
        """Every rank has acted on the last decision: the next one may be told."""
        return self.least(Word.ACK_SEQ) >= self.decided[Word.STOP_SEQ]

    def least(self, word: int) -> int:
        """The smallest value of this word in all ranks' pages."""
        return min([page[word] for page in self._ranks] + [node.least(word) for node in self.nodes])

    def most(self, word: int) -> int:
        return max([page[word] for page in self._ranks] + [node.most(word) for node in self.nodes])

    # All ranks act.

    def due(self, step: int) -> bool:
        """What was decided last holds at `step`. While it is only proposed, this waits: it may still move."""
        page = self.decided
        proposed = page[PROPOSED]
        if not proposed or step < page[Word.STOP_AT_STEP]:
            return False
        if page[CONFIRMED] == proposed and page[PROPOSED] == proposed:
            return step >= page[Word.STOP_AT_STEP]
        return self._settled(step)

    def _settled(self, step: int) -> bool:
        page = self.decided
        self.mine[_HELD] = step + 1
        begun = time.monotonic()
        try:
            while step >= page[Word.STOP_AT_STEP]:
                if page[CONFIRMED] == page[PROPOSED]:
                    return step >= page[Word.STOP_AT_STEP]
                waited = time.monotonic() - begun
                if page[DIED] or waited > _CONFIRM_SECONDS:
                    return False
                if waited > _SETTLE_SECONDS:
                    time.sleep(_SETTLE_SECONDS / 2)
            return False
        finally:
            self.mine[_HELD] = 0

    def acknowledge(self) -> None:
        self.mine[Word.ACK_SEQ] = self.decided[Word.STOP_SEQ]

    def end(self, loop: Loop) -> None:
        """This rank's loop has come to its end: nobody waits for it any more."""
        self.mine[Word.LOOP] = loop
        self.mine[Word.ACK_SEQ] = DONE

    # All ranks look at each other.

    def wait(self, condition: Callable[[], bool], what: str, *, whom: Callable[[], list[int]] | None = None) -> None:
        """Until the others have come so far. RanksApart in the end; much earlier if a rank dies, or has ended without.
        `whom`: the ranks of this node that it still depends on; rank 0, if that is not said."""
        begun = time.monotonic()
        look, say, pause, orphan = begun, begun + _SAY_SECONDS, _LOOK_SECONDS, float("inf")
        whom = whom or (lambda: [0] if self.world.rank > 0 else [])
        while not condition():
            now = time.monotonic()
            if self.decided[DIED]:
                raise RanksApart(f"rank {self.decided[DIED] - 1} has died")
            if now >= look:
                look = now + _GONE_SECONDS
                lost = self._lost(whom)
                if lost and not condition():
                    raise RanksApart(f"{lost}, and rank {self.world.rank} waits for {what}")
                orphan = min(orphan, now) if os.getppid() != self._parent and self._missing() else float("inf")
            if now >= say:
                say = float("inf")
                self.say(f"rank {self.world.rank} has waited {now - begun:.0f} s for {what}{self._who(whom())}")
            if now > orphan + _ORPHAN_SECONDS:
                raise RanksApart(f"whoever started rank {self.world.rank} is gone{self._who(self._missing())}")
            if now > begun + PATIENCE_SECONDS:
                raise RanksApart(f"waited {PATIENCE_SECONDS:.0f} s for {what}{self._who(whom())}")
            time.sleep(pause)
            pause = min(pause * 1.2, _SLOWEST_LOOK_SECONDS)

    def wait_for_all(self, word: int, value: int, what: str) -> None:
        """Until this word is so large in all ranks' pages. Names those that it waits for."""
        self.wait(lambda: self.least(word) >= value, what, whom=lambda: self._behind(word, value))

    def wait_for_node(self, word: int, value: int, what: str) -> None:
        """The same for the other ranks of this node."""
        self.wait(
            lambda: all(page[word] >= value for _, page in self.peers()), what, whom=lambda: self._behind(word, value)
        )

    def _behind(self, word: int, value: int) -> list[int]:
        first = self.world.rank - self.world.local_rank
        return [first + local for local, page in enumerate(self._ranks) if page[word] < value]

    def _lost(self, whom: Callable[[], list[int]]) -> str:
        """Words for somebody who will not come any more; empty if there is hope. Whether we depend on a rank that has
        come to its end is asked afterwards: what it did last, it did before that."""
        for rank, page in self.peers():
            if (page[OUT] or gone(page)) and not self.ended(page):
                if not self.decided[DIED]:
                    self.decided[DIED] = rank + 1
                return f"rank {rank} (process {page[Word.PID]}) has died"
            if (page[Word.ACK_SEQ] >= DONE or gone(page)) and rank in whom():
                return f"rank {rank} has come to its end"
        return "rank 0 has come to its end" if self.decided[FRONT_ENDED] and 0 in whom() else ""

    def _missing(self) -> list[int]:
        return [rank for rank, page in self.peers() if not page[Word.PID]]

    def _who(self, ranks: list[int]) -> str:
        """Whom we wait for, in words."""
        missing = self._missing()
        words = [f"rank {rank} has not come" for rank in missing]
        words += [f"rank {rank} is not so far" for rank in ranks if rank not in missing and rank != self.world.rank]
        if missing:
            words.append("all ranks need the same run name, MASTER_ADDR and MASTER_PORT, or the same parent process")
        return f" ({'; '.join(words)})" if words else ""

    def pages(self) -> Sequence[Control]:
        """Of all ranks of this node, in their order."""
        return self._ranks

    def peers(self) -> Iterator[tuple[int, Control]]:
        """The other ranks of this node, with their pages."""
        first = self.world.rank - self.world.local_rank
        for local, page in enumerate(self._ranks):
            if local != self.world.local_rank:
                yield first + local, page

    @staticmethod
    def ended(page: Control) -> bool:
        """This rank has left its loop in good order."""
        return page[Word.LOOP] in _ENDED


def _check_nodes(world: World, *, alone: bool) -> None:
    """Ranks that wait for each other in different places would wait for ever."""
    why = world.unknown
    if not why and world.assumed and alone and (host := is_elsewhere()):
        why = f"this training's ranks meet at {host}, which is another machine, and LOCAL_WORLD_SIZE is not set"
    if why:
        hint = "set LOCAL_WORLD_SIZE, LOCAL_RANK and GROUP_RANK (the node) for every rank, as torchrun does"
        raise RanksApart(f"nobody says which ranks share a node: {why}; {hint}", hint=hint)


def _say(text: str) -> None:
    print(f"whistlestop: {text}", file=sys.stderr, flush=True)
