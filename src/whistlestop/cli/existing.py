"""Names that a run does not have: said at once, with those that it has. Silence would be taken for an empty log."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whistlestop.cli import words
from whistlestop.domain.errors import NotFound
from whistlestop.wire.mistakes import nearest

if TYPE_CHECKING:
    from whistlestop.client import Client

SHOWN = 20


def check_phase(client: "Client", run: str, phase: str | None, attempt: int | None = None) -> None:
    if phase is None and attempt is None:
        return
    found = client.run(run)
    names = [each.name for each in found.phases]
    if phase is not None and phase not in names:
        raise NotFound(f"Run {words.name(found)} has no phase {phase!r}.", hint=_hint(phase, names))
    numbers = [each.number for one in found.phases for each in one.attempts if phase in (None, one.name)]
    if attempt is not None and attempt not in numbers:
        whose = f"Run {words.name(found)}" if phase is None else f"Phase {phase} of run {words.name(found)}"
        known = ", ".join(map(str, sorted(numbers)))
        raise NotFound(f"{whose} has no attempt {attempt}.", hint=f"there is: {known}" if known else "it has not begun")


def check_metrics(client: "Client", run: str, wanted: Sequence[str], phase: str | None) -> None:
    """Every one of them must be there."""
    found = {item.name for item in client.series(run).series if phase in (None, item.phase)}
    missing = [name for name in wanted if name not in found]
    if missing:
        raise NotFound(
            f"{words.name(client.run(run))} has logged no {' and no '.join(map(repr, missing))}"
            f"{f' in phase {phase}' if phase else ''}.",
            hint=_hint(missing[0], sorted(found)) if found else "it has logged nothing so far",
        )


def _hint(word: str, known: Sequence[str]) -> str:
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    there = f"there is: {', '.join(known[:SHOWN])}{more}"
    meant = nearest(word, known)
    return f"{meant}; {there}" if meant else there
