"""The program's end of the channel. Without a runner the same words go to private memory: the loop can't tell."""

import mmap
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from whistlestop.channel import layout
from whistlestop.channel.control import Control
from whistlestop.channel.journal import JournalWriter
from whistlestop.channel.layout import Word
from whistlestop.sdk.answering import answer
from whistlestop.sdk.group import Group, RanksApart
from whistlestop.sdk.settings import Settings

_TOLD = (Word.STEP, Word.TOTAL, Word.EPOCH, Word.RESUMED_STEP, Word.LOOP_STARTED_AT, Word.STAGE, Word.LOOP)


class Attachment:
    """`orders` is what this process obeys: the runner's words for rank 0, rank 0's decisions for the others. `progress`
    is what it tells: in the runner's block for rank 0, in the ranks' shared memory for the others.

    `leads` says that this process saves and tells progress: rank 0, and only one of those that believe to be it.
    """

    def __init__(self) -> None:
        self.attached = False
        self.leads = True
        self.orders = _private()
        self.progress = self.orders
        self.front = self.orders  # the words that rank 0 obeys: where another rank says that it was interrupted
        self.group: Group | None = None  # of several ranks that act at the same steps
        self._beside: Control | None = None  # the runner's block on other nodes than rank 0's, for their first rank
        self.ask_front: Callable[[int], None] = self._ask_front  # raise a word there; over the network from elsewhere
        self.metrics: JournalWriter | None = None
        self.events: JournalWriter | None = None
        self.points: Callable[[int, float, Mapping[str, Any]], None] = _nowhere
        self._said: set[str] = set()

    def attach(self, settings: Settings) -> None:
        """Map the runner's block. If that can't be done: say so once and go on alone. RanksApart if the ranks can't
        come together."""
        self.leads = settings.rank == 0
        if settings.channel is None or self.attached:
            self._join(settings)
            return
        try:
            self.orders = Control.open(settings.channel / layout.CONTROL_FILE)
        except Exception as error:
            self.say(f"the runner's channel can't be used ({error}); going on without it")
            self._join(settings)
            return
        self.attached = True
        self.front = self.orders
        self.progress = _private()
        metrics = JournalWriter(settings.channel, layout.metrics_prefix(settings.rank))
        events = JournalWriter(settings.channel, layout.events_prefix(settings.rank))
        if not (metrics.acquire() and events.acquire()):
            metrics.close()
            self.leads = False
            self.say(
                f"rank {settings.rank} of this run is taken, by another process or by another run() of this one: "
                "here nothing is saved, logged or told. Give every process its own RANK"
            )
            return
        self.metrics, self.events = metrics, events
        answer(settings.channel, settings.rank)
        self.points = metrics.points
        self.leads = settings.rank == 0
        if self.leads:
            self.progress = self.orders
            self.progress[Word.PID] = os.getpid()
            self.progress[Word.ATTACHED] = 1
        self._join(settings)

    def _join(self, settings: Settings) -> None:
        """With several ranks: the memory they share. Without it they could not act together: that is said aloud."""
        world = settings.world
        if world.size < 2:
            return
        try:
            self.group = group = Group.join(world, settings.channel if self.attached else None, name=settings.name)
        except RanksApart:  # a mistake in how they were started: going on alone would end in a collective that hangs
            raise
        except Exception as error:
            self.warn(f"rank {world.rank} can't share memory with the other ranks ({error}); it acts by itself")
            return
        group.say = self.say
        if not self.attached:
            self.front = group.orders
        if world.rank > 0:
            if self.attached and world.local_rank == 0 and self.metrics is not None:
                self._beside = self.orders
                self._beside[Word.PID], self._beside[Word.ATTACHED] = os.getpid(), 1
            self.orders, self.progress = group.decided, group.mine
        elif not self.attached:
            self.orders = self.progress = group.orders

    def tell_runner(self) -> None:
        """On other nodes than rank 0's: how this one stands, at the loop's beginning and at its end. Orders come from
        rank 0; the runner only has to know what an end means."""
        if self._beside is not None:
            for word in _TOLD:
                self._beside[word] = self.progress[word]

    def _ask_front(self, word: int) -> None:
        self.front[word] = 1

    def tell(self, event: Mapping[str, Any]) -> None:
        """An event for the runner, durable when this returns. Never raises."""
        if self.events is None:
            return
        try:
            self.events.event({"at": time.time(), **event})
            self.count_dropped()
        except Exception as error:
            self.say(f"an event could not be written ({error!r})")

    def warn(self, text: str) -> None:
        """Words for people, now and in the run's events."""
        self.say(text)
        self.tell({"kind": "message", "level": "warning", "text": text})

    def say(self, text: str) -> None:
        """On stderr, each sentence once: a warning at every step would bury what it warns of."""
        if text in self._said:
            return
        self._said.add(text)
        try:
            print(f"whistlestop: {text}", file=sys.stderr, flush=True)
        except (OSError, ValueError, AttributeError):  # closed or missing: there is nobody to tell
            pass

    def count_dropped(self) -> None:
        dropped = sum(journal.dropped for journal in (self.metrics, self.events) if journal is not None)
        if dropped:
            self.progress[Word.DROPPED] = dropped
            self.say("the disk is full: metrics and events are being dropped, training goes on")
        for journal in (self.metrics, self.events):
            if journal is not None and journal.damaged:
                self.say("the journal that an earlier process of this attempt left is damaged; what we log is dropped")

    def abandon(self) -> None:
        """In a forked child: all of this belongs to the parent."""
        for journal in (self.metrics, self.events):
            if journal is not None:
                journal.abandon()
        self.metrics = self.events = self.group = None
        self.points = _nowhere
        self.orders = self.progress = self.front = _private()
        self.attached = self.leads = False
        self._beside = None

    def close(self) -> None:
        """The block stays mapped until the process ends: a loop that was left half-way may still look at it."""
        if self.metrics is not None and self.events is not None:
            self.count_dropped()
            self.metrics.close()
            self.events.close()
        self.metrics = self.events = None
        self.points = _nowhere


def _private() -> Control:
    return Control(mmap.mmap(-1, layout.SIZE))


def _nowhere(step: int, at: float, values: Mapping[str, Any]) -> None:
    """Standalone: there is nobody to ship metrics to."""
