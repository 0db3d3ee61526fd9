"""Runs as a table: ls and queue."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from whistlestop.cli import words
from whistlestop.cli.failures import printable
from whistlestop.cli.output import table
from whistlestop.wire.api import RunView


def runs_table(runs: Sequence[RunView]) -> Table:
    made = table(
        "#",
        "name",
        "status",
        "phase",
        "progress",
        "elapsed",
        "left",
        "credits",
        right=("#", "elapsed", "left", "credits"),
    )
    for run in runs:
        made.add_row(
            str(run.number),
            printable(run.name),
            status_text(run),
            printable(run.phase or ""),
            f"{words.bar(run.progress.fraction)} {words.percent(run.progress.fraction)}".strip(),
            words.length(run.elapsed_s) if run.started_at else "–",
            words.length(run.eta_s),
            words.amount(run.credits.used),
        )
    return made


def status_text(run: RunView) -> Text:
    symbol, colour = words.SYMBOLS[run.status]
    text = Text(f"{symbol} {words.status(run)}", style=colour)
    why = run.reason
    if run.status == "queued" and run.queue:
        why = f"{ordinal(run.queue.position)} in the queue"
    if why:
        text.append(f" · {printable(why).replace(chr(10), ' ')}"[:60], style="dim")
    return text


def ordinal(position: int) -> str:
    ending = "th" if position % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(position % 10, "th")
    return f"{position}{ending}"
