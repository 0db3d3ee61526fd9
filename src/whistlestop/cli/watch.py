"""`whistle watch`: one run, live, until it has ended."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from whistlestop.cli.options import Json, Run, command, connect

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import RunView

app = command()


@app.command()
def watch(run: Run, as_json: Json = False) -> None:
    """Watch a run live: phases, steps and batches, metrics and the last lines of its log. Ctrl-C leaves it running."""
    from whistlestop.cli import following
    from whistlestop.cli.output import print_json

    with connect() as client:
        found = client.run(run)
        try:
            if as_json:
                found = following.follow_output(client, found, quiet=True)
                print_json(found)
                raise typer.Exit(following.exit_code(found))
            found = watch_run(client, found.id)
        except KeyboardInterrupt:
            raise typer.Exit(following.detached(found)) from None
    raise typer.Exit(following.ended(found))


def watch_run(
    client: "Client",
    run: str,
    *,
    stopped: Callable[[], bool] = lambda: False,
    leaving: str = "Ctrl-C leaves; the run goes on.",
) -> "RunView":
    """Show it until it has ended or `stopped` says so. Without a terminal: its events, line by line."""
    return _live(client, run, stopped, leaving) if sys.stdout.isatty() else _lines(client, run, stopped)


def _live(client: "Client", run: str, stopped: Callable[[], bool], leaving: str) -> "RunView":
    from rich.live import Live

    from whistlestop.cli.output import console
    from whistlestop.cli.watch_view import Watched

    page, series = client.logs(run, tail=Watched.LINES), client.metrics(run)
    watched = Watched(client.run(run), page.lines, series.series, leaving=leaving)
    with Live(console=console(), get_renderable=watched.view, refresh_per_second=8, transient=True):
        for message in client.stream(
            run,
            ["run", "logs", "progress", "metrics"],
            last_id=f"e0;l{page.cursor};m{series.cursor}",
            stopped=stopped,
        ):
            watched.take(message)
    if stopped():
        return watched.run
    watched.run = client.run(run)
    console().print(watched.view())
    return watched.run


def _lines(client: "Client", run: str, stopped: Callable[[], bool]) -> "RunView":
    from whistlestop.cli.events import event_line
    from whistlestop.cli.failures import printable
    from whistlestop.wire.api import EventView

    found = client.run(run)
    for message in client.stream(run, ["events"], stopped=stopped):
        if message.kind == "event":
            print(printable(event_line(EventView.model_validate(message.data, extra="ignore"))), flush=True)
    return found if stopped() else client.run(run)
