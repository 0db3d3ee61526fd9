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
from whistlestop.sdk.settings import Settings


class Attachment:
    """`orders` is what the runner writes, `progress` what we write: one block for rank 0, two for the others.

    `leads` says that this process saves and tells progress: rank 0, and only one of those that believe to be it.
    """

    def __init__(self) -> None:
        self.attached = False
        self.leads = True
        self.orders = _private()
        self.progress = self.orders
        self.metrics: JournalWriter | None = None
        self.events: JournalWriter | None = None
        self.points: Callable[[int, float, Mapping[str, Any]], None] = _nowhere
        self._said: set[str] = set()

    def attach(self, settings: Settings) -> None:
        """Map the runner's block. If that can't be done: say so once and go on alone. Never raises."""
        self.leads = settings.rank == 0
        if settings.channel is None or self.attached:
            return
        try:
            self.orders = Control.open(settings.channel / layout.CONTROL_FILE)
        except Exception as error:
            self.say(f"the runner's channel can't be used ({error}); going on without it")
            return
        self.attached = True
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
        self.points = metrics.points
        self.leads = settings.rank == 0
        if self.leads:
            self.progress = self.orders
            self.progress[Word.PID] = os.getpid()
            self.progress[Word.ATTACHED] = 1

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
        self.metrics = self.events = None
        self.points = _nowhere
        self.orders = self.progress = _private()
        self.attached = self.leads = False

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
