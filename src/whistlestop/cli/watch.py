"""`whistle watch`: one run, live, until it has ended."""

import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from whistlestop.cli.options import Json, Run, at_terminal, command, connect

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import RunView

app = command()
LEAVING = "Ctrl-C leaves; the run goes on."


@app.command()
def watch(
    run: Run,
    plain: Annotated[bool, typer.Option("--plain", help="A few lines instead of the whole screen.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Stay on the page when the run has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Watch a run live, and steer it: phases with their steps and batches, charts, log, events; ? shows the keys.
    Leaving with q or Ctrl-C does not touch the run."""
    from whistlestop.cli import following
    from whistlestop.cli.output import print_json

    with connect() as client:
        found = client.run(run)
        try:
            if as_json:
                found = following.follow_output(client, found, quiet=True)
                print_json(found)
                raise typer.Exit(following.exit_code(found))
            found = watch_run(client, found.id, plain=plain, stay=stay)
        except KeyboardInterrupt:
            raise typer.Exit(following.detached(found)) from None
    raise typer.Exit(following.ended(found))


def watch_run(
    client: "Client",
    run: str,
    *,
    stopped: Callable[[], bool] | None = None,
    leaving: str = LEAVING,
    plain: bool = False,
    stay: bool = False,
) -> "RunView":
    """Show it until it has ended or `stopped` says so. Leaving is a KeyboardInterrupt. Without a terminal: its events,
    line by line. Beside something else (in another thread, or with `stopped`): a few lines that stay in place."""
    terminal = os.environ.get("TERM", "unknown")
    if not sys.stdout.isatty() or terminal == "dumb":
        return _lines(client, run, stopped or _never)
    alone = stopped is None and threading.current_thread() is threading.main_thread()
    if plain or not alone or not at_terminal() or terminal in ("", "unknown"):
        return _live(client, run, stopped or _never, leaving)
    return _page(client, run, stay=stay)


def _never() -> bool:
    return False


def _page(client: "Client", run: str, *, stay: bool) -> "RunView":
    from whistlestop.cli import words

    found = client.run(run)
    if found.status not in words.ENDED or stay:
        from whistlestop.cli.watching.app import watch_page

        seen = watch_page(client, found, stay=stay)
        if seen is None:
            raise KeyboardInterrupt
        found = seen
    from whistlestop.cli.output import console
    from whistlestop.cli.watch_view import end_view

    console().print(end_view(client, found))
    return found


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
