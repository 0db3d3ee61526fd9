"""How the time of one attempt was spent. The pieces join from the queue to the proven end: nothing is counted twice,
and nothing is left out, whatever clocks and programs have said."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

SEVERAL = 10  # of its own steps without progress, and at least
QUIET = 5.0  # so many seconds: progress is told now and then, not step by step
DAY = 86400.0
MOST_DAYS = 4000  # that one piece is cut into: no attempt lasts longer, but a clock may say so


class Kind(StrEnum):
    QUEUED = "queued"  # waited for capacity: free
    STARTING = "starting"  # until its loop was reached
    PRODUCTIVE = "productive"  # steps that nobody had made before
    REDONE = "redone"  # steps that an earlier attempt had made and lost
    SAVING = "saving"  # the loop waited for a checkpoint
    STALLED = "stalled"  # no progress any more, and nobody had asked it to end
    STOPPING = "stopping"  # from the request or the notice to the proven end


@dataclass(frozen=True)
class Save:
    """How long the loop waited for one checkpoint, and when that was over."""

    until: float
    seconds: float


@dataclass(frozen=True)
class Facts:
    """What is known of one attempt; None: it did not happen, or nobody said so."""

    started_at: float
    ended_at: float  # or now
    queued_at: float | None = None
    loop_at: float | None = None  # the program's start where it has no loop
    counts: bool = True  # its progress is told in steps
    steps: int = 0  # that it made
    known_steps: int = 0  # the first so many of them had been made before
    progress_at: float | None = None  # its last step
    busy: bool = False  # it was saving or evaluating then, or has ended as it should: no step is missed
    saves: Sequence[Save] = ()
    stopping_at: float | None = None


@dataclass(frozen=True)
class Piece:
    kind: Kind
    since: float
    until: float

    @property
    def seconds(self) -> float:
        return self.until - self.since


def split(facts: Facts) -> list[Piece]:
    """One piece of each kind at most, laid end to end in the order in which they mostly come."""
    start, end = _span(facts)
    stop = _within(facts.stopping_at, start, end, end)
    loop = min(_within(facts.loop_at, start, end, end), stop)
    if facts.counts and facts.steps <= 0:
        loop = stop  # nothing came of it
    last = _within(facts.progress_at, loop, stop, stop)
    if facts.busy or not facts.counts or stop - last <= max(QUIET, SEVERAL * (last - loop) / max(1, facts.steps)):
        last = stop
    saving = _covered(facts.saves, loop, last)
    late = _covered(facts.saves, last, stop)
    working = last - loop - saving
    redone = working * min(1.0, max(0, facts.known_steps) / facts.steps) if facts.counts and facts.steps > 0 else 0.0
    lengths = {
        Kind.STARTING: loop - start,
        Kind.REDONE: redone,
        Kind.PRODUCTIVE: working - redone,
        Kind.SAVING: saving + late,
        Kind.STALLED: stop - last - late,
        Kind.STOPPING: end - stop,
    }
    return [*_queued(facts.queued_at, start), *_laid(lengths, start, end)]


def by_day(pieces: Iterable[Piece]) -> list[Piece]:
    """Cut at midnight (UTC), so that a day's sum needs no look at the others."""
    cut = []
    for piece in pieces:
        first, last = math.floor(piece.since / DAY) + 1, math.ceil(piece.until / DAY)
        midnights = [day * DAY for day in range(first, last)] if last - first < MOST_DAYS else []
        edges = [piece.since, *midnights, piece.until]
        cut += [Piece(piece.kind, since, until) for since, until in pairwise(edges) if until > since]
    return cut


def _span(facts: Facts) -> tuple[float, float]:
    start = facts.started_at if math.isfinite(facts.started_at) else 0.0
    known = math.isfinite(facts.started_at) and math.isfinite(facts.ended_at)
    return start, max(start, facts.ended_at) if known else start


def _within(value: float | None, low: float, high: float, default: float) -> float:
    return default if value is None or not math.isfinite(value) else min(high, max(low, value))


def _queued(since: float | None, start: float) -> list[Piece]:
    return [] if since is None or not math.isfinite(since) or since >= start else [Piece(Kind.QUEUED, since, start)]


def _covered(saves: Iterable[Save], low: float, high: float) -> float:
    """Seconds between the two in which a save was waited for."""
    total, reached = 0.0, low
    known = [save for save in saves if math.isfinite(save.until) and math.isfinite(save.seconds)]
    for save in sorted(known, key=lambda save: save.until - save.seconds):
        until = min(high, save.until)
        total += max(0.0, until - max(reached, save.until - save.seconds))
        reached = max(reached, until)
    return min(total, high - low)


def _laid(lengths: Mapping[Kind, float], start: float, end: float) -> list[Piece]:
    pieces, at = list[Piece](), start
    for kind, seconds in lengths.items():
        until = min(end, at + seconds)
        if until > at:
            pieces.append(Piece(kind, at, until))
            at = until
    if pieces:  # what is lost by rounding belongs to the last one
        pieces[-1] = replace(pieces[-1], until=end)
    return pieces
