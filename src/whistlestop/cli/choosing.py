"""Which runs a destructive verb is about, and the question before it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from whistlestop.cli import words
from whistlestop.cli.failures import Usage, printable
from whistlestop.cli.options import at_terminal, checked_statuses

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import RunView

ACTIVE = ("queued", "starting", "running", "waiting")
OVER = ("completed", "failed", "killed")
SHOWN = 10


def choose(
    client: "Client",
    names: Sequence[str] | None,
    *,
    status: list[str] | None,
    project: str | None,
    search: str | None,
    everything: bool,
    among: Sequence[str],
) -> list["RunView"]:
    """The runs that were named, or those that match. `among`: the statuses that a filter means if it names none."""
    wanted = checked_statuses(status)
    filtered = bool(wanted or project or search or everything)
    if not names and not filtered:
        raise Usage("No run was named.", hint="name runs, or choose them with --status, --project, --search or --all")
    if names and filtered:
        raise Usage("Name runs, or choose them by a filter; not both.")
    if names:
        found = [client.run(name) for name in names]
        return list({run.id: run for run in found}.values())
    return list(client.all_runs(status=wanted or list(among), project=project, search=search))


def ask(
    runs: Sequence["RunView"],
    question: str,
    *,
    yes: bool,
    verb: str,
    stakes: Callable[[], Sequence[str]] = tuple,
    ends: bool = True,
) -> None:
    """Name every run with what it is about to lose. Without a terminal only --yes is a yes.

    `ends`: it ends for good, so that what it has not spent is saved."""
    if yes:
        return
    if not at_terminal():
        raise Usage(
            f"To {verb} without being asked, say --yes.", hint="there is no terminal to ask at; nothing was done"
        )
    for run in runs[:SHOWN]:
        typer.echo(printable(describe(run, ends=ends)), err=True)
    if len(runs) > SHOWN:
        typer.echo(f"  … and {len(runs) - SHOWN} more", err=True)
    for line in stakes():
        typer.echo(printable(line), err=True)
    if not typer.confirm(question, err=True):
        raise typer.Abort


def describe(run: "RunView", *, ends: bool = True) -> str:
    """#12 (demo)  running since 2026-01-01 10:00:00, step 120/1,000 (12%), 2.00 credits used, about 8.00 saved"""
    since = f"{words.status(run)} since {words.local_time(run.started_at)}" if run.started_at else words.status(run)
    done = words.steps(run.progress)
    if run.progress.fraction is not None:
        done += f" ({words.percent(run.progress.fraction).strip()})"
    parts = [since, done, f"{words.amount(run.credits.used)} credits used", words.saved(run) if ends else ""]
    return f"  {words.name(run)}  " + ", ".join(part for part in parts if part)


def count(runs: Sequence["RunView"]) -> str:
    return f"run {words.name(runs[0])}" if len(runs) == 1 else f"{len(runs)} runs"
