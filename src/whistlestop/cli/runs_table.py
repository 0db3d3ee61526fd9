"""Runs as a table: ls and queue."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from whistlestop.cli import words
from whistlestop.cli.failures import printable
from whistlestop.cli.output import console, table
from whistlestop.wire.api import RunView

BESIDE = 84  # letters that the other columns need


def runs_table(runs: Sequence[RunView]) -> Table:
    numbers = ("#", "elapsed", "left", "credits")
    made = table("#", "name", "status", "phase", "progress", "elapsed", "left", "credits", "why", right=numbers)
    made.columns[1].max_width = max(16, console().width - BESIDE)  # a long name must not push the numbers out
    for run in runs:
        symbol, colour = words.SYMBOLS[run.status]
        made.add_row(
            str(run.number),
            printable(run.name),
            Text(f"{symbol} {words.status(run)}", style=colour),
            printable(run.phase or ""),
            f"{words.bar(run.progress.fraction)} {words.percent(run.progress.fraction)}".strip(),
            words.length(run.elapsed_s) if run.started_at else "–",
            words.length(run.eta_s),
            words.amount(run.credits.used),
            Text(_why(run), style="dim", no_wrap=True, overflow="ellipsis"),
        )
    return made


def _why(run: RunView) -> str:
    """One line; `show` has all of it."""
    place = f"{ordinal(run.queue.position)} in the queue" if run.status == "queued" and run.queue else ""
    cause = f"{run.cause}; " if run.cause and run.cause not in (run.reason or "") else ""
    return " ".join(printable(place or f"{cause}{run.reason or ''}").split())


def ordinal(position: int) -> str:
    ending = "th" if position % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(position % 10, "th")
    return f"{position}{ending}"
