"""Notices that the capacity goes: asked for where the pool says, in threads of their own. Whatever a source answers, or
does not, training and runner go on: it is said once. Where the pool names no source nothing is asked."""

import asyncio
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from whistlestop.runner.notes import note

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch

LEAVE_WITHIN = 180.0  # seconds: what goes later than this is worth training on; until then a save will do
USUAL_NOTICE = {"aws": 120.0, "gcp": 30.0, "azure": 30.0, "file": 25.0}  # seconds between the notice and the end
ADVICE_EVERY = (
    600.0  # seconds: a source that has something new to say each time must not have the program save for ever
)
MOST = 100  # notices in one answer
JITTER = 0.2  # of every pause: a thousand runners must not ask in step


class Kind(StrEnum):
    ADVISORY = "advisory"  # it may go: save, and train on
    FINAL = "final"  # it goes: save and leave


@dataclass(frozen=True)
class Notice:
    source: str
    kind: Kind
    deadline: float  # unix time; of an advisory one, when it may go, 0 where nobody says
    text: str  # who takes what back, and when: the beginning of a sentence
    raw: str = ""  # as the source said it: what is said again is no news
    answer_to: str = ""  # to be told when we are done: Azure's EventId


class NoAnswer(Exception):
    """The source can't be asked now; the text says why."""


class Source(Protocol):
    """One thing that can be asked, again and again. It may block for as long as it likes: the thread is its own."""

    name: str  # of the provider, as in the pool's settings
    where: str
    every: float  # seconds between two questions

    def ask(self) -> list[Notice]:
        """What it says now. Raises NoAnswer."""

    def acknowledge(self, notice: Notice) -> None:
        """We are done: the machine may go at once. Raises NoAnswer."""


class Tell(Protocol):
    def __call__(self, kind: str, text: str, /, **data: object) -> None: ...


class Watch:
    """`take` and `tell` are called in the source's thread."""

    def __init__(self, sources: list[Source], *, take: Callable[[Notice], None], tell: Tell) -> None:
        self._sources, self._take, self._tell = sources, take, tell
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._said: set[tuple[str, bool]] = set()  # providers, and whether they were said to answer

    def start(self) -> None:
        for source in self._sources:
            threading.Thread(target=self._run, args=(source,), daemon=True).start()

    def stop(self) -> None:
        """Nothing is passed on any more. A thread that waits for an answer is not waited for."""
        self._stop.set()

    def acknowledge(self, notice: Notice) -> None:
        """Blocks for as long as one question may take."""
        for source in self._sources:
            if source.name == notice.source and notice.answer_to:
                try:
                    source.acknowledge(notice)
                except NoAnswer as error:
                    note(f"notices: {source.name}: {error}")

    def _run(self, source: Source) -> None:
        told: set[tuple[Kind, str]] = set()  # of what the last answer said
        advised_at = -math.inf
        while not self._stop.is_set():
            try:
                found = source.ask()
            except NoAnswer as error:
                self._unanswered(source, str(error))
            except Exception as error:  # a thread's top: what a metadata server says may be anything
                self._unanswered(source, repr(error)[:300])
            else:
                self._answered(source)
                before, told = told, set()
                ordered = sorted(
                    (timed(each, time.time()) for each in found), key=lambda each: each.kind is not Kind.FINAL
                )
                for notice in ordered[:MOST]:
                    said, advice = (notice.kind, notice.raw), notice.kind is Kind.ADVISORY
                    if said in before:
                        told.add(said)
                    elif not self._stop.is_set() and not (advice and time.monotonic() < advised_at + ADVICE_EVERY):
                        told.add(said)
                        advised_at = time.monotonic() if advice else advised_at
                        self._take(notice)
            self._stop.wait(source.every * random.uniform(1 - JITTER, 1 + JITTER))

    def _unanswered(self, source: Source, why: str) -> None:
        if self._is_news((source.name, False)):
            words = f"Notices of {source.name} can't be had from {source.where}: {why}. It is asked again and again."
            self._tell("notice_source", words, source=source.name, answers=False)

    def _answered(self, source: Source) -> None:
        if (source.name, False) in self._said and self._is_news((source.name, True)):
            self._tell("notice_source", f"{source.name} answers.", source=source.name, answers=True)

    def _is_news(self, said: tuple[str, bool]) -> bool:
        """Each once: a source that comes and goes must not bury what else there is to read."""
        with self._lock:
            news = said not in self._said and not self._stop.is_set()
            self._said.add(said)
            return news


def watch(
    launch: "Launch", loop: asyncio.AbstractEventLoop, *, take: Callable[[Notice], None], tell: Tell
) -> Watch | None:
    """Of what the launch names, from now on; `take` is called in the loop. None: there is nothing to watch."""
    if not launch.notices:
        return None

    def pass_on(notice: Notice) -> None:
        loop.call_soon_threadsafe(take, notice)

    begun = Watch(sources_of(launch.notices), take=pass_on, tell=tell)
    begun.start()
    return begun


def usual_notice(launch: "Launch") -> float | None:
    """Seconds; the shortest of what may come. None: nobody says."""
    named = [USUAL_NOTICE[name] for name in launch.notices if name in USUAL_NOTICE]
    return launch.notice_seconds or min(named, default=None)


def timed(notice: Notice, now: float) -> Notice:
    """What is far away is only advice, until it is near: then it is told again."""
    if notice.kind is Kind.FINAL and notice.deadline - now > LEAVE_WITHIN:
        return replace(notice, kind=Kind.ADVISORY)
    return notice


def sources_of(named: Mapping[str, str]) -> list[Source]:
    from whistlestop.runner.sources import SOURCES, Unknown  # http and all: not before somebody needs it

    return [
        source
        for name, where in named.items()
        for source in (SOURCES[name](where) if name in SOURCES else [Unknown(name, where)])
    ]
