"""Who is slow: the rank that comes last, step after step, while the others wait for it.

Every rank stores when it was ready for a step, in its own page. A thread of rank 0 compares them, once a second. What
can be seen so is what comes between the last collective of a step and the next one's beginning, and the data that was
waited for; what a rank does before the collective of the same step makes all of them late alike.
"""

import socket
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from whistlestop.channel.layout import Word
from whistlestop.sdk.attachment import Attachment
from whistlestop.sdk.group import ARRIVALS, ARRIVED, Group

WINDOW: Final = 200  # steps that a verdict is about
FEWEST: Final = 50
_EVERY: Final = 1.0  # seconds between two looks, or longer, where looking takes long
_SHARE: Final = 20  # it takes no more than this part of the time
_OFTEN, _SELDOM = 0.8, 0.5  # of the steps: to be called slow, and to be so no longer
_PART, _LEAST = 0.05, 0.002  # of a step, and seconds, that the others wait for it


@dataclass(frozen=True)
class Seen:
    """Of the ranks of one node: when each was ready for its last steps, up to `step`, by rank 0's clock."""

    step: int
    host: str
    ready: Mapping[int, Sequence[float]]
    unsure: float = 0.0  # seconds: by so much its clock may be off

    def at(self, step: int) -> dict[int, float] | None:
        back = step - self.step - 1
        return {rank: times[back] for rank, times in self.ready.items()} if -ARRIVALS // 4 <= back < 0 else None


class Verdict(NamedTuple):
    rank: int
    share: float  # of the steps at which it came last
    steps: int
    wait: float  # seconds a step


class Judge:
    """`look` gives news: a rank that is slow now, or None where it is so no more."""

    def __init__(self) -> None:
        self.slow: int | None = None
        self._lasts: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._step = -1  # the newest one that was compared

    def look(self, nodes: Sequence[Seen]) -> "tuple[Verdict | None] | None":
        """The answer is in a tuple if it is news."""
        newest = min(each.step for each in nodes)
        pace = list[float]()
        for step in range(max(self._step + 1, newest - ARRIVALS // 4 + 1), newest + 1):
            found = [each.at(step) for each in nodes]
            if None in found:
                continue  # one is far ahead: they don't train in lockstep, or it was not looked at for long
            ready = {rank: at for each in found if each for rank, at in each.items()}
            last = max(ready, key=ready.__getitem__)
            others = [at for rank, at in ready.items() if rank != last]
            pace.append(statistics.median(others))
            self._lasts.append((last, ready[last] - statistics.median(others)))
        self._step = max(self._step, newest)
        if len(pace) < 2 or len(self._lasts) < FEWEST:
            return None
        return self._judge((pace[-1] - pace[0]) / (len(pace) - 1), max(each.unsure for each in nodes))

    def _judge(self, pace: float, unsure: float) -> "tuple[Verdict | None] | None":
        ((rank, count),) = Counter(rank for rank, _ in self._lasts).most_common(1)
        if self.slow is not None:
            rank = self.slow
            count = sum(each == rank for each, _ in self._lasts)
        wait = statistics.fmean(lag if each == rank else 0.0 for each, lag in self._lasts)
        share = count / len(self._lasts)
        least = max(_LEAST, _PART * pace, unsure)
        if self.slow is None and share >= _OFTEN and wait >= least:
            self.slow = rank
            return (Verdict(rank, share, len(self._lasts), wait),)
        if self.slow is not None and (share < _SELDOM or wait < least / 2):
            self.slow = None
            return (None,)
        return None


class Stragglers:
    """The thread, in rank 0."""

    def __init__(self, group: Group, attachment: Attachment) -> None:
        self._group, self._attachment = group, attachment
        self._judge = Judge()
        self._named = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="whistlestop-stragglers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)

    def _run(self) -> None:
        pause = _EVERY
        while not self._over.wait(pause):
            began = time.monotonic()
            try:
                self._look()
            except Exception as error:  # it is nobody's reason to stop training
                self._attachment.say(f"whether a rank is slow can't be told: {error!r}")
                return
            pause = max(_EVERY, _SHARE * (time.monotonic() - began))

    def _look(self) -> None:
        here = seen(self._group, self._attachment.progress[Word.STEP])
        nodes = [each.seen() for each in self._group.nodes]
        if here is None or None in nodes:
            return  # some have not come so far, or are over
        everywhere = [here, *(each for each in nodes if each is not None)]
        news = self._judge.look(everywhere)
        if news is None or self._over.is_set():
            return
        (verdict,) = news
        if verdict is None:
            self._tell(f"{self._named} is not slow any more", None)
            return
        host = next(each.host for each in everywhere if verdict.rank in each.ready)
        self._named = f"rank {verdict.rank} on host {host}"
        words = (
            f"{self._named} is slow: it comes last in {verdict.share:.0%} of the last {verdict.steps} steps that were "
            f"looked at, the others wait {verdict.wait * 1000:.3g} ms a step for it"
        )
        self._tell(words, verdict, host=host)

    def _tell(self, text: str, verdict: Verdict | None, **more: str) -> None:
        data = {**verdict._asdict(), **more} if verdict is not None else {}
        level = "warning" if verdict is not None else "info"
        self._attachment.tell({"kind": "straggler", "level": level, "text": text, **data})
        if not self._attachment.attached:
            self._attachment.say(text)


def seen(group: Group, own_step: int | None = None) -> Seen | None:
    """Of this node. `own_step`: of the rank that asks, where its page does not say. None: not all have begun."""
    first, pages = group.world.rank - group.world.local_rank, group.pages()
    steps = [page[Word.STEP] for page in pages]
    if own_step is not None:
        steps[group.world.local_rank] = own_step
    last = min(steps) - 1  # for the newest one its rank may still be waiting for data
    if last < ARRIVALS // 4 or max(steps) - last > ARRIVALS // 2:
        return None
    wanted = range(last - ARRIVALS // 4 + 1, last + 1)
    ready = {
        first + local: [page.seconds(ARRIVED + step % ARRIVALS) for step in wanted] for local, page in enumerate(pages)
    }
    if any(at <= 0.0 for times in ready.values() for at in times):
        return None  # it has just been restored, and has not been round
    return Seen(last, socket.gethostname(), ready)
