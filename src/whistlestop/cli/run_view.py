"""One run as a page of text."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from whistlestop.cli import words
from whistlestop.cli.checkpoints_view import risk_lines, saving_lines
from whistlestop.cli.failures import printable
from whistlestop.cli.output import console, table
from whistlestop.cli.runs_table import ordinal
from whistlestop.cli.usage_view import kinds_line
from whistlestop.wire.api import AttemptView, ChangeView, FindingView, PhaseView, RunView

if TYPE_CHECKING:
    from whistlestop.wire.checkpoints import SavingView

WEIGHTS = {"fatal": "red", "bad": "yellow", "hint": ""}
SURE = 0.9  # from here on it is said without reserve
EPOCHS_FROM = 100  # columns; with less there is room for the steps alone
Summaries = Mapping[str, Mapping[str, Any]]  # by phase: what the program put into run.summary


def run_view(
    run: RunView, summaries: Summaries | None = None, saving: Sequence["SavingView"] = (), slow: str = ""
) -> RenderableType:
    """`slow`: the rank that the others wait for, in words."""
    risks = [Text(printable(line)) for line in (*filter(None, [slow]), *risk_lines(run), *saving_lines(saving))]
    tables = (*risks, *summary_lines(summaries or {}), *steering(run.phases), *_attempts(run.phases))
    return Group(headline(run), _facts(run), Text(), phases_table(run.phases), *_whys(run.phases), *tables)


def summary_lines(summaries: Summaries) -> list[RenderableType]:
    """What the programs said of themselves at their end."""
    made = table("phase", "summary", "value")
    for phase, values in summaries.items():
        for name, value in values.items():
            made.add_row(printable(phase), one_line(name), Text(_value(value), overflow="ellipsis", no_wrap=True))
    return [Text(), made] if made.rows else []


def _value(value: Any) -> str:
    if isinstance(value, float):
        return words.number(value) if math.isfinite(value) else str(value)
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def one_line(text: str) -> str:
    return " ".join(printable(text).split())


def headline(run: RunView) -> Text:
    symbol, colour = words.SYMBOLS[run.status]
    text = Text.assemble((f"{symbol} ", colour), (f"#{run.number} {printable(run.name)}", "bold"), "  ")
    text.append(words.status(run), style=colour)
    if run.reason:
        text.append(f": {printable(run.reason)}")
    return text


def _facts(run: RunView) -> Table:
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="dim")
    made.add_column(overflow="fold")
    for title, value in _fact_lines(run):
        made.add_row(title, printable(value))
    return made


def _fact_lines(run: RunView) -> list[tuple[str, str]]:
    lines = [("id", run.id), ("project", run.project)]
    if run.queue:
        lines.append(("queue", f"{ordinal(run.queue.position)}; waits for {words.with_times(run.queue.waits_for)}"))
    if run.workflow:
        lines.append(("workflow", run.workflow))
    if run.parent:
        step = f" at step {run.parent.step:,}" if run.parent.step is not None else ""
        word = "continues" if run.parent.relation == "continue" else "repeats"
        parent = f"#{run.parent.number}" if run.parent.number is not None else f"{run.parent.run} (deleted)"
        lines.append(("origin", f"{word} run {parent}{step}"))
    lines.append(
        ("submitted", f"{words.local_time(run.created_at)}{f' by {run.created_by}' if run.created_by else ''}")
    )
    if run.started_at:
        lines.append(("started", words.local_time(run.started_at)))
    if run.ended_at:
        lines.append(("ended", words.local_time(run.ended_at)))
    left = f", {words.length(run.eta_s)} left" if run.eta_s is not None else ""
    lines.append(("elapsed", f"{words.length(run.elapsed_s)}{left}"))
    lines.append(("credits", credits_line(run)))
    if spent := kinds_line(run.credits.kinds):
        lines.append(("spent on", spent))
    if run.code.bundle or run.code.in_place or run.code.commit:
        lines.append(("code", _code(run)))
    if run.note:
        lines.append(("note", run.note))
    return lines


def credits_line(run: RunView) -> str:
    line = f"{words.amount(run.credits.used)} used"
    if run.credits.saved is not None:
        return f"{line}, {words.amount(run.credits.saved)} saved"
    if run.credits.estimated is None or run.status in words.ENDED:
        return line
    low, high = words.amount(run.credits.low), words.amount(run.credits.high)
    between = f" ({low} to {high})" if run.credits.low is not None and low != high else ""
    return f"{line} of about {words.amount(run.credits.estimated)}{between}"


def _code(run: RunView) -> str:
    where = f"in place in {run.code.in_place}" if run.code.in_place else f"bundle {(run.code.bundle or '–')[:12]}"
    if not run.code.commit:
        return where
    return f"{where}, commit {run.code.commit[:12]}{' with changes' if run.code.dirty else ''}"


def phases_table(phases: list[PhaseView]) -> Table:
    numbers = ("elapsed", "attempts")
    made = table("phase", "kind", "status", "progress", "steps", "elapsed", "attempts", right=numbers)
    narrow = console().width < EPOCHS_FROM
    for phase in phases:
        steps = words.steps(phase.progress).removeprefix("step ")
        made.add_row(
            printable(phase.name),
            phase.kind,
            phase_status(phase),
            f"{words.bar(phase.progress.fraction)} {words.percent(phase.progress.fraction)}".strip(),
            steps.partition(", ")[0] if narrow else steps,
            words.length(phase.elapsed_s) if phase.attempts else "–",
            str(len(phase.attempts)),
        )
    return made


def _whys(phases: list[PhaseView]) -> list[RenderableType]:
    """Below the table: beside the numbers there is no room for a sentence at 80 columns."""
    whys = [Text(f"{printable(phase.name)}: {why}", style="dim") for phase in phases if (why := phase_why(phase))]
    return [*whys, *(line for phase in phases for each in phase.findings for line in finding_lines(phase, each))]


def finding_lines(phase: PhaseView, found: FindingView) -> list[Text]:
    """What it is, and what to do about it."""
    surely = "" if found.confidence >= SURE else f" ({found.confidence:.0%} sure)"
    said = Text(f"{printable(phase.name)}: ", style="dim")
    said.append(one_line(found.says) + surely, style=WEIGHTS[found.weight])
    return [said, Text(f"  {one_line(found.do)}", style="dim")] if found.do else [said]


def phase_status(phase: PhaseView) -> Text:
    symbol, colour = words.SYMBOLS.get(phase.status, ("?", ""))
    running = phase.status == "running" and phase.progress.stage
    return Text(f"{symbol} {phase.progress.stage if running else phase.status}", style=colour)


def phase_why(phase: PhaseView) -> str:
    """What is asked of it, what comes next, and why it stopped: the decisive reason first."""
    parts = []
    if phase.ladder:
        after = f", then {phase.ladder.next_rung} at {words.local_time(phase.ladder.next_at, date=False)}"
        parts.append(f"asked by {phase.ladder.rung}{after if phase.ladder.next_rung else ''}")
    elif phase.stop_requested and phase.status in ("pending", "running"):
        parts.append("stop requested")
    if phase.retry_at:
        parts.append(f"again at {words.local_time(phase.retry_at, date=False)}")
    parts += words.stopped(phase.stop_reasons)
    return printable("; ".join(parts))


def steering(phases: list[PhaseView]) -> list[RenderableType]:
    """What can be changed on the way, and what was."""
    lines = []
    for phase in phases:
        if phase.params:
            known = ", ".join(f"{name} = {param.value!r}" for name, param in phase.params.items())
            lines.append(f"{phase.name}: can be set: {known}")
        lines += [f"{phase.name}: {_change(change)}" for change in phase.steering]
        if phase.saves.done < phase.saves.requested and phase.status == "running":
            lines.append(f"{phase.name}: a save was asked for")
    return [Text(), *(Text(printable(line), style="dim") for line in lines)] if lines else []


def _change(change: ChangeView) -> str:
    name = "steps" if change.name == "total" else change.name.removeprefix("param:")
    where = f"from step {change.step:,} on" if change.step is not None else "not applied yet"
    if change.refused:
        where = f"not taken by the program: {change.refused}"
    return f"{name} = {change.value!r}, {where} (asked by {change.actor})"


def _attempts(phases: list[PhaseView]) -> list[RenderableType]:
    attempts = [(phase, attempt) for phase in phases for attempt in phase.attempts]
    if not attempts:
        return []
    # As narrow as it can be: all of it has to be there at 80 columns.
    made = table("#", "phase", "status", "steps", "where", "started", "ended", "credits", right=("#", "credits"))
    now = datetime.now(UTC).isoformat()
    attempts.sort(key=lambda pair: pair[1].number)
    for phase, attempt in attempts:
        symbol, colour = words.SYMBOLS.get(attempt.status, ("?", ""))
        made.add_row(
            str(attempt.number),
            printable(phase.name),
            Text(f"{symbol} {attempt.status}", style=colour),
            _attempt_steps(attempt),
            printable(f"{attempt.pool}{f' on {attempt.host}' if attempt.host else ''}"),
            words.short_time(attempt.started_at, now),
            words.short_time(attempt.ended_at, attempt.started_at),
            words.amount(attempt.credits),
        )
    # Sentences below the table: a column of them would leave no room for the numbers.
    said = [(attempt.number, _attempt_why(attempt)) for _, attempt in attempts]
    return [Text(), made, Text(), *(Text(f"attempt {number}: {why}", style="dim") for number, why in said if why)]


def _attempt_why(attempt: AttemptView) -> str:
    """How it ended or what it has to do, and why it was placed where it is."""
    parts = [attempt.text or attempt.reason or "" if attempt.reachable else "not heard of for a while"]
    if attempt.waits_for:
        parts.append(f"waits in {attempt.pool}: {attempt.waits_for}")
    if attempt.leaves_at:
        why = f" ({attempt.leaves_why})" if attempt.leaves_why else ""
        parts.append(f"has to leave by {words.local_time(attempt.leaves_at, date=False)}{why}")
    if attempt.why_here:
        parts.append(f"placed on {attempt.pool}: {attempt.why_here}")
    return printable(words.with_times("; ".join(part for part in parts if part)))


def _attempt_steps(attempt: AttemptView) -> str:
    if not attempt.last_step and attempt.resumed_from is None:
        return ""  # a program that counts no steps
    first = attempt.resumed_from or 0
    if attempt.last_step is None or attempt.last_step < first:
        return f"{first:,} → …" if attempt.status == "started" else f"{first:,}"  # it has not made a step yet
    return f"{first:,} → {attempt.last_step:,}"
