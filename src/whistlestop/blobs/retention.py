"""Which checkpoints may go. Pure: the storage does the removing."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whistlestop.blobs.manifest import Checkpoint

ASKED = ("on request", "asked by the program")


@dataclass(frozen=True)
class Policy:
    """What stays. One checkpoint may stay for several reasons; whatever is said here, some always do (`removable`)."""

    last: int = 3  # the newest, by step; and as many of those that somebody asked for
    best: int = 0  # by a metric; one at least, if `by` is given
    by: str = ""
    mode: str = "min"  # or "max": which values are good
    every: int = 0  # of every so many steps, the first one

    @classmethod
    def from_launch(cls, keep: int, policy: Mapping[str, Any]) -> "Policy":
        """As a launch says it. Words that this version does not know keep nothing, and break nothing."""
        return cls(
            last=_whole(policy.get("last"), keep),
            best=_whole(policy.get("best"), 0),
            by=str(policy.get("by") or ""),
            mode="max" if policy.get("mode") == "max" else "min",
            every=_whole(policy.get("every"), 0),
        )


def removable(
    checkpoints: Sequence[Checkpoint],
    *,
    keep: int | None = None,
    policy: Policy | None = None,
    protected: Collection[str] = (),
) -> list[Checkpoint]:
    """All that the policy does not keep, oldest first. `keep`: in place of a policy that says only how many.

    Whatever it says, these stay: the newest one; the newest healthy one, which is what a resume would take; the best
    one, if the policy names a metric; the protected ids, which do not count against any number. A revision that a later
    one of the same step and attempt has replaced may go, unless the later one is not healthy and it is needed itself.
    """
    if policy is None:
        policy = Policy() if keep is None else Policy(last=keep)
    newest_first = sorted(checkpoints, key=_order, reverse=True)
    ranked = _one_per_save(newest_first)
    healthy = _one_per_save([each for each in newest_first if each.healthy])
    last = max(1, policy.last)
    kept = {each.id for each in (*ranked[:last], *healthy[:1])} | set(protected)
    # What somebody has asked for is not pushed out by what came by itself.
    kept |= {each.id for each in [each for each in ranked if each.meta.get("why") in ASKED][:last]}
    kept |= {each.id for each in (*_best(healthy, policy), *_milestones(healthy, policy.every))}
    return [each for each in reversed(newest_first) if each.id not in kept]


def _best(newest_first: Iterable[Checkpoint], policy: Policy) -> list[Checkpoint]:
    """Of equal ones the newest: it has trained longer."""
    if not policy.by:
        return []
    sign = -1.0 if policy.mode == "max" else 1.0
    valued = [(sign * value, each) for each in newest_first if (value := _value(each, policy.by)) is not None]
    return [each for _, each in sorted(valued, key=lambda pair: pair[0])[: max(1, policy.best)]]


def _milestones(newest_first: Iterable[Checkpoint], every: int) -> list[Checkpoint]:
    """The first of each window; of one step that was reached twice, that of the later attempt."""
    first: dict[int, Checkpoint] = {}
    for each in newest_first if every > 0 else ():
        known = first.get(each.step // every)
        if known is None or each.step < known.step:
            first[each.step // every] = each
    return list(first.values())


def _value(checkpoint: Checkpoint, name: str) -> float | None:
    metrics = checkpoint.meta.get("metrics")
    value = metrics.get(name) if isinstance(metrics, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _one_per_save(newest_first: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Without the revisions that a later one of these has replaced."""
    seen: dict[tuple[int, int], Checkpoint] = {}
    for each in newest_first:
        seen.setdefault((each.step, each.attempt_number), each)
    return list(seen.values())


def _order(checkpoint: Checkpoint) -> tuple[int, int, int]:
    return checkpoint.step, checkpoint.attempt_number, checkpoint.revision


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
