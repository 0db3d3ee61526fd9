"""Which hosts are not to be used: those on which runs keep ending for reasons that lie with the host. Pure.

An end counts less the longer ago it is, and nothing that a run had elsewhere too says anything about a host. A person
may exclude and readmit; by itself never more than a quarter of a pool is excluded, and never the last host."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from whistlestop.capacity.pools import Pool
from whistlestop.capacity.room import Place
from whistlestop.domain.clock import iso
from whistlestop.domain.reasons import EndReason

HALF_LIFE = 12 * 3600.0
EXCLUDED_AT = 2.5  # the weight of three ends, with some time between them
READMITTED_BELOW = 1.0
SHARE = 0.25  # of a pool's hosts, at most
SEVERAL = 3  # different runs whose programs failed on a host, one after the other: then it may be the host

# What lies with the host, and what may.
HOST_CAUSED = frozenset({EndReason.RUNNER_LOST, EndReason.HOST_LOST, EndReason.PREPARE_FAILED, EndReason.LAUNCH_FAILED})
PERHAPS = frozenset({EndReason.OUT_OF_MEMORY, EndReason.SIGNALLED, EndReason.CODE_RAISED})
GOOD = frozenset({EndReason.FINISHED, EndReason.STOPPED})


@dataclass(frozen=True)
class End:
    """How an attempt ended on a host."""

    place: Place
    at: float
    reason: EndReason
    run_id: str
    number: int = 0  # of its run
    name: str = ""  # of its run
    phase_id: str = ""
    step: int = 0


@dataclass(frozen=True)
class Said:
    """What a person has said of a host."""

    excluded_at: float | None = None
    excluded_until: float | None = None  # None: until it is readmitted
    by: str = ""
    readmitted_at: float | None = None  # what was before counts no more
    note: str = ""


@dataclass(frozen=True)
class Standing:
    place: Place
    slots: int = 0
    weight: float = 0.0
    excluded: bool = False
    until: float | None = None  # None while excluded: until a person readmits it
    by: str = ""  # who did; empty: its own record
    why: str = ""
    bad: tuple[End, ...] = ()  # what counts against it, the newest first


def standings(
    pools: Iterable[Pool], ends: Sequence[End], said: Mapping[Place, Said], now: float
) -> dict[Place, Standing]:
    """Of every host of every pool."""
    found: dict[Place, Standing] = {}
    bad = _against(ends)
    for pool in pools:
        here = []
        for host in pool.by_host:
            place = (pool.name, host.name)
            words = said.get(place, Said())
            since = words.readmitted_at or -math.inf
            counted = tuple(end for end in bad.get(place, ()) if end.at > since)
            here.append(_standing(place, len(host.slots), counted, words, now))
        found.update({each.place: each for each in _few(here)})
    return found


def shut(found: Mapping[Place, Standing]) -> dict[Place, str]:
    return {place: each.why for place, each in found.items() if each.excluded}


def _against(ends: Sequence[End]) -> dict[Place, list[End]]:
    """By host, the newest first."""
    of_phase: dict[str, list[End]] = defaultdict(list)
    good: dict[Place, float] = {}  # when the newest one was
    for end in ends:
        of_phase[end.phase_id or end.run_id].append(end)
        if end.reason in GOOD:
            good[end.place] = max(end.at, good.get(end.place, -math.inf))
    counted: dict[Place, list[End]] = defaultdict(list)
    maybe: dict[Place, list[End]] = defaultdict(list)
    for end in ends:
        if end.reason not in HOST_CAUSED and end.reason not in PERHAPS:
            continue
        others = [other for other in of_phase[end.phase_id or end.run_id] if other.place != end.place]
        if end.reason is not EndReason.HOST_LOST and any(other.reason is end.reason for other in others):
            continue  # it takes its trouble along
        if end.reason in HOST_CAUSED or any(other.at > end.at and _went_past(other, end) for other in others):
            counted[end.place].append(end)
        else:
            maybe[end.place].append(end)
    for place, some in maybe.items():
        counted[place] += _several(some, good.get(place, -math.inf))
    return {place: sorted(found, key=lambda end: -end.at) for place, found in counted.items()}


def _went_past(other: End, end: End) -> bool:
    return other.reason in GOOD or other.step > end.step


def _several(ends: Sequence[End], good: float) -> list[End]:
    """Programs that fail are their own fault, unless different ones do so here and none succeeds."""
    late = [end for end in ends if end.at > good]
    return late if len({end.name or end.run_id for end in late}) >= SEVERAL else []


def _standing(place: Place, slots: int, bad: tuple[End, ...], said: Said, now: float) -> Standing:
    weight, excluded, before = 0.0, False, 0.0
    for end in reversed(bad):
        weight = weight * _decay(end.at - before) if weight else 0.0
        excluded = excluded and weight >= READMITTED_BELOW
        weight, before = weight + 1.0, end.at
        excluded = excluded or weight >= EXCLUDED_AT
    ends_at = before + HALF_LIFE * math.log2(weight / READMITTED_BELOW) if weight else 0.0
    weight *= _decay(now - before) if weight else 1.0
    plain = Standing(place, slots, weight, bad=bad)
    if said.excluded_at is not None and (said.excluded_until is None or said.excluded_until > now):
        until = f" until {iso(said.excluded_until)}" if said.excluded_until is not None else ""
        why = f"excluded by {said.by}{until}" + (f": {said.note}" if said.note else "")
        return replace(plain, excluded=True, until=said.excluded_until, by=said.by, why=why)
    if excluded and ends_at > now:
        return replace(plain, excluded=True, until=ends_at, why=f"{_counted(bad)}, until {iso(ends_at)}")
    return plain


def _few(here: Sequence[Standing]) -> list[Standing]:
    """The worst of them only, and never all: then it is said, not done."""
    there = [each for each in here if each.slots]  # hosts that are away are nothing to fall back on, nor do they count
    own = sorted((each for each in there if each.excluded and not each.by), key=lambda each: -each.weight)
    others = sum(1 for each in there if not each.by)
    most = max(0, min(max(1, int(SHARE * len(there))), others - 1))
    kept = {each.place for each in own[most:]}
    last = others - min(most, len(own)) < 2
    return [_let_in(each, last=last) if each.place in kept else each for each in here]


def _let_in(each: Standing, *, last: bool) -> Standing:
    name = f"host {each.place[1]}" if each.place[1] else "its host"
    but = "is the only one left" if last else f"no more than a quarter of pool {each.place[0]} is excluded at once"
    return replace(each, excluded=False, until=None, why=f"{name} would be excluded ({_counted(each.bad)}) but {but}")


def _counted(bad: Sequence[End]) -> str:
    kinds = ", ".join(dict.fromkeys(end.reason.value.replace("_", " ") for end in bad))
    return f"{len(bad)} bad ends: {kinds}"


def _decay(seconds: float) -> float:
    return float(0.5 ** (max(0.0, seconds) / HALF_LIFE))
