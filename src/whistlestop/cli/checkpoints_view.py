"""Checkpoints as text: the list, what is at risk, what differs between two."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from whistlestop.cli import words
from whistlestop.cli.failures import printable
from whistlestop.cli.output import table
from whistlestop.wire.api import CheckpointView, RunView

if TYPE_CHECKING:
    from whistlestop.client.checkpoints import Difference
    from whistlestop.wire.checkpoints import CheckpointDetail, NextSave, SavingView

METRICS = 3  # shown in a line


def checkpoints_table(found: Sequence[CheckpointView], now: datetime | None = None) -> Table:
    numbers = ("step", "attempt", "age", "size", "written", "block", "upload")
    made = table(
        "step", "phase", "attempt", "age", "size", "written", "block", "upload", "metrics", "why", "", right=numbers
    )
    for item in found:
        made.add_row(
            f"{item.step:,}",
            printable(item.phase),
            str(item.attempt),
            age(item.committed_at, now),
            words.size(item.bytes),
            "–" if item.written is None else words.size(item.written),
            took(item.block_seconds),
            took(item.upload_seconds),
            metrics(item.metrics),
            printable(item.why),
            marks(item),
            style="dim" if item.trashed_until else None,
        )
    return made


def marks(item: CheckpointView) -> str:
    said = (
        ("newest", item.newest),
        ("best", item.best),
        ("pinned", item.pinned),
        ("unhealthy", not item.healthy),
        ("damaged", not item.verified),
        (f"removed, until {words.local_time(item.trashed_until)}", item.trashed_until is not None),
    )
    return ", ".join(word for word, so in said if so)


def metrics(values: Mapping[str, Any]) -> str:
    shown = [
        f"{printable(name)} {words.number(float(value))}"
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return ", ".join(shown[:METRICS]) + (" …" if len(shown) > METRICS else "")


def took(seconds: float | None) -> str:
    """12 ms, 3.4 s, 2m05s"""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else words.length(seconds)


def age(at: str, now: datetime | None = None) -> str:
    try:
        return words.length(((now or datetime.now(UTC)) - datetime.fromisoformat(at)).total_seconds())
    except ValueError:
        return "–"


def risk_lines(run: RunView) -> list[str]:
    """What no checkpoint holds yet, of each phase that trains."""
    risks = [(phase.name, phase.at_risk) for phase in run.phases if phase.at_risk is not None]
    return [f"{f'{name}: ' if len(risks) > 1 else ''}{words.at_risk(risk)}" for name, risk in risks]


def saving_lines(found: Sequence["SavingView"], now: datetime | None = None) -> list[str]:
    """When it saves next and why, and a save that failed."""
    lines = []
    for item in found:
        name = f"{item.phase}: " if len(found) > 1 else ""
        if item.failed is not None:
            at = words.local_time(item.failed.at, date=False)
            lines.append(printable(f"{name}A save failed at {at}, and none has succeeded since: {item.failed.text}"))
        if item.next is not None:
            lines.append(printable(f"{name}Next save: {_due(item.next, now)} ({item.next.why})"))
    return lines


def _due(coming: "NextSave", now: datetime | None) -> str:
    found = [f"at step {coming.step:,}"] if coming.step is not None else []
    if coming.at is not None:
        left = (datetime.fromisoformat(coming.at) - (now or datetime.now(UTC))).total_seconds()
        found.append(f"in about {words.length(left)}" if left > 0 else "due now")
    return " or ".join(found)


def difference(first: "CheckpointDetail", second: "CheckpointDetail", made: "Difference") -> list[RenderableType]:
    parts: list[RenderableType] = [Text(f"{_name(first)}  →  {_name(second)}", style="bold")]
    rows = table("part", "files", "size", "differs", right=("size", "differs"))
    for part in made.parts:
        counts = ((part.same, "same"), (part.changed, "changed"), (part.added, "added"), (part.removed, "removed"))
        grown = words.size(part.after) if part.before == part.after else (
            f"{words.size(part.before)} → {words.size(part.after)}"
        )  # fmt: skip
        rows.add_row(
            printable(part.name),
            ", ".join(f"{count} {word}" for count, word in counts if count),
            grown,
            words.size(part.differ),
        )
    parts.append(rows)
    if made.same:
        parts.append(Text("Every file is the same."))
    for title, values in (("metric", made.metrics), ("meta", made.meta)):
        if values:
            each = table(title, "before", "after")
            for name, (before, after) in values.items():
                each.add_row(printable(name), _value(before), _value(after))
            parts += [Text(), each]
    return parts


def _name(item: "CheckpointDetail") -> str:
    return f"{printable(item.phase)} step {item.step:,} ({item.id})"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return words.number(value)
    return "–" if value is None else printable(str(value))[:200]
