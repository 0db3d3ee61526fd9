"""`whistle events`: what happened to a run, who asked for it, and when."""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from whistlestop.cli.options import Json, Run, command, connect

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import EventView

app = command()
PAGE = 1000


@app.command()
def events(
    run: Run,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the run has ended.")] = False,
    scope: Annotated[str | None, typer.Option(help="run or instance.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only this kind, such as checkpoint or stop_requested. May be repeated.")
    ] = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", help="Only the last ones.", min=1, max=1_000_000)] = None,
    as_json: Json = False,
) -> None:
    """Print the events. With --json a list; with --json --follow one object per line."""
    import json

    from whistlestop.cli.failures import Usage, printable
    from whistlestop.cli.output import aside, print_json

    if scope not in (None, "run", "instance"):
        raise Usage(f"{scope!r} is not a scope.", hint="run or instance")
    kinds = frozenset(word for item in kind or [] for word in item.split(",") if word)
    with connect() as client:
        past = _tail(client, run, scope, kinds, tail) if tail else _past(client, run, scope, kinds)
        if as_json and not follow:
            print_json(list(past))
            return
        seen = 0
        try:
            for event in past:
                seen = event.seq
                _print(json.dumps(event.model_dump(mode="json")) if as_json else printable(event_line(event)), follow)
            if not follow and kinds and not seen:
                aside(f"whistle: No event of kind {', '.join(sorted(kinds))}. There are: {_kinds(client, run, scope)}.")
            for event in _coming(client, run, scope, kinds, seen) if follow else ():
                _print(json.dumps(event.model_dump(mode="json")) if as_json else printable(event_line(event)), follow)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def event_line(event: "EventView") -> str:
    from whistlestop.cli import words

    where = f"{event.phase}/{event.attempt}" if event.attempt else event.phase or ""
    who = f" [{event.actor}]" if event.actor else ""
    return f"{words.local_time(event.at)}  {event.kind:<20} {where:<14} {words.with_times(event.text)}{who}"


def _print(text: str, flush: bool) -> None:
    print(text, flush=flush)


def _past(client: "Client", run: str, scope: str | None, kinds: Collection[str]) -> Iterator["EventView"]:
    after, search = 0, next(iter(kinds)) if len(kinds) == 1 else None
    while page := client.events(run, after=after, limit=PAGE, scope=scope, search=search):
        yield from (event for event in page if not kinds or event.kind in kinds)
        after = page[-1].seq


def _tail(client: "Client", run: str, scope: str | None, kinds: Collection[str], tail: int) -> list["EventView"]:
    """From the end backwards, until there are enough."""
    return list(islice(_backwards(client, run, scope, kinds), tail))[::-1]


def _backwards(client: "Client", run: str, scope: str | None, kinds: Collection[str]) -> Iterator["EventView"]:
    before, search = None, next(iter(kinds)) if len(kinds) == 1 else None
    while page := client.events(run, newest=True, before=before, limit=PAGE, scope=scope, search=search):
        yield from (event for event in reversed(page) if not kinds or event.kind in kinds)
        before = page[0].seq


def _coming(client: "Client", run: str, scope: str | None, kinds: Collection[str], seen: int) -> Iterator["EventView"]:
    from whistlestop.wire.api import EventView

    for message in client.stream(run, ["events"], last_id=f"e{seen};l;m"):
        if message.kind == "event":
            event = EventView.model_validate(message.data, extra="ignore")
            if event.seq > seen and (scope is None or event.scope == scope) and (not kinds or event.kind in kinds):
                yield event


def _kinds(client: "Client", run: str, scope: str | None) -> str:
    return ", ".join(sorted({event.kind for event in _past(client, run, scope, ())})) or "none yet"
