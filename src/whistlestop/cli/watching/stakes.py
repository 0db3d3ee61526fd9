"""What a dialog says before it asks: what is kept, what is lost, what it frees, costs and takes."""

from rich.table import Table
from rich.text import Text

from whistlestop.cli import words
from whistlestop.cli.run_view import one_line
from whistlestop.cli.watching.style import Palette
from whistlestop.wire.api import RunView
from whistlestop.wire.pages import Consequences

Fact = tuple[str, str]


def question(verb: str, run: RunView, phase: str | None) -> str:
    name = one_line(run.name)
    match verb:
        case "stop":
            return f"Stop phase {one_line(phase or '')} of #{run.number} {name}?"
        case "pause":
            return f"Pause #{run.number} {name}?"
        case "resume":
            return f"Resume #{run.number} {name}?"
        case _:
            return f"This action will permanently kill {name}. Are you sure you want to kill this training?"


def facts(verb: str, run: RunView, told: Consequences | None) -> list[Fact]:
    """`told` is None where there is nothing to lose."""
    made = _of_run(run) if verb == "kill" else []
    if verb == "resume":
        made.append(("goes on", "from its newest checkpoint, as soon as its slots are free"))
    if told is None:
        return made
    made += [("kept" if number == 0 else "", one_line(text)) for number, text in enumerate(told.kept)]
    made += [("lost" if number == 0 else "", one_line(text)) for number, text in enumerate(told.lost)]
    made += [("goes on" if number == 0 else "", one_line(text)) for number, text in enumerate(told.goes_on)]
    if told.frees and told.frees.slots:
        made.append(("frees", _frees(told)))
    if told.per_hour:
        made.append(("costs", f"{words.amount(told.per_hour)} credits an hour until it has ended"))
    if told.takes:
        count = f"{told.takes.count} time{'s' if told.takes.count > 1 else ''}"
        made.append(("takes", f"about {_seconds(told.takes.seconds)}, as measured {count} {_among(told.takes.among)}"))
    if told.at_most_s is not None:
        made.append(("" if told.takes else "takes", f"{_seconds(told.at_most_s)} at most: then it is ended"))
    if told.undo:
        made.append(("undo", "can't be undone" if told.undo == "no" else one_line(told.undo)))
    return made


def table(rows: list[Fact], palette: Palette) -> Table:
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style=palette.faint, no_wrap=True)
    made.add_column(overflow="fold")
    group = ""
    for name, value in rows:
        group = name or group
        made.add_row(name, Text(value, style=palette.bad if group == "lost" else ""))
    return made


def _of_run(run: RunView) -> list[Fact]:
    rows = [("started", words.local_time(run.started_at) if run.started_at else "not yet")]
    if done := words.steps(run.progress):
        share = f" ({words.percent(run.progress.fraction).strip()})" if run.progress.fraction is not None else ""
        rows.append(("progress", done + share))
    saved = words.saved(run)
    rows.append(("credits", f"{words.amount(run.credits.used)} used" + (f", {saved}" if saved else "")))
    return rows


def _frees(told: Consequences) -> str:
    assert told.frees is not None
    slots = told.frees.slots
    text = f"{slots} slot{'s' if slots > 1 else ''}" + (f" of pool {told.frees.pool}" if told.frees.pool else "")
    if told.frees.next:
        text += f"; {' and '.join(f'#{run.number} ({one_line(run.name)})' for run in told.frees.next[:3])} would start"
    return text


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 10 else words.length(seconds)


def _among(among: str) -> str:
    return "for this phase" if among == "phase" else "on this pool"
