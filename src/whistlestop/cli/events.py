"""`whistle events`: what happened to a run, who asked for it, and when."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from whistlestop.cli.options import Json, Run, command, connect

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import EventView

app = command()


@app.command()
def events(
    run: Run,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the run has ended.")] = False,
    scope: Annotated[str | None, typer.Option(help="run or instance.")] = None,
    as_json: Json = False,
) -> None:
    """Print the events. With --json a list; with --json --follow one object per line."""
    import json

    from whistlestop.cli.failures import Usage, printable
    from whistlestop.cli.output import print_json

    if scope not in (None, "run", "instance"):
        raise Usage(f"{scope!r} is not a scope.", hint="run or instance")
    with connect() as client:
        if as_json and not follow:
            print_json(list(_past(client, run, scope)))
            return
        try:
            for event in _all(client, run, scope) if follow else _past(client, run, scope):
                text = json.dumps(event.model_dump(mode="json")) if as_json else printable(event_line(event))
                print(text, flush=follow)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def event_line(event: "EventView") -> str:
    from whistlestop.cli import words

    where = f"{event.phase}/{event.attempt}" if event.attempt else event.phase or ""
    who = f" [{event.actor}]" if event.actor else ""
    return f"{words.local_time(event.at)}  {event.kind:<20} {where:<14} {event.text}{who}"


def _past(client: "Client", run: str, scope: str | None) -> Iterator["EventView"]:
    after = 0
    while page := client.events(run, after=after, limit=1000, scope=scope):
        yield from page
        after = page[-1].seq


def _all(client: "Client", run: str, scope: str | None) -> Iterator["EventView"]:
    from whistlestop.wire.api import EventView

    for message in client.stream(run, ["events"]):
        if message.kind == "event":
            event = EventView.model_validate(message.data, extra="ignore")
            if scope is None or event.scope == scope:
                yield event
