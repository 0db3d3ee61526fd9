"""Which of several checkpoints is meant where none is named, and which never is. One rule for all who choose."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar


class Committed(Protocol):
    """A row of the store, or what a client was told of it."""

    @property
    def phase(self) -> str: ...
    @property
    def committed_at(self) -> Any: ...


C = TypeVar("C", bound=Committed)


def passed_over(rules: Iterable[Sequence[int]], *, attempt: int, step: int) -> bool:
    """A guard rolled back behind it. Each rule is [attempt, step]: nobody goes on by itself from what that attempt, or
    one before it, has saved from that step on."""
    return any(attempt <= last and step >= first for last, first in rules)


def latest(found: Sequence[C]) -> C | None:
    """The newest of the phase that has saved last. `found`: newest first, as they are listed. Within a phase that order
    counts, as at a resume, and not the time of the commit: clocks are set back."""
    last = max(found, key=lambda each: each.committed_at, default=None)
    return next((each for each in found if last is not None and each.phase == last.phase), None)
